// torch.utils.checkpoint on the eager emulation. Without reentrance, the nodes of a region keep
// nothing: when the first of them runs, the body runs again, recording a graph of its own that dies
// at once, and what its nodes would save goes to the nodes of the first run, place by place. By
// default it stops as soon as all of that is there. With reentrance, the region is one node; its
// backward runs the body again and then a backward of its own.
#include <algorithm>
#include <utility>

#include "planner/eager/eager.h"
#include "proto/oplib/oplib.h"

namespace foreshard {
namespace {

constexpr std::string_view kMm = "mm";

}  // namespace

// ---- forward

std::vector<Tensor> Eager::Checkpoint(const CheckpointRule& rule, Body body,
                                      std::vector<Tensor> inputs) {
  CHECK(region_ < 0 && !IsRecomputing()) << "checkpointed regions do not nest";
  const int id = static_cast<int>(regions_.size());
  Region& region = regions_.emplace_back();
  region.rule = rule;
  region.body = std::move(body);
  region.inputs = std::move(inputs);
  region.first_draw = draws_;
  if (rule.reentrant) return CheckpointReentrant(id, region.inputs);
  region_ = id;
  std::vector<Tensor> outputs = region.body(region.inputs);
  region_ = -1;
  if (region.nodes == 0) region = {};
  return outputs;
}

void Eager::Save(Node& node, std::vector<Tensor> tensors) {
  if (replayed_ >= 0 && !regions_[replayed_].rule.reentrant) {
    for (const Tensor& t : tensors) {
      if (t) regions_[replayed_].saved.push_back(t);
    }
  }
  if (region_ < 0) {
    node.saved = std::move(tensors);
    return;
  }
  Region& region = regions_[region_];
  bool own_result = false;  // the operator has to run before it is there
  for (const Tensor& t : tensors) {
    node.places.push_back(t ? region.places++ : -1);
    if (t) own_result |= storages_[t->storage].written_by == launches_;
  }
  node.region = region_;
  ++region.nodes;
  region.needed_launches = region.launches - (own_result ? 0 : 1);
}

// ---- launches

bool Eager::Keeps(Region& region, std::string_view kernel) const {
  const CheckpointRule& rule = region.rule;
  if (rule.kept.empty()) return false;
  const std::string_view name = oplib::Find(kernel)->aten;
  if (std::find(rule.kept.begin(), rule.kept.end(), name) == rule.kept.end()) return false;
  return name != kMm || !rule.every_second_mm || ++region.mms % 2 == 1;
}

// Takes the results of the forward instead of computing them again.
void Eager::TakeKept(Region& region, std::initializer_list<const Tensor*> out) {
  CHECK(!region.kept.empty()) << "a recomputation keeps other results than its forward";
  std::vector<Tensor> results = std::move(region.kept.front());
  region.kept.pop_front();
  size_t i = 0;
  for (const Tensor* t : out) {
    TensorRecord& record = tensors_[t->id_];
    const int storage = results[i++]->storage;
    --storages_[record.storage].references;
    ++storages_[storage].references;
    record.storage = storage;
  }
}

// False when nothing is to be put on the stream.
bool Eager::StartLaunch(std::string_view kernel, std::initializer_list<const Tensor*> out) {
  ++launches_;
  if (replayed_ >= 0) {
    Region& region = regions_[replayed_];
    const bool stops = !region.rule.reentrant && region.rule.early_stop;
    if (stops && region.launches == region.needed_launches) return false;
    ++region.launches;
    if (!Keeps(region, kernel)) return true;
    TakeKept(region, out);
    return false;
  }
  if (region_ < 0) return true;
  Region& region = regions_[region_];
  ++region.launches;
  if (!Keeps(region, kernel)) return true;
  std::vector<Tensor>& results = region.kept.emplace_back();
  for (const Tensor* t : out) results.push_back(View(*t, t->shape(), (*t)->strides, 0));
  return true;
}

// ---- backward

bool Eager::MayStop() const {
  if (replayed_ < 0) return false;
  const Region& region = regions_[replayed_];
  return !region.rule.reentrant && region.rule.early_stop &&
         static_cast<int>(region.saved.size()) == region.places;
}

void Eager::Unpack(Node& node) {
  Region& region = regions_[node.region];
  if (!region.recomputed) Recompute(node.region);
  for (const int place : node.places) {
    node.saved.push_back(place < 0 ? Tensor() : std::move(region.saved[place]));
  }
  builder_.SetModule(node.module);
}

// Runs the body of a region again, with the random numbers of its forward.
std::vector<Tensor> Eager::Replay(int id, const std::vector<Tensor>& inputs) {
  Region& region = regions_[id];
  region.launches = 0;
  region.mms = 0;
  const int draws = std::exchange(draws_, region.first_draw);
  replayed_ = id;
  std::vector<Tensor> outputs = region.body(inputs);
  replayed_ = -1;
  draws_ = draws;
  return outputs;
}

void Eager::Recompute(int id) {
  Region& region = regions_[id];
  const size_t from = nodes_.size();
  Replay(id, region.inputs);
  CHECK_EQ(static_cast<int>(region.saved.size()), region.places);
  ForgetNodes(from, /*ran=*/false);
  region.recomputed = true;
}

// A node lets go of what it saved; the last of a region of all that the region has held.
void Eager::ReleaseNode(Node& node) {
  node.saved.clear();
  if (node.places.empty()) return;
  node.places.clear();
  Region& region = regions_[node.region];
  if (--region.nodes == 0) region = {};
}

void Eager::ForgetNodes(size_t from, bool ran) {
  while (nodes_.size() > from) {
    if (!ran) {
      for (const Edge& edge : nodes_.back().edges) {
        if (edge.parameter >= 0) --leaves_[edge.parameter].uses;
      }
    }
    nodes_.pop_back();
  }
}

// ---- reentrant

std::vector<Tensor> Eager::CheckpointReentrant(int id, const std::vector<Tensor>& inputs) {
  records_ = false;
  std::vector<Tensor> outputs = regions_[id].body(inputs);
  records_ = true;
  std::vector<const Tensor*> in;
  std::vector<Tensor*> out;
  for (const Tensor& t : inputs) in.push_back(&t);
  for (Tensor& t : outputs) out.push_back(&t);
  if (Node* node = Record(ReentrantBackward, in, out)) {
    node->number = id;
    node->saved = inputs;
  }
  regions_[id].inputs.clear();
  return outputs;
}

void Eager::ReentrantBackward(Eager& e, Node& node, std::span<Tensor> in, std::span<Tensor> out) {
  const size_t from = e.nodes_.size();
  // The detached inputs are the outputs of a node that stays behind to collect their gradients.
  std::vector<Tensor> inputs;
  std::vector<const Tensor*> sources;
  std::vector<Tensor*> detached;
  for (const Tensor& t : node.saved) inputs.push_back(e.View(t, t.shape(), t->strides, t->offset));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!node.NeedsGrad(static_cast<int>(i))) continue;
    sources.push_back(&node.saved[i]);
    detached.push_back(&inputs[i]);
  }
  e.Record(nullptr, sources, detached);
  std::vector<Tensor> outputs = e.Replay(static_cast<int>(node.number), inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (in[i]) e.nodes_[outputs[i]->node].gradients[outputs[i]->output] = in[i];
  }
  e.RunNodes(static_cast<int>(e.nodes_.size()) - 1, static_cast<int>(from) + 1, *e.hooks_);
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.NeedsGrad(static_cast<int>(i))) out[i] = std::move(e.nodes_[from].gradients[next++]);
  }
  e.ForgetNodes(from, /*ran=*/true);
  e.builder_.SetModule(node.module);
}

}  // namespace foreshard
