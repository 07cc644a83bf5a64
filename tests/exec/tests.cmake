add_library(foreshard_sequential STATIC testing/sequential.cc)
target_link_libraries(foreshard_sequential PUBLIC foreshard_exec_calls foreshard_schema
                                           PRIVATE foreshard_options)

add_library(foreshard_kernel_cases STATIC exec/kernel_cases.cc)
target_compile_definitions(foreshard_kernel_cases PRIVATE FORESHARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(foreshard_kernel_cases PUBLIC foreshard_exec_kernels
  PRIVATE foreshard_base foreshard_options fmt::fmt nlohmann_json::nlohmann_json GTest::gtest)

foreshard_test(kernel_test
  SOURCES exec/kernel_reference_test.cc
  DEPS foreshard_kernel_cases foreshard_oplib)
