#include "proto/base/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace foreshard {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 100;

// Builds the value, and stops at the first fault.
class Builder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in texts
  bool key(string_t& name) override {
    const auto [place, fresh] = open_.back()->emplace(std::move(name), nullptr);
    if (!fresh)
      error_ = "the key " + Json(place.key()).dump(-1, ' ', true) + " stands twice in one object";
    slot_ = &*place;
    return fresh;
  }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    error_ = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong"
    if (const size_t at = error_.find("] "); at != std::string::npos) error_.erase(0, at + 2);
    return false;
  }

  const std::string& error() const { return error_; }
  Json TakeValue() { return std::move(root_); }

 private:
  template <typename Value>
  Json* Put(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    Json& container = *open_.back();
    if (container.is_array()) {
      container.push_back(std::forward<Value>(value));
      return &container.back();
    }
    *slot_ = std::forward<Value>(value);
    return slot_;
  }
  template <typename Value>
  bool Add(Value&& value) {
    Put(std::forward<Value>(value));
    return true;
  }
  bool Open(Json container) {
    if (open_.size() >= kMaxDepth) {
      error_ = "nested deeper than " + std::to_string(kMaxDepth) + " levels";
      return false;
    }
    open_.push_back(Put(std::move(container)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // containers from the root inwards; only the last one grows
  Json* slot_ = nullptr;     // of the last key
  std::string error_;
};

}  // namespace

StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, std::string_view origin) {
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return InvalidInput(std::string(origin) + ": " + builder.error());
  }
  return builder.TakeValue();
}

}  // namespace foreshard
