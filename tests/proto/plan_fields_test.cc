// docs/plan-fields.md says of every field of a plan who reads it, and of nothing else.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cctype>
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

// Everything in back quotes that is "Message.field".
std::set<std::string> FieldsOfThePage() {
  const std::string page = ReadFile(FORESHARD_SOURCE_DIR "/docs/plan-fields.md").value();
  std::set<std::string> fields;
  for (size_t begin = page.find('`'); begin != std::string::npos;) {
    const size_t end = page.find('`', begin + 1);
    if (end == std::string::npos) break;
    const std::string word = page.substr(begin + 1, end - begin - 1);
    const bool is_field = std::isupper(static_cast<unsigned char>(word[0])) != 0 &&
                          word.find('.') != std::string::npos;
    if (is_field && !fields.insert(word).second) ADD_FAILURE() << word << " stands there twice";
    begin = page.find('`', end + 1);
  }
  return fields;
}

TEST(PlanFields, ThePageListsEveryFieldOnce) {
  EXPECT_THAT(FieldsOfThePage(), testing::ContainerEq(FieldsOfTheSchema()));
  EXPECT_GT(FieldsOfTheSchema().size(), 150u);
}

}  // namespace
}  // namespace foreshard
