add_executable(sim_bench bench/sim_bench.cc)
target_link_libraries(sim_bench PRIVATE foreshard_tiny_plan foreshard_options
                                        benchmark::benchmark_main)
