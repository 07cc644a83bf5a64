add_executable(check_bench bench/check_bench.cc)
target_link_libraries(check_bench PRIVATE foreshard_planner foreshard_model_sources
                                          foreshard_plan_check foreshard_options
                                          benchmark::benchmark_main)
