// Tables of a plan: indices, mesh, inputs, kernels, programs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "proto/oplib/oplib.h"
#include "proto/plan_check_parts.h"

namespace foreshard::plan_check {
namespace {

Status Index(std::string_view place, std::string_view table, int64_t index, int size) {
  if (InTable(index, size)) return OkStatus();
  return Broken("index", place, fmt::format("{} {} of {}", table, index, size));
}

Status CheckMesh(const pb::Plan& plan) {
  const pb::Mesh& mesh = plan.mesh();
  const int64_t product = int64_t{mesh.shard_size()} * mesh.replicate_size();
  if (mesh.shard_size() < 1 || mesh.replicate_size() < 1 || product != mesh.world_size()) {
    return Broken("mesh", "mesh",
                  fmt::format("shard_size {} x replicate_size {} is not world_size {}",
                              mesh.shard_size(), mesh.replicate_size(), mesh.world_size()));
  }
  return OkStatus();
}

// The shard group or an equal part of it, or the ranks that hold the same shard.
Status CheckGroups(const pb::Plan& plan) {
  const pb::Mesh& mesh = plan.mesh();
  for (int i = 0; i < plan.groups_size(); ++i) {
    const pb::Group& group = plan.groups(i);
    const bool neighbours =
        group.stride() == 1 && group.size() >= 1 && mesh.shard_size() % group.size() == 0;
    const bool replicas =
        group.stride() == mesh.shard_size() && group.size() == mesh.replicate_size();
    if (neighbours || replicas) continue;
    return Broken(
        "group", fmt::format("group {} \"{}\"", i, group.name()),
        fmt::format("size {} with stride {} is neither a part of {} shards nor the {} "
                    "replicas of one",
                    group.size(), group.stride(), mesh.shard_size(), mesh.replicate_size()));
  }
  return OkStatus();
}

Status CheckStreams(const pb::Plan& plan) {
  if (plan.streams_size() > kMaxStreams) {
    return Broken("stream", "streams",
                  fmt::format("{} streams, expected at most {}", plan.streams_size(), kMaxStreams));
  }
  for (int i = 0; i < plan.streams_size(); ++i) {
    if (plan.streams(i).role() < pb::Stream::COMPUTE ||
        plan.streams(i).role() > pb::Stream::Role_MAX) {
      return Broken("stream", fmt::format("stream {} \"{}\"", i, plan.streams(i).name()),
                    fmt::format("role {} is none", static_cast<int>(plan.streams(i).role())));
    }
  }
  return OkStatus();
}

Status CheckOthers(const pb::Buffer& buffer, int world_size, const std::string& place) {
  int last = 0;
  for (const pb::RankBytes& other : buffer.others()) {
    RETURN_IF_ERROR(Index(place, "rank", other.rank(), world_size));
    if (other.rank() <= last) {
      return Broken("buffer", place, fmt::format("rank {} is listed out of order", other.rank()));
    }
    last = other.rank();
    if (other.bytes() < 0 || other.bytes() == buffer.bytes()) {
      return Broken("buffer", place,
                    fmt::format("rank {} holds {} bytes, {}", other.rank(), other.bytes(),
                                other.bytes() < 0 ? "which is negative" : "as rank 0 does"));
    }
  }
  return OkStatus();
}

// What makes a buffer wrong apart from its size. There are many buffers: their names are made only
// for messages.
Status CheckBuffer(const pb::Plan& plan, int index) {
  const pb::Buffer& buffer = plan.buffers(index);
  const std::string place = fmt::format("buffer {}", index);
  if (buffer.category() < pb::SHARDED_PARAM || buffer.category() > pb::Category_MAX) {
    return Broken("buffer", place,
                  fmt::format("category {} is none", static_cast<int>(buffer.category())));
  }
  RETURN_IF_ERROR(Index(place, "stream", buffer.stream(), plan.streams_size()));
  if (buffer.has_unit()) RETURN_IF_ERROR(Index(place, "unit", buffer.unit(), plan.units_size()));
  if (buffer.has_module()) {
    RETURN_IF_ERROR(Index(place, "module", buffer.module(), plan.modules_size()));
  }
  for (const int32_t stream : buffer.recorded_on()) {
    RETURN_IF_ERROR(Index(place, "stream", stream, plan.streams_size()));
  }
  return CheckOthers(buffer, plan.mesh().world_size(), place);
}

bool IsPlain(const pb::Plan& plan, const pb::Buffer& buffer) {
  return buffer.category() >= pb::SHARDED_PARAM && buffer.category() <= pb::Category_MAX &&
         InTable(buffer.stream(), plan.streams_size()) && buffer.others().empty() &&
         buffer.recorded_on().empty() &&
         (!buffer.has_unit() || InTable(buffer.unit(), plan.units_size())) &&
         (!buffer.has_module() || InTable(buffer.module(), plan.modules_size()));
}

Status CheckBuffers(const pb::Plan& plan) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t total = 0;
  for (int i = 0; i < plan.buffers_size(); ++i) {
    const pb::Buffer& buffer = plan.buffers(i);
    int64_t most = buffer.bytes();
    for (const pb::RankBytes& other : buffer.others()) most = std::max(most, other.bytes());
    if (buffer.bytes() < 0 || most >= kLimit - total) {
      return Broken("buffer", fmt::format("buffer {}", i),
                    fmt::format("{} bytes: negative, or all buffers together reach 2^62", most));
    }
    total += most;
    if (!IsPlain(plan, buffer)) RETURN_IF_ERROR(CheckBuffer(plan, i));
  }
  return OkStatus();
}

// Which buffers are resident; each is listed once.
StatusOr<std::vector<bool>> Resident(const pb::Plan& plan) {
  std::vector<bool> resident(static_cast<size_t>(plan.buffers_size()), false);
  for (const int32_t buffer : plan.resident()) {
    RETURN_IF_ERROR(Index("resident", "buffer", buffer, plan.buffers_size()));
    if (resident[static_cast<size_t>(buffer)]) {
      return Broken("lifetime", "resident", fmt::format("buffer {} is listed twice", buffer));
    }
    resident[static_cast<size_t>(buffer)] = true;
    const pb::Category category = plan.buffers(buffer).category();
    if (category != pb::SHARDED_PARAM && category != pb::INPUT && category != pb::MODULE_BUFFER &&
        category != pb::WORKSPACE) {
      return Broken(
          "category", "resident",
          fmt::format("buffer {} is of category {}", buffer, pb::Category_Name(category)));
    }
  }
  return resident;
}

Status CheckInputs(const pb::Plan& plan) {
  ASSIGN_OR_RETURN(const std::vector<bool> resident, Resident(plan));
  for (const pb::Input& input : plan.inputs()) {
    const std::string place = fmt::format("input \"{}\"", input.name());
    RETURN_IF_ERROR(Index(place, "buffer", input.buffer(), plan.buffers_size()));
    if (!resident[static_cast<size_t>(input.buffer())]) {
      return Broken("input", place, fmt::format("buffer {} is not resident", input.buffer()));
    }
    const std::optional<int64_t> numel = Numel(input.shape());
    const std::optional<int64_t> bytes =
        numel ? Multiply(*numel, ElementBytes(input.dtype())) : std::nullopt;
    if (ElementBytes(input.dtype()) == 0 || !bytes ||
        *bytes != plan.buffers(input.buffer()).bytes()) {
      return Broken("input", place,
                    fmt::format("its dtype and shape do not fill the {} bytes of buffer {}",
                                plan.buffers(input.buffer()).bytes(), input.buffer()));
    }
    if (plan.buffers(input.buffer()).category() != pb::INPUT) {
      return Broken("category", place,
                    fmt::format("buffer {} is of category {}, expected {}", input.buffer(),
                                pb::Category_Name(plan.buffers(input.buffer()).category()),
                                pb::Category_Name(pb::INPUT)));
    }
    if (input.rule() < pb::Input::TOKENS || input.rule() > pb::Input::NORMAL) {
      return Broken("input", place, fmt::format("rule {} is none", static_cast<int>(input.rule())));
    }
  }
  return OkStatus();
}

Status CheckParameters(const pb::Plan& plan) {
  for (const pb::Parameter& p : plan.parameters()) {
    const std::string place = fmt::format("parameter \"{}\"", p.path());
    RETURN_IF_ERROR(Index(place, "unit", p.unit(), plan.units_size()));
    RETURN_IF_ERROR(Index(place, "buffer", p.sharded_buffer(), plan.buffers_size()));
  }
  for (const pb::Unit& unit : plan.units()) {
    const std::string place = fmt::format("unit \"{}\"", unit.name());
    for (const int32_t module : unit.modules()) {
      RETURN_IF_ERROR(Index(place, "module", module, plan.modules_size()));
    }
    for (const int32_t parameter : unit.parameters()) {
      RETURN_IF_ERROR(Index(place, "parameter", parameter, plan.parameters_size()));
    }
    if (!unit.has_flat()) continue;
    RETURN_IF_ERROR(Index(place, "flat buffer", unit.flat().sharded_buffer(), plan.buffers_size()));
  }
  return OkStatus();
}

// What the programs of a plan with so many are called.
std::string ProgramName(int index, int programs) {
  if (index == 0) return "first";
  if (index == programs - 1) return "steady";
  return index == 1 ? "warmup" : fmt::format("warmup_{}", index);
}

Status CheckProgramNames(const pb::Plan& plan) {
  const int programs = plan.programs_size();
  if (programs < 2) {
    return Broken("programs", "programs",
                  fmt::format("found {}, expected \"first\", then \"steady\"", programs));
  }
  for (int i = 0; i < programs; ++i) {
    const std::string expected = ProgramName(i, programs);
    if (plan.programs(i).name() == expected) continue;
    return Broken("programs", "programs",
                  fmt::format("the program at place {} of {} is \"{}\", expected \"{}\"", i,
                              programs, plan.programs(i).name(), expected));
  }
  return OkStatus();
}

Status CheckPrograms(const pb::Plan& plan) {
  RETURN_IF_ERROR(CheckProgramNames(plan));
  for (const pb::Program& program : plan.programs()) {
    const std::string place = fmt::format("program \"{}\"", program.name());
    for (const pb::SegmentUse& use : program.uses()) {
      RETURN_IF_ERROR(Index(place, "segment", use.segment(), plan.segments_size()));
      if (use.repeat() < 1) {
        return Broken("repeat", place,
                      fmt::format("segment \"{}\" is repeated {} times, expected at least 1",
                                  plan.segments(use.segment()).name(), use.repeat()));
      }
    }
  }
  return OkStatus();
}

Status CheckType(const pb::TensorType& type, const std::string& place) {
  if (ElementBytes(type.dtype()) == 0) {
    return Broken("kernel", place, fmt::format("dtype {} is none", static_cast<int>(type.dtype())));
  }
  if (type.shape_size() > oplib::kMaxDims) {
    return Broken("kernel", place,
                  fmt::format("{} dimensions, at most {}", type.shape_size(), oplib::kMaxDims));
  }
  if (!Numel(type.shape())) {
    return Broken("kernel", place, "a size is negative, or the sizes multiply to 2^62 or more");
  }
  if (!type.strides().empty() && type.strides_size() != type.shape_size()) {
    return Broken(
        "kernel", place,
        fmt::format("{} strides for {} dimensions", type.strides_size(), type.shape_size()));
  }
  for (const int64_t stride : type.strides()) {
    if (stride < 0) return Broken("kernel", place, fmt::format("stride {} is negative", stride));
  }
  return OkStatus();
}

Status CheckKernel(const pb::Kernel& kernel, const std::string& place) {
  const oplib::KernelInfo* info = oplib::Find(kernel.name());
  if (!info) return Broken("kernel", place, "the op library has no kernel of this name");
  if (kernel.operands_size() != info->operands || kernel.results_size() != info->results) {
    return Broken(
        "kernel", place,
        fmt::format("{} operands and {} results, expected {} and {}", kernel.operands_size(),
                    kernel.results_size(), info->operands, info->results));
  }
  for (const pb::TensorType& type : kernel.operands()) RETURN_IF_ERROR(CheckType(type, place));
  for (const pb::TensorType& type : kernel.results()) RETURN_IF_ERROR(CheckType(type, place));
  if (!std::isfinite(kernel.flops()) || kernel.flops() < 0 || kernel.bytes() < 0) {
    return Broken("kernel", place, "flops and bytes must be finite and not negative");
  }
  if (const Status shapes = info->check(kernel); !shapes.ok()) {
    return Broken("kernel", place, shapes.message());
  }
  return OkStatus();
}

}  // namespace

Status CheckTables(const pb::Plan& plan) {
  RETURN_IF_ERROR(CheckMesh(plan));
  RETURN_IF_ERROR(CheckGroups(plan));
  RETURN_IF_ERROR(CheckStreams(plan));
  RETURN_IF_ERROR(CheckBuffers(plan));
  RETURN_IF_ERROR(CheckInputs(plan));
  RETURN_IF_ERROR(CheckParameters(plan));
  return CheckPrograms(plan);
}

Status CheckKernels(const pb::Plan& plan) {
  for (int i = 0; i < plan.kernels_size(); ++i) {
    RETURN_IF_ERROR(
        CheckKernel(plan.kernels(i), fmt::format("kernel {} \"{}\"", i, plan.kernels(i).name())));
  }
  return OkStatus();
}

}  // namespace foreshard::plan_check
