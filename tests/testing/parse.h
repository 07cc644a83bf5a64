// Messages from text in tests; a text that does not parse is a bug of the test.
#pragma once

#include <string_view>

#include "proto/base/check.h"
#include "proto/io.h"

namespace foreshard {

template <typename Message>
Message ParseOrDie(std::string_view text) {
  Message message;
  const Status status = ParseText(text, "test", message);
  CHECK(status.ok()) << status.message();
  return message;
}

}  // namespace foreshard
