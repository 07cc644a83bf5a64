// Any bytes as a native model file, in its text and JSON forms; what parses is lowered.
#include "proto/io.h"
#include "tests/fuzz/model_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foreshard;
  const std::string_view text = fuzz::AsText(data, size);
  pb::Model model;
  const Status status =
      text.starts_with('{') ? ParseJson(text, "fuzz", model) : ParseText(text, "fuzz", model);
  if (status.ok() && model.has_root()) fuzz::LowerAndCheck(model);
  return 0;
}
