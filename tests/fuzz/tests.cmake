# Fuzz targets: tests/fuzz/NAME_fuzz.cc over tests/fuzz/corpus/NAME. The `fuzz` preset (clang) links
# libFuzzer; every other build links a driver that replays the corpus and some seeded mutants, which
# is what ctest runs.
if(FORESHARD_SANITIZE MATCHES "fuzzer-no-link")
  set(fuzz_driver "")
  set(fuzz_link -fsanitize=fuzzer)
else()
  set(fuzz_driver fuzz/driver_main.cc fuzz/mutate.cc)
  set(fuzz_link "")
endif()

add_custom_target(fuzz_targets)

# foreshard_fuzz(NAME RUNS mutants-under-ctest DEPS x y)
function(foreshard_fuzz name)
  cmake_parse_arguments(ARG "" "RUNS" "DEPS" ${ARGN})
  add_executable(${name}_fuzz fuzz/${name}_fuzz.cc ${fuzz_driver})
  target_link_libraries(${name}_fuzz PRIVATE ${ARG_DEPS} foreshard_options)
  target_link_options(${name}_fuzz PRIVATE ${fuzz_link})
  add_dependencies(fuzz_targets ${name}_fuzz)
  if(fuzz_driver)
    add_test(NAME ${name}_fuzz
             COMMAND ${name}_fuzz -runs=${ARG_RUNS} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
    set_tests_properties(${name}_fuzz PROPERTIES LABELS "fuzz")
  endif()
endfunction()

foreshard_fuzz(hf_config RUNS 3000 DEPS foreshard_model_sources)
foreshard_fuzz(neutral_tree RUNS 2000
  DEPS foreshard_planner foreshard_plan_check foreshard_model_sources)
foreshard_fuzz(native_model RUNS 2000
  DEPS foreshard_planner foreshard_plan_check foreshard_model_sources)
foreshard_fuzz(cluster RUNS 3000 DEPS foreshard_sim)
foreshard_fuzz(plan RUNS 2000 DEPS foreshard_plan_check foreshard_sim)
foreshard_fuzz(safetensors RUNS 3000 DEPS foreshard_safetensors)
