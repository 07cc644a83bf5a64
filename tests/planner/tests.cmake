include(${CMAKE_CURRENT_LIST_DIR}/model_sources.cmake)

add_library(foreshard_plan_helpers STATIC testing/tree_model.cc planner/plan_helpers.cc)
target_link_libraries(foreshard_plan_helpers PUBLIC
  foreshard_planner foreshard_sim foreshard_plan_check foreshard_model_sources
  PRIVATE foreshard_options fmt::fmt GTest::gtest)

foreshard_test(planner_test
  SOURCES planner/auto_wrap_test.cc planner/checkpoint_test.cc planner/clip_test.cc planner/decisions_test.cc planner/dims_test.cc planner/eager_test.cc planner/facts_test.cc planner/fsdp1_test.cc planner/fsdp1_vs_fsdp2_test.cc
          planner/optimizer_test.cc planner/oracles_fsdp1_test.cc planner/oracles_gather_test.cc planner/oracles_reduce_test.cc planner/oracles_test.cc planner/validate_strategy_test.cc planner/validate_test.cc
          planner/gpt2_test.cc planner/hand_worked_test.cc planner/module_choice_test.cc planner/plan_test.cc planner/profile_test.cc planner/reference_table_test.cc
          planner/wire_test.cc planner/wrap_test.cc
  DEPS foreshard_plan_helpers nlohmann_json::nlohmann_json)
foreshard_test(ddp_test
  SOURCES planner/ddp_test.cc
  DEPS foreshard_plan_helpers)
foreshard_test(oplib_test
  SOURCES oplib/oplib_test.cc oplib/shape_rules_test.cc oplib/workspace_test.cc
  DEPS foreshard_plan_helpers foreshard_oplib)
