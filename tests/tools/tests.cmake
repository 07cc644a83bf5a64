foreshard_test(fold_test SOURCES tools/fold_test.cc DEPS foreshard_tools)
include(${CMAKE_CURRENT_SOURCE_DIR}/tools/textbook.cmake)
