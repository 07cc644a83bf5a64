#include "exec/cpu/copy_elements.h"

#include <cstring>

#include "exec/convert.h"

namespace foreshard::exec {
namespace {

void CopyPieceOf(const CopyElements& copy, const CopyPiece& piece, const Launch& launch) {
  const int64_t to_size = SizeOf(copy.to);
  std::byte* to = launch.out[piece.out].data + piece.to * to_size;
  if (piece.in == kZeros) {
    std::memset(to, 0, static_cast<size_t>(piece.numel * to_size));
    return;
  }
  const DType from_dtype = copy.from[piece.in];
  const int64_t from_size = SizeOf(from_dtype);
  const std::byte* from = launch.in[piece.in].data + piece.from * from_size;
  for (int64_t run = 0; run < piece.runs; ++run) {
    ConvertElements(from, from_dtype, to, copy.to, piece.numel);
    from += piece.from_step * from_size;
    to += piece.to_step * to_size;
  }
}

}  // namespace

void Copy(const CopyElements& copy, const Launch& launch) {
  for (const CopyPiece& piece : copy.pieces) CopyPieceOf(copy, piece, launch);
}

}  // namespace foreshard::exec
