foreshard_test(textbook_test
  SOURCES tools/rules_of_thumb_test.cc tools/textbook_test.cc
  DEPS foreshard_tools foreshard_plan_helpers)
