// Numbers as reports print them.
#pragma once

#include <cstdint>
#include <string>

namespace foreshard {

// One unit for all memory of a text, so that lines compare at a glance; a small one for the models
// of tests and tutorials.
struct Style {
  int width = 100;
  bool gibi = true;

  std::string unit() const { return gibi ? "GiB" : "MiB"; }
  std::string Number(int64_t bytes) const;  // "12.34", of unit()
};

// GiB unless `peak_bytes` is so small that two decimals would say nothing.
Style StyleFor(int64_t peak_bytes, int width);

// "79.15", always GiB: of devices.
std::string Gib(int64_t bytes);

// "12.3", of `whole`; "-" of nothing.
std::string Percent(double part, double whole);

// "12.345 ms"; "0" for no time at all.
std::string TimeText(int64_t ps);

// `part` of `whole` as a bar of at most `width` marks.
std::string Bar(int64_t part, int64_t whole, int width);

}  // namespace foreshard
