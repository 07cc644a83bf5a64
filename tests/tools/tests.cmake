foreshard_test(fold_test SOURCES tools/fold_test.cc DEPS foreshard_tools)
foreshard_test(report_join_test
  SOURCES tools/join_check_test.cc tools/report_join_test.cc tools/tolerance_test.cc
  DEPS foreshard_tools)
include(${CMAKE_CURRENT_SOURCE_DIR}/tools/textbook.cmake)
