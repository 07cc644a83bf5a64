if(TARGET foreshard_plan_check AND TARGET foreshard_oplib)
  foreshard_test(plan_check_test
    SOURCES proto/plan_check_test.cc
    DEPS foreshard_plan_check foreshard_oplib foreshard_proto)
endif()
