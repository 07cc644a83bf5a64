foreshard_test(base_test
  SOURCES proto/dtype_test.cc proto/file_test.cc proto/status_test.cc proto/text_test.cc
          proto/units_test.cc proto/units_text_test.cc
  DEPS foreshard_base)
foreshard_test(safetensors_test
  SOURCES proto/safetensors_format_test.cc proto/safetensors_test.cc
  DEPS foreshard_safetensors)
foreshard_test(plan_fields_test SOURCES proto/plan_fields_test.cc DEPS foreshard_base foreshard_schema)
foreshard_test(io_test SOURCES proto/io_test.cc DEPS foreshard_proto)
include(${CMAKE_CURRENT_LIST_DIR}/plan_check.cmake)
