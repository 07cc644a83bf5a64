foreshard_test(textbook_test
  SOURCES tools/invariants_test.cc tools/rules_of_thumb_test.cc tools/textbook_test.cc
  DEPS foreshard_tools foreshard_plan_helpers)
