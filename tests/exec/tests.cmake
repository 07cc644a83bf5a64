foreshard_test(exec_data_test
  SOURCES exec/data_test.cc exec/weights_test.cc
  DEPS foreshard_exec_data foreshard_proto)
foreshard_test(training_data_test
  SOURCES exec/training_data_test.cc
  DEPS foreshard_exec_data foreshard_planner foreshard_model_sources)

add_library(foreshard_sequential STATIC testing/sequential.cc)
target_link_libraries(foreshard_sequential PUBLIC foreshard_exec_calls foreshard_schema
                                           PRIVATE foreshard_options)

add_library(foreshard_kernel_cases STATIC exec/kernel_cases.cc)
target_compile_definitions(foreshard_kernel_cases PRIVATE FORESHARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(foreshard_kernel_cases PUBLIC foreshard_exec_kernels
  PRIVATE foreshard_base foreshard_options fmt::fmt nlohmann_json::nlohmann_json GTest::gtest)

foreshard_test(kernel_test
  SOURCES exec/dropout_test.cc exec/kernel_blocks_test.cc exec/kernel_reference_test.cc
          exec/vector_math_test.cc
  DEPS foreshard_kernel_cases foreshard_oplib)
target_compile_definitions(kernel_test PRIVATE KERNEL_ISA=baseline)  # of the headers it tests

# Alone, as it replaces malloc.
foreshard_test(kernel_memory_test SOURCES exec/kernel_memory_test.cc DEPS foreshard_kernel_cases)

foreshard_test(gradient_test
  SOURCES exec/gradient_test.cc exec/gradient_check.cc
  DEPS foreshard_sequential foreshard_planner foreshard_oplib)

add_library(foreshard_one_rank STATIC testing/one_rank.cc testing/one_rank_reduction.cc)
target_link_libraries(foreshard_one_rank PUBLIC foreshard_sequential foreshard_exec
                                         PRIVATE foreshard_options)

foreshard_test(prepare_test SOURCES exec/prepare_test.cc DEPS foreshard_small_world foreshard_exec)
foreshard_test(moves_test
  SOURCES exec/collective_test.cc exec/flat_test.cc exec/moves_test.cc
  DEPS foreshard_exec foreshard_proto)
foreshard_test(update_test SOURCES exec/update_test.cc DEPS foreshard_exec foreshard_safetensors)
foreshard_test(failure_test SOURCES exec/failure_test.cc DEPS foreshard_small_world foreshard_exec)
foreshard_test(device_test
  SOURCES exec/device_test.cc exec/events_test.cc
  DEPS foreshard_small_world foreshard_exec)
foreshard_test(training_test
  SOURCES exec/training_test.cc
  DEPS foreshard_exec foreshard_planner foreshard_model_sources)
