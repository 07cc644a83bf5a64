#include "proto/oplib/workspace.h"

#include <gtest/gtest.h>

namespace foreshard::oplib {
namespace {

TEST(Workspace, CublasTakesMoreFromHopperOn) {
  for (const char* arch : {"sm70", "sm80", "sm89"}) {
    EXPECT_EQ(WorkspaceBytes("cublas", arch), 2 * (4 << 20) + 8 * (16 << 10)) << arch;
  }
  for (const char* arch : {"sm90", "sm100", "sm120"}) {
    EXPECT_EQ(WorkspaceBytes("cublas", arch), 32 << 20) << arch;
  }
}

TEST(Workspace, IsUnknownForOtherLibrariesAndArchitectures) {
  EXPECT_FALSE(WorkspaceBytes("cudnn", "sm80"));
  for (const char* arch : {"", "sm", "sm8", "80", "sm8x", "gfx942", "sm1000", "sm-1", "sm00"}) {
    EXPECT_FALSE(WorkspaceBytes("cublas", arch)) << arch;
  }
}

}  // namespace
}  // namespace foreshard::oplib
