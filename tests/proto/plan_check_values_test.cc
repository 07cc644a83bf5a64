// What a plan says for whoever runs it, each rule broken by a minimal change of the hand-written
// plan.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "proto/plan.pb.h"
#include "proto/plan_check.h"
#include "tests/proto/plan_mutation.h"

namespace foreshard {
namespace {

class BrokenValues : public ::testing::TestWithParam<Mutation> {};

TEST_P(BrokenValues, AreRefusedByTheirRule) { ExpectRefused(LocalPlan(), GetParam()); }

pb::Initial& Initial(pb::Plan& p) { return *p.mutable_parameters(1)->mutable_initial(); }
pb::RotaryFrequencies& Rotary(pb::Plan& p) {
  return *p.mutable_module_buffers(0)->mutable_rotary();
}

// As Llama 3 has it, with one number to spoil.
void ScaleRotary(pb::Plan& p) {
  Rotary(p).set_factor(8);
  Rotary(p).set_low_frequency_factor(1);
  Rotary(p).set_high_frequency_factor(4);
  Rotary(p).set_original_positions(8192);
}

const Mutation kInitial[] = {
    {"Missing", "initial", "parameter \"b\": has no initial values",
     [](pb::Plan& p) { Initial(p).Clear(); }},
    {"Negative", "initial", "negative", [](pb::Plan& p) { Initial(p).set_normal(-1); }},
    {"NegativeWidth", "initial", "negative", [](pb::Plan& p) { Initial(p).set_uniform(-0.5); }},
    {"NotANumber", "initial", "not finite", [](pb::Plan& p) { Initial(p).set_constant(NAN); }},
};
INSTANTIATE_TEST_SUITE_P(Initial, BrokenValues, ::testing::ValuesIn(kInitial), NameOf);

const Mutation kModuleBuffers[] = {
    {"Index", "index", "module buffer \"inv_freq\": buffer 14 of 14",
     [](pb::Plan& p) { p.mutable_module_buffers(0)->set_buffer(14); }},
    {"Category", "module_buffer", "buffer 10 of category WORKSPACE",
     [](pb::Plan& p) { p.mutable_module_buffers(0)->set_buffer(10); }},
    {"NotResident", "module_buffer", "buffer 8 of category MODULE_BUFFER is not resident",
     [](pb::Plan& p) {
       p.mutable_buffers(8)->set_category(pb::MODULE_BUFFER);
       p.mutable_module_buffers(0)->set_buffer(8);
     }},
    {"Shape", "module_buffer", "do not fill the 8 bytes of buffer 9",
     [](pb::Plan& p) { p.mutable_module_buffers(0)->set_shape(0, 3); }},
    {"DType", "module_buffer", "do not fill",
     [](pb::Plan& p) { p.mutable_module_buffers(0)->clear_dtype(); }},
    {"Twice", "module_buffer", "another row's",
     [](pb::Plan& p) { *p.add_module_buffers() = p.module_buffers(0); }},
    {"ReadWithoutValues", "module_buffer", "op 4 (compute cos, ): reads buffer 9",
     [](pb::Plan& p) { p.mutable_module_buffers(0)->clear_rotary(); }},
    {"ReadWithoutARow", "module_buffer", "op 4 (compute cos, ): reads buffer 9",
     [](pb::Plan& p) { p.clear_module_buffers(); }},
    {"NoTheta", "module_buffer", "not those of frequencies",
     [](pb::Plan& p) { Rotary(p).clear_theta(); }},
    {"InfiniteTheta", "module_buffer", "not those of frequencies",
     [](pb::Plan& p) { Rotary(p).set_theta(INFINITY); }},
    {"TwoDimensions", "module_buffer", "not those of frequencies",
     [](pb::Plan& p) { p.mutable_module_buffers(0)->add_shape(1); }},
    {"OtherDType", "module_buffer", "not those of frequencies",
     [](pb::Plan& p) {
       p.mutable_module_buffers(0)->set_dtype(pb::INT64);
       p.mutable_module_buffers(0)->set_shape(0, 1);
     }},
    {"NegativeFactor", "module_buffer", "not those of frequencies",
     [](pb::Plan& p) { ScaleRotary(p), Rotary(p).set_factor(-1); }},
    {"NoLowFactor", "module_buffer", "not those of frequencies",
     [](pb::Plan& p) { ScaleRotary(p), Rotary(p).clear_low_frequency_factor(); }},
    {"NoBlend", "module_buffer", "not those of frequencies",
     [](pb::Plan& p) { ScaleRotary(p), Rotary(p).set_high_frequency_factor(1); }},
    {"NoPositions", "module_buffer", "not those of frequencies",
     [](pb::Plan& p) { ScaleRotary(p), Rotary(p).clear_original_positions(); }},
};
INSTANTIATE_TEST_SUITE_P(ModuleBuffers, BrokenValues, ::testing::ValuesIn(kModuleBuffers), NameOf);

const Mutation kWorkspaces[] = {
    {"Index", "index", "workspace \"cublas\": buffer -1",
     [](pb::Plan& p) { p.mutable_workspaces(0)->set_buffer(-1); }},
    {"Category", "workspace", "buffer 9 of category MODULE_BUFFER",
     [](pb::Plan& p) { p.mutable_workspaces(0)->set_buffer(9); }},
    {"Size", "workspace", "has 8519680 bytes, on sm90 it takes 33554432",
     [](pb::Plan& p) { p.mutable_workspaces(0)->set_arch("sm90"); }},
    {"Arch", "workspace", "knows none of it on \"gfx942\"",
     [](pb::Plan& p) { p.mutable_workspaces(0)->set_arch("gfx942"); }},
    {"Library", "workspace", "workspace \"cudnn\": the op library knows none",
     [](pb::Plan& p) { p.mutable_workspaces(0)->set_library("cudnn"); }},
    {"Twice", "workspace", "another row's",
     [](pb::Plan& p) { *p.add_workspaces() = p.workspaces(0); }},
    {"Nobodys", "workspace", "buffer 10: is nobody's", [](pb::Plan& p) { p.clear_workspaces(); }},
};
INSTANTIATE_TEST_SUITE_P(Workspaces, BrokenValues, ::testing::ValuesIn(kWorkspaces), NameOf);

const Mutation kLoss[] = {
    {"Index", "index", "loss: buffer 14 of 14", [](pb::Plan& p) { p.set_losses(0, 14); }},
    {"NeverWritten", "loss", "micro-batch 0 writes its loss 0 times, expected once",
     [](pb::Plan& p) {
       p.set_losses(0, 6);
       Step(p, 7)->set_phase(pb::BACKWARD);
       Step(p, 7)->mutable_stream_wait();
       Step(p, 7)->clear_out();
     }},
    {"WrittenTwice", "loss", "micro-batch 0 writes its loss 2 times",
     [](pb::Plan& p) {
       *Step(p, 6) = *Step(p, 5);
       Step(p, 6)->clear_allocs();
     }},
    {"ManyElements", "loss", "op 4 (compute cos, ): writes buffer 11, the loss, not as one element",
     [](pb::Plan& p) { p.set_losses(0, 11); }},
    {"DType", "loss", "op 5 (compute sum_all, )",
     [](pb::Plan& p) {
       p.mutable_kernels(2)->mutable_results(0)->set_dtype(pb::INT64);
       p.mutable_buffers(12)->set_bytes(8);
     }},
    {"NoKernel", "loss", "op 3 (local_gather, <root>): writes buffer 5",
     [](pb::Plan& p) { p.set_losses(0, 5); }},
};
INSTANTIATE_TEST_SUITE_P(Loss, BrokenValues, ::testing::ValuesIn(kLoss), NameOf);

// Draws again what op 6 has drawn, or something else.
void Redraw(pb::Plan& p, pb::Phase phase, int random) {
  *Step(p, 8) = *Step(p, 6);
  Step(p, 8)->set_phase(phase);
  Step(p, 8)->set_random(random);
}

const Mutation kRandom[] = {
    {"Missing", "random", "op 6 (compute dropout_mask, ): drops and says not",
     [](pb::Plan& p) { Step(p, 6)->clear_random(); }},
    {"WithoutDropping", "random", "op 5 (compute sum_all, ): draws random numbers and does not",
     [](pb::Plan& p) { Step(p, 5)->set_random(1); }},
    {"WithProbabilityZero", "random", "draws random numbers and does not drop",
     [](pb::Plan& p) { p.mutable_kernels(3)->set_scalar(0); }},
    {"OnNoKernel", "random", "op 0 (cast_shard, <root>): draws random numbers",
     [](pb::Plan& p) { Step(p, 0)->set_random(0); }},
    {"Negative", "random", "draws the random numbers -1, which are none",
     [](pb::Plan& p) { Step(p, 6)->set_random(-1); }},
    {"TwiceInForward", "random", "draws the random numbers 7, which an op before it has drawn",
     [](pb::Plan& p) { Redraw(p, pb::FORWARD, 7); }},
    {"AloneInBackward", "random", "draws the random numbers 8, which no op before it has drawn",
     [](pb::Plan& p) { Redraw(p, pb::BACKWARD, 8); }},
};
INSTANTIATE_TEST_SUITE_P(Random, BrokenValues, ::testing::ValuesIn(kRandom), NameOf);

TEST(Values, ScaledFrequenciesAndConstantsAreAccepted) {
  pb::Plan plan = LocalPlan();
  ScaleRotary(plan);
  Initial(plan).set_constant(-1);
  plan.mutable_parameters(0)->mutable_initial()->set_uniform(0);
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Values, BackwardDrawsWhatItsForwardHasDrawn) {
  pb::Plan plan = LocalPlan();
  pb::Op& again = *Step(plan, 8);  // before the gradients are copied in
  const pb::Op reshard = again;
  again = *Step(plan, 6);
  again.set_phase(pb::BACKWARD);
  again.mutable_frees()->MergeFrom(reshard.frees());
  const Status status = CheckPlan(plan);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Values, APlanWithoutLossComputesWhatItLikes) {
  pb::Plan plan = LocalPlan();
  plan.clear_losses();
  EXPECT_TRUE(CheckPlan(plan).ok());
}

}  // namespace
}  // namespace foreshard
