foreshard_test(plan_check_test
  SOURCES proto/plan_check_test.cc proto/plan_check_bucket_test.cc proto/plan_check_clip_test.cc proto/plan_check_event_test.cc proto/plan_check_flat_test.cc proto/plan_check_order_test.cc
    proto/plan_check_local_test.cc proto/plan_check_values_test.cc
    proto/plan_check_gather_test.cc proto/plan_check_host_test.cc proto/plan_check_reduce_test.cc
  DEPS foreshard_plan_check foreshard_oplib foreshard_proto)
include(${CMAKE_CURRENT_LIST_DIR}/../small_world/tests.cmake)
