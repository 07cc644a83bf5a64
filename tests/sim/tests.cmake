add_library(foreshard_tiny_plan STATIC testing/tiny_plan.cc testing/reference_schedule.cc)
target_link_libraries(foreshard_tiny_plan PUBLIC foreshard_sim PRIVATE foreshard_options)

foreshard_test(event_queue_test SOURCES sim/event_queue_test.cc DEPS foreshard_sim)
foreshard_test(engine_test
  SOURCES sim/communicator_test.cc sim/engine_test.cc sim/engine_property_test.cc
  DEPS foreshard_tiny_plan foreshard_plan_check)
foreshard_test(simulate_test SOURCES sim/simulate_test.cc sim/timeline_test.cc sim/warmup_test.cc DEPS foreshard_tiny_plan)
foreshard_test(sim_cost_test
  SOURCES sim/collective_test.cc sim/roofline_test.cc
  DEPS foreshard_sim)
foreshard_test(catalogue_test SOURCES sim/catalogue_test.cc DEPS foreshard_sim)
foreshard_test(invariants_test SOURCES sim/invariants_test.cc DEPS foreshard_tiny_plan)
