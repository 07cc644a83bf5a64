add_library(foreshard_small_world STATIC small_world/world.cc small_world/moves.cc
            small_world/mutants.cc)
target_link_libraries(foreshard_small_world PUBLIC foreshard_planner foreshard_model_sources
                      PRIVATE foreshard_options fmt::fmt)
foreshard_test(small_world_test
  SOURCES small_world/small_world_test.cc
  DEPS foreshard_small_world foreshard_plan_check)
foreshard_test(run_memory_test
  SOURCES small_world/run_memory_test.cc
  DEPS foreshard_small_world foreshard_exec foreshard_plan_check foreshard_sim)
add_test(NAME run_memory_sweep COMMAND run_memory_test)
set_tests_properties(run_memory_sweep PROPERTIES LABELS sweep
                     ENVIRONMENT FORESHARD_SMALL_RUNS=all)
foreshard_test(one_rank_test
  SOURCES small_world/one_rank_test.cc
  DEPS foreshard_small_world foreshard_one_rank)

add_test(NAME one_rank_sweep COMMAND one_rank_test --gtest_filter=*OneRankSmallWorld.*)
set_tests_properties(one_rank_sweep PROPERTIES LABELS sweep
                     ENVIRONMENT FORESHARD_SMALL_RUNS=all)

add_executable(run_plan small_world/run_plan.cc)
target_link_libraries(run_plan PRIVATE foreshard_exec foreshard_proto foreshard_options fmt::fmt)
foreshard_test(run_mutants_test
  SOURCES small_world/run_mutants_test.cc
  DEPS foreshard_small_world foreshard_plan_check foreshard_proto)
add_dependencies(run_mutants_test run_plan)
foreshard_test(limiter_test
  SOURCES small_world/limiter_test.cc
  DEPS foreshard_small_world foreshard_exec foreshard_sim)
