#include "exec/data.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/random.h"
#include "proto/base/check.h"
#include "proto/base/file.h"
#include "proto/base/text.h"

namespace foreshard::exec {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are stored little-endian");

// Where windows of ids come from.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // The window of a sequence, whose numbers are drawn with the key of its step.
  virtual Status Window(uint64_t step_key, uint64_t sequence, std::span<int64_t> out) const = 0;
};

class RandomTokens : public TokenSource {
 public:
  explicit RandomTokens(int64_t limit) : limit_(static_cast<uint64_t>(limit)) {}
  Status Window(uint64_t step_key, uint64_t sequence, std::span<int64_t> out) const override {
    uint64_t index = sequence * out.size();
    for (int64_t& id : out) id = static_cast<int64_t>(RandomBits(step_key, index++) % limit_);
    return OkStatus();
  }

 private:
  uint64_t limit_;
};

// Where in a file ids stand, and how.
struct IdLayout {
  int64_t start = 0;  // bytes
  int64_t count = 0;
  int64_t id_bytes = 1;  // or 2
};

class FileTokens : public TokenSource {
 public:
  FileTokens(RandomAccessFile file, const IdLayout& layout)
      : file_(std::move(file)), layout_(layout) {}

  const RandomAccessFile& file() const { return file_; }
  const IdLayout& layout() const { return layout_; }

  Status Window(uint64_t step_key, uint64_t sequence, std::span<int64_t> out) const override {
    const auto places = static_cast<uint64_t>(layout_.count) - out.size() + 1;
    return Read(static_cast<int64_t>(RandomBits(step_key, sequence) % places), out);
  }

  // The ids from the `first` on. REQUIRES: the file has them.
  Status Read(int64_t first, std::span<int64_t> out) const {
    const auto size = static_cast<size_t>(layout_.id_bytes);
    std::vector<std::byte> bytes(out.size() * size);
    RETURN_IF_ERROR(file_.ReadAt(layout_.start + first * layout_.id_bytes, bytes));
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t id = 0;
      std::memcpy(&id, &bytes[i * size], size);
      out[i] = id;
    }
    return OkStatus();
  }

 private:
  RandomAccessFile file_;
  IdLayout layout_;
};

// llm.c's files start with 256 int32: this number, a version and the count of ids. Its first two
// bytes would be id 55432, which GPT-2's vocabulary does not have.
constexpr int32_t kLlmcMagic = 20240520;
constexpr int32_t kLlmcVersion = 1;
constexpr int64_t kLlmcHeaderBytes = 1024;

StatusOr<IdLayout> BinLayout(const RandomAccessFile& file) {
  if (file.bytes() % 2 != 0) {
    return InvalidInput(file.path() + ": found " + std::to_string(file.bytes()) +
                        " bytes, expected an even number (uint16 ids)");
  }
  std::array<int32_t, 3> head{};
  if (file.bytes() >= kLlmcHeaderBytes) {
    RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(head))));
  }
  if (head[0] != kLlmcMagic) return IdLayout{0, file.bytes() / 2, 2};
  const int64_t count = (file.bytes() - kLlmcHeaderBytes) / 2;
  if (head[1] != kLlmcVersion || head[2] != count) {
    return InvalidInput(file.path() + ": found a header of version " + std::to_string(head[1]) +
                        " and " + std::to_string(head[2]) + " ids, expected version " +
                        std::to_string(kLlmcVersion) + " and the " + std::to_string(count) +
                        " behind it");
  }
  return IdLayout{kLlmcHeaderBytes, count, 2};
}

StatusOr<IdLayout> LayoutOf(const RandomAccessFile& file) {
  if (file.path().ends_with(".txt")) return IdLayout{0, file.bytes(), 1};
  if (file.path().ends_with(".bin")) return BinLayout(file);
  return InvalidInput(file.path() + ": unknown suffix; expected .txt (bytes) or .bin (uint16 ids)");
}

// Reads the whole file, unless its ids cannot pass the limit.
Status CheckIds(const FileTokens& tokens, int64_t limit) {
  const IdLayout& layout = tokens.layout();
  if (limit >= int64_t{1} << (8 * layout.id_bytes)) return OkStatus();
  constexpr int64_t kBlock = 1 << 16;
  std::vector<int64_t> ids(static_cast<size_t>(std::min(layout.count, kBlock)));
  for (int64_t first = 0; first < layout.count; first += kBlock) {
    const auto part =
        std::span(ids).first(static_cast<size_t>(std::min(layout.count - first, kBlock)));
    RETURN_IF_ERROR(tokens.Read(first, part));
    const auto wrong =
        std::find_if(part.begin(), part.end(), [&](int64_t id) { return id >= limit; });
    if (wrong == part.end()) continue;
    return InvalidInput(tokens.file().path() + ": found id " + std::to_string(*wrong) +
                        " at position " + std::to_string(first + (wrong - part.begin())) +
                        ", expected ids below " + std::to_string(limit));
  }
  return OkStatus();
}

struct InputFacts {
  pb::Input::Rule rule = pb::Input::RULE_UNSPECIFIED;
  int64_t numel = 1;
  int64_t last_dim = 1;
  uint64_t name_hash = 0;
};

struct DataFacts {
  std::vector<InputFacts> inputs;
  int64_t world = 1;
  int64_t seq = 0;
  int64_t limit = 0;  // of ids, the lowest of all inputs'; 0 = no input has ids
};

Status InputFault(const pb::Input& input, const std::string& fault) {
  return InvalidPlan("input \"" + input.name() + "\": " + fault);
}

bool HasIds(const pb::Input& input) {
  return input.rule() == pb::Input::TOKENS || input.rule() == pb::Input::LABELS;
}

StatusOr<InputFacts> FactsOf(const pb::Input& input, const pb::Decisions& decisions) {
  if (input.rule() == pb::Input::RULE_UNSPECIFIED) return InputFault(input, "has no rule");
  const bool floats =
      input.dtype() == pb::FP32 || input.dtype() == pb::BF16 || input.dtype() == pb::FP16;
  if (input.rule() == pb::Input::NORMAL ? !floats : input.dtype() != pb::INT64) {
    return InputFault(input, "found the dtype " + pb::DType_Name(input.dtype()) +
                                 ", which is not one of " + pb::Input::Rule_Name(input.rule()));
  }
  InputFacts facts;
  facts.rule = input.rule();
  for (const int64_t dim : input.shape()) facts.numel *= dim;
  if (input.shape_size() > 0) facts.last_dim = input.shape(input.shape_size() - 1);
  facts.name_hash = Fnv1a64(input.name());
  if (!HasIds(input)) return facts;
  const int64_t expected = decisions.micro_batch() * decisions.seq();
  if (decisions.seq() <= 0 || facts.numel != expected) {
    return InputFault(input, "found " + std::to_string(facts.numel) + " ids, expected " +
                                 std::to_string(decisions.micro_batch()) + " sequences of " +
                                 std::to_string(decisions.seq()));
  }
  return facts;
}

StatusOr<DataFacts> FactsOf(const pb::Plan& plan) {
  DataFacts facts;
  facts.world = plan.mesh().world_size();
  facts.seq = plan.decisions().seq();
  const pb::Input* with_ids = nullptr;
  for (const pb::Input& input : plan.inputs()) {
    ASSIGN_OR_RETURN(const InputFacts of_input, FactsOf(input, plan.decisions()));
    facts.inputs.push_back(of_input);
    if (!HasIds(input)) continue;
    with_ids = &input;
    if (input.limit() <= 0) continue;
    facts.limit = facts.limit == 0 ? input.limit() : std::min(facts.limit, input.limit());
  }
  if (with_ids != nullptr && facts.limit == 0) {
    return InputFault(*with_ids, "neither it nor another input has a limit of ids");
  }
  return facts;
}

// Keeps the draws of different uses apart.
enum class Use : uint64_t { kTokens = 1, kNormal = 2 };

class PlanData : public DataSource {
 public:
  PlanData(DataFacts facts, uint64_t seed, std::unique_ptr<TokenSource> tokens)
      : facts_(std::move(facts)), seed_(seed), tokens_(std::move(tokens)) {}

  Status Fill(int input, const DataPlace& place, std::span<int64_t> out) const override {
    const InputFacts& facts = Checked(input, out.size());
    switch (facts.rule) {
      case pb::Input::TOKENS:
        return FillIds(facts, place, 0, out);
      case pb::Input::LABELS:
        return FillIds(facts, place, 1, out);
      case pb::Input::POSITIONS:
        for (size_t i = 0; i < out.size(); ++i) {
          out[i] = static_cast<int64_t>(i) % facts.last_dim;
        }
        return OkStatus();
      default:
        CHECK(false) << "input " << input << " is none of integers";
    }
    return OkStatus();
  }

  Status Fill(int input, const DataPlace& place, std::span<float> out) const override {
    const InputFacts& facts = Checked(input, out.size());
    CHECK(facts.rule == pb::Input::NORMAL) << "input " << input << " is none of floats";
    const uint64_t key = RandomKey({seed_, static_cast<uint64_t>(Use::kNormal), facts.name_hash,
                                    static_cast<uint64_t>(place.step)});
    uint64_t index = MicroBatchNumber(place) * out.size();
    for (float& value : out) value = RandomNormal(key, index++);
    return OkStatus();
  }

 private:
  const InputFacts& Checked(int input, size_t size) const {
    const InputFacts& facts = facts_.inputs.at(static_cast<size_t>(input));
    CHECK_EQ(size, static_cast<size_t>(facts.numel)) << "input " << input;
    return facts;
  }

  uint64_t MicroBatchNumber(const DataPlace& place) const {
    return static_cast<uint64_t>(place.micro_batch * facts_.world + place.rank);
  }

  // The ids from `shift` on of each sequence's window.
  Status FillIds(const InputFacts& facts, const DataPlace& place, size_t shift,
                 std::span<int64_t> out) const {
    const auto seq = static_cast<size_t>(facts_.seq);
    const uint64_t key =
        RandomKey({seed_, static_cast<uint64_t>(Use::kTokens), static_cast<uint64_t>(place.step)});
    uint64_t sequence = MicroBatchNumber(place) * static_cast<uint64_t>(facts.numel) / seq;
    std::vector<int64_t> window(seq + 1);
    for (size_t row = 0; row < out.size(); row += seq) {
      RETURN_IF_ERROR(tokens_->Window(key, sequence++, window));
      std::copy_n(window.begin() + static_cast<ptrdiff_t>(shift), seq,
                  out.begin() + static_cast<ptrdiff_t>(row));
    }
    return OkStatus();
  }

  DataFacts facts_;
  uint64_t seed_;
  std::unique_ptr<TokenSource> tokens_;
};

}  // namespace

StatusOr<std::unique_ptr<DataSource>> SyntheticData(const pb::Plan& plan, uint64_t seed) {
  ASSIGN_OR_RETURN(DataFacts facts, FactsOf(plan));
  auto tokens = std::make_unique<RandomTokens>(facts.limit);
  return std::unique_ptr<DataSource>(
      std::make_unique<PlanData>(std::move(facts), seed, std::move(tokens)));
}

StatusOr<std::unique_ptr<DataSource>> DataFromFile(const pb::Plan& plan, const std::string& path,
                                                   uint64_t seed) {
  ASSIGN_OR_RETURN(DataFacts facts, FactsOf(plan));
  if (facts.limit == 0) {
    return InvalidArgument(path + ": the plan has no input that a file of ids could fill");
  }
  ASSIGN_OR_RETURN(RandomAccessFile file, RandomAccessFile::Open(path));
  ASSIGN_OR_RETURN(const IdLayout layout, LayoutOf(file));
  if (layout.count <= facts.seq) {
    return InvalidInput(path + ": found " + std::to_string(layout.count) +
                        " ids, expected at least " + std::to_string(facts.seq + 1) +
                        " (a sequence and the label of its last id)");
  }
  auto tokens = std::make_unique<FileTokens>(std::move(file), layout);
  RETURN_IF_ERROR(CheckIds(*tokens, facts.limit));
  return std::unique_ptr<DataSource>(
      std::make_unique<PlanData>(std::move(facts), seed, std::move(tokens)));
}

}  // namespace foreshard::exec
