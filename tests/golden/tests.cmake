# Its own main(), since the cases are found at run time.
if(TARGET foreshard_planner AND TARGET foreshard_plan_check)
  add_executable(golden_test
    golden/golden_test.cc golden/golden_case.cc golden/case_request.cc golden/spec_request.cc
    golden/golden_compare.cc golden/golden_alive.cc golden/golden_memory.cc golden/golden_record.cc
    golden/trace_record.cc golden/whole_record.cc golden/trace_text.cc
    golden/plan_record.cc golden/plan_events.cc golden/plan_alive.cc golden/plan_recompute.cc
    golden/wrap_results.cc)
  target_link_libraries(golden_test PRIVATE
    foreshard_planner foreshard_model_sources foreshard_plan_check foreshard_sim foreshard_options
    fmt::fmt GTest::gtest)
  target_compile_definitions(golden_test PRIVATE FORESHARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME golden_test COMMAND golden_test)
  set_tests_properties(golden_test PROPERTIES LABELS "golden")
endif()

foreshard_test(neutral_tree_test
  SOURCES golden/neutral_tree_test.cc
  DEPS foreshard_model_sources)
