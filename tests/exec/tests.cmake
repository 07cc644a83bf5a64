foreshard_test(exec_data_test
  SOURCES exec/data_test.cc exec/weights_test.cc
  DEPS foreshard_exec_data foreshard_proto)
foreshard_test(training_data_test
  SOURCES exec/training_data_test.cc
  DEPS foreshard_exec_data foreshard_planner foreshard_model_sources)
