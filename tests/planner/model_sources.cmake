foreshard_test(model_sources_test
  SOURCES planner/hf_config_test.cc planner/llama_test.cc planner/model_source_test.cc
  DEPS foreshard_model_sources)
