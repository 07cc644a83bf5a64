foreshard_test(export_test
  SOURCES export/perfetto_test.cc export/timeline_test.cc export/trace_reader.cc
  DEPS foreshard_tools foreshard_plan_helpers)
