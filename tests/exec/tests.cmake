foreshard_test(exec_data_test
  SOURCES exec/data_test.cc exec/weights_test.cc
  DEPS foreshard_exec_data foreshard_proto)
