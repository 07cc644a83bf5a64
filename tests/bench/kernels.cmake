add_executable(kernel_bench bench/kernel_bench.cc)
target_link_libraries(kernel_bench PRIVATE foreshard_exec_kernels foreshard_options
                                           benchmark::benchmark_main)
