# Benchmarks are built with the tests and run by hand, never by ctest; under a sanitizer they would
# measure the sanitizer.
if(FORESHARD_SANITIZE)
  return()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/check.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/kernels.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/sim.cmake)

add_executable(planner_bench bench/planner_bench.cc)
target_link_libraries(planner_bench PRIVATE
  foreshard_planner foreshard_model_sources foreshard_plan_check foreshard_sim foreshard_options
  benchmark::benchmark_main)
