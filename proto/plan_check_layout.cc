// Rule layout: how the parameters of a unit lie in its shard.
#include <fmt/format.h>

#include <vector>

#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

// Elements of the parameter's padded shard: ceil(slices / shard size) x the size of a slice. Along
// other dimensions than the first, shards are equal.
std::optional<int64_t> PaddedShardNumel(const pb::Parameter& parameter, int64_t shard_size) {
  const std::optional<int64_t> numel = Numel(parameter.shape());
  if (!InTable(parameter.shard_dim(), parameter.shape_size()) || !numel) return std::nullopt;
  const int64_t slices = parameter.shape(parameter.shard_dim());
  if (parameter.shard_dim() > 0 && slices % shard_size != 0) return std::nullopt;
  if (slices == 0) return 0;
  return Multiply(slices / shard_size + (slices % shard_size != 0), *numel / slices);
}

struct UnitSums {
  int64_t numel = 0;
  int64_t shard = 0;
  int64_t grad_shard = 0;
};

// The shard has a buffer of its own, which it fills.
Status CheckShard(const pb::Plan& plan, const std::string& place, int32_t buffer, int64_t elems) {
  const std::optional<int64_t> bytes =
      Multiply(elems, ElementBytes(plan.decisions().original_dtype()));
  const pb::Buffer& shard = plan.buffers(buffer);
  if (!bytes || *bytes != shard.bytes()) {
    return Broken("layout", place,
                  fmt::format("its padded shard of {} elements does not fill the {} bytes of "
                              "buffer {}",
                              elems, shard.bytes(), buffer));
  }
  if (shard.category() == pb::SHARDED_PARAM) return OkStatus();
  return Broken(
      "category", place,
      fmt::format("buffer {} is of category {}, expected {}", buffer,
                  pb::Category_Name(shard.category()), pb::Category_Name(pb::SHARDED_PARAM)));
}

Status AddParameter(const pb::Plan& plan, const pb::Parameter& p, UnitSums& sums) {
  const std::string place = fmt::format("parameter \"{}\"", p.path());
  const std::optional<int64_t> padded = PaddedShardNumel(p, plan.mesh().shard_size());
  if (!padded || p.padded_shard_numel() != *padded) {
    return Broken(
        "layout", place,
        fmt::format("padded_shard_numel {} along dimension {}, expected ceil(size / {}) x "
                    "slice = {}",
                    p.padded_shard_numel(), p.shard_dim(), plan.mesh().shard_size(),
                    padded ? fmt::to_string(*padded) : "nothing for this shape"));
  }
  if (p.shard_offset() != sums.shard) {
    return Broken("layout", place,
                  fmt::format("shard_offset {}, expected {}", p.shard_offset(), sums.shard));
  }
  if (p.flat_offset() != 0) {
    return Broken("layout", place,
                  fmt::format("flat_offset {}, its unit has no flat parameter", p.flat_offset()));
  }
  RETURN_IF_ERROR(CheckShard(plan, place, p.sharded_buffer(), *padded));
  sums.shard += *padded;
  sums.numel += *Numel(p.shape());
  if (!p.frozen()) sums.grad_shard += *padded;
  return OkStatus();
}

Status Expect(const pb::Unit& unit, std::string_view field, int64_t found, int64_t expected) {
  if (found == expected) return OkStatus();
  return Broken("layout", fmt::format("unit \"{}\"", unit.name()),
                fmt::format("{} {}, expected {}", field, found, expected));
}

Status CheckUnitSums(const pb::Plan& plan, const pb::Unit& unit, const UnitSums& sums) {
  const std::optional<int64_t> gathered = Multiply(sums.shard, plan.mesh().shard_size());
  RETURN_IF_ERROR(Expect(unit, "numel", unit.numel(), sums.numel));
  RETURN_IF_ERROR(Expect(unit, "padded_shard_numel", unit.padded_shard_numel(), sums.shard));
  RETURN_IF_ERROR(
      Expect(unit, "grad_padded_shard_numel", unit.grad_padded_shard_numel(), sums.grad_shard));
  if (unit.reshard_to() < 0 ||
      (unit.reshard_to() > 0 && plan.mesh().shard_size() % unit.reshard_to() != 0)) {
    return Broken("layout", fmt::format("unit \"{}\"", unit.name()),
                  fmt::format("reshard_to {} does not divide the {} ranks of a shard group",
                              unit.reshard_to(), plan.mesh().shard_size()));
  }
  return Expect(unit, "gathered_numel", unit.gathered_numel(), gathered.value_or(-1));
}

// ---- units with a flat parameter

// What has been seen of a flat parameter, in layout order.
struct FlatSums {
  int64_t numel = 0;
  int64_t end = 0;  // of the parameters so far
  bool frozen = true;
};

Status AddFlatParameter(const pb::Unit& unit, const pb::Parameter& p, FlatSums& sums) {
  const std::string place = fmt::format("parameter \"{}\"", p.path());
  if (p.sharded_buffer() != unit.flat().sharded_buffer()) {
    return Broken("layout", place,
                  fmt::format("buffer {} is not that of its unit's flat parameter, {}",
                              p.sharded_buffer(), unit.flat().sharded_buffer()));
  }
  if (p.shard_dim() != 0 || p.shard_offset() != 0 || p.padded_shard_numel() != 0) {
    return Broken("layout", place, "has a shard of its own, its unit a flat parameter");
  }
  const std::optional<int64_t> numel = Numel(p.shape());
  if (!numel || p.flat_offset() < sums.end || *numel > unit.flat().numel() - p.flat_offset()) {
    return Broken("layout", place,
                  fmt::format("flat_offset {} is before element {}, where the parameter before it "
                              "ends, or leaves it no room before element {}",
                              p.flat_offset(), sums.end, unit.flat().numel()));
  }
  sums.end = p.flat_offset() + *numel;
  sums.numel += *numel;
  sums.frozen = sums.frozen && p.frozen();
  return OkStatus();
}

Status CheckFlat(const pb::Plan& plan, const pb::Unit& unit) {
  const pb::Flat& flat = unit.flat();
  const std::string place = fmt::format("unit \"{}\"", unit.name());
  if (flat.numel() < 1 || flat.numel() >= int64_t{1} << 61) {
    return Broken(
        "layout", place,
        fmt::format("its flat parameter has {} elements, expected 1 to 2^61", flat.numel()));
  }
  FlatSums sums;
  for (const int32_t p : unit.parameters()) {
    RETURN_IF_ERROR(AddFlatParameter(unit, plan.parameters(p), sums));
  }
  const int64_t ranks = plan.mesh().shard_size();
  const int64_t shard = (flat.numel() - 1) / ranks + 1;
  RETURN_IF_ERROR(Expect(unit, "numel", unit.numel(), sums.numel));
  RETURN_IF_ERROR(Expect(unit, "frozen", flat.frozen(), sums.frozen));
  RETURN_IF_ERROR(Expect(unit, "padded_shard_numel", unit.padded_shard_numel(), shard));
  RETURN_IF_ERROR(Expect(unit, "grad_padded_shard_numel", unit.grad_padded_shard_numel(),
                         flat.frozen() ? 0 : shard));
  RETURN_IF_ERROR(Expect(unit, "reshard_to", unit.reshard_to(), 0));
  RETURN_IF_ERROR(Expect(unit, "gathered_numel", unit.gathered_numel(), shard * ranks));
  return CheckShard(plan, place, flat.sharded_buffer(), shard);
}

Status CheckEach(const pb::Plan& plan, const pb::Unit& unit) {
  UnitSums sums;
  for (const int32_t parameter : unit.parameters()) {
    RETURN_IF_ERROR(AddParameter(plan, plan.parameters(parameter), sums));
    if (sums.numel >= int64_t{1} << 61 || sums.shard >= int64_t{1} << 61) {
      return Broken("layout", fmt::format("unit \"{}\"", unit.name()),
                    "its parameters have 2^61 elements or more");
    }
  }
  return CheckUnitSums(plan, unit, sums);
}

// Every parameter is listed once, by its unit.
Status CheckLists(const pb::Plan& plan) {
  std::vector<int> listed(static_cast<size_t>(plan.parameters_size()), 0);
  for (int u = 0; u < plan.units_size(); ++u) {
    for (const int32_t p : plan.units(u).parameters()) {
      ++listed[static_cast<size_t>(p)];
      if (plan.parameters(p).unit() == u) continue;
      return Broken("layout", fmt::format("parameter \"{}\"", plan.parameters(p).path()),
                    fmt::format("is listed by unit \"{}\" but names unit {}", plan.units(u).name(),
                                plan.parameters(p).unit()));
    }
  }
  for (int p = 0; p < plan.parameters_size(); ++p) {
    if (listed[static_cast<size_t>(p)] == 1) continue;
    return Broken("layout", fmt::format("parameter \"{}\"", plan.parameters(p).path()),
                  fmt::format("is listed {} times by its unit, expected once",
                              listed[static_cast<size_t>(p)]));
  }
  return OkStatus();
}

}  // namespace

Status CheckLayout(const pb::Plan& plan) {
  RETURN_IF_ERROR(CheckLists(plan));
  for (const pb::Unit& unit : plan.units()) {
    RETURN_IF_ERROR(unit.has_flat() ? CheckFlat(plan, unit) : CheckEach(plan, unit));
  }
  return OkStatus();
}

}  // namespace foreshard::plan_check
