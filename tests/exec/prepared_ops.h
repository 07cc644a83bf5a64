// A few ops on hand-made tables, prepared for one rank and copied by hand.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>
#include <vector>

#include "exec/cpu/copy_elements.h"
#include "exec/prepare.h"
#include "proto/plan.pb.h"
#include "tests/testing/parse.h"

namespace foreshard::exec {

using Floats = std::vector<float>;

class PreparedOps {
 public:
  // One segment of `ops` in a plan of `tables`, which `edit` may change before it is prepared.
  PreparedOps(
      std::string_view tables, std::string_view ops, int rank,
      const std::function<void(pb::Plan&)>& edit = [](pb::Plan&) {}) {
    pb::Plan plan = ParseOrDie<pb::Plan>(tables);
    plan.MergeFrom(ParseOrDie<pb::Plan>(fmt::format("segments {{ name: \"s\" {} }}", ops)));
    edit(plan);
    prepared_ = Prepare(plan, rank);
  }

  const Status& status() const { return prepared_.status(); }
  int64_t bytes(int buffer) const { return prepared_->buffer_bytes[buffer]; }
  template <typename Kind>
  const Kind& work(int index) const {
    return std::get<Kind>(prepared_->segments[0].ops[index].work);
  }

  // What copy `index` makes of `in` in buffers that hold -1 before.
  std::vector<Floats> Run(int index, std::vector<Floats> in) const {
    Launch launch;
    std::vector<Floats> out;
    for (const int buffer : prepared_->segments[0].ops[index].out) {
      out.emplace_back(bytes(buffer) / sizeof(float), -1.0F);
    }
    const auto block = [](Floats& f) {
      return Block{reinterpret_cast<std::byte*>(f.data()),
                   static_cast<int64_t>(f.size() * sizeof(float))};
    };
    for (Floats& f : in) launch.in.push_back(block(f));
    for (Floats& f : out) launch.out.push_back(block(f));
    Copy(work<CopyElements>(index), launch);
    return out;
  }

 private:
  StatusOr<PreparedPlan> prepared_ = InvalidPlan("");
};

}  // namespace foreshard::exec
