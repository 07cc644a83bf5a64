foreshard_test(cli_test
  SOURCES e2e/cli_error_test.cc e2e/cli_test.cc e2e/decisions_test.cc e2e/explain_test.cc e2e/process.cc e2e/readme_test.cc
          e2e/strategy_test.cc e2e/table_test.cc
  DEPS foreshard_base nlohmann_json::nlohmann_json fmt::fmt)
add_dependencies(cli_test foreshard)
foreshard_test(compare_test
  SOURCES e2e/compare_test.cc e2e/process.cc
  DEPS foreshard_proto nlohmann_json::nlohmann_json fmt::fmt)
add_dependencies(compare_test foreshard)
foreshard_test(run_test
  SOURCES e2e/run_test.cc e2e/process.cc
  DEPS foreshard_proto foreshard_safetensors nlohmann_json::nlohmann_json fmt::fmt)
add_dependencies(run_test foreshard)
