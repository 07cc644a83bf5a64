foreshard_test(memory_replay_test SOURCES run/memory_replay_test.cc DEPS foreshard_run)
foreshard_test(meters_test
  SOURCES run/report_test.cc run/step_meter_test.cc run/timeline_recorder_test.cc run/unit_meter_test.cc
  DEPS foreshard_tiny_plan)
