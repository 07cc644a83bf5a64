#include "exec/cpu/copy_elements.h"

#include <cstring>

#include "exec/convert.h"

namespace foreshard::exec {

void Copy(const CopyElements& copy, const Launch& launch) {
  for (const CopyPiece& piece : copy.pieces) {
    std::byte* to = launch.out[piece.out].data + piece.to * SizeOf(copy.to);
    if (piece.in == kZeros) {
      std::memset(to, 0, static_cast<size_t>(piece.numel * SizeOf(copy.to)));
      continue;
    }
    const DType from = copy.from[piece.in];
    ConvertElements(launch.in[piece.in].data + piece.from * SizeOf(from), from, to, copy.to,
                    piece.numel);
  }
}

}  // namespace foreshard::exec
