// docs/plan-fields.md says of every field of a plan who reads it, and of nothing else.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "proto/base/file.h"
#include "proto/plan.pb.h"

namespace foreshard {
namespace {

std::set<std::string> FieldsOfTheSchema() {
  std::set<std::string> fields;
  const google::protobuf::FileDescriptor& file = *pb::Plan::descriptor()->file();
  for (int m = 0; m < file.message_type_count(); ++m) {
    const google::protobuf::Descriptor& message = *file.message_type(m);
    for (int f = 0; f < message.field_count(); ++f) {
      fields.insert(message.name() + "." + message.field(f)->name());
    }
  }
  return fields;
}

std::set<std::string> FieldsOfThePage() {
  const std::string page = ReadFile(FORESHARD_SOURCE_DIR "/docs/plan-fields.md").value();
  const std::regex field("`([A-Z][A-Za-z]*[.][a-z_0-9]+)`");
  std::set<std::string> fields;
  for (std::sregex_iterator i(page.begin(), page.end(), field), end; i != end; ++i) {
    EXPECT_TRUE(fields.insert((*i)[1]).second) << (*i)[1] << " stands there twice";
  }
  return fields;
}

TEST(PlanFields, ThePageListsEveryFieldOnce) {
  EXPECT_THAT(FieldsOfThePage(), testing::ContainerEq(FieldsOfTheSchema()));
  EXPECT_GT(FieldsOfTheSchema().size(), 150u);
}

}  // namespace
}  // namespace foreshard
