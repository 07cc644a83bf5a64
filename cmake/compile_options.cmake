# Flags of our own targets: warnings are errors there, while libraries' headers are left alone.
add_library(foreshard_options INTERFACE)
target_include_directories(foreshard_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(foreshard_options INTERFACE -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wno-restrict
                                                   -ffp-contract=off)
if(FORESHARD_SANITIZE)
  add_compile_options(-fsanitize=${FORESHARD_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FORESHARD_SANITIZE})
endif()

# foreshard_library(NAME SOURCES a.cc b.cc DEPS x y)
function(foreshard_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE foreshard_options)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

# foreshard_test(NAME SOURCES a_test.cc DEPS x y): a GoogleTest binary, one ctest entry.
function(foreshard_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} foreshard_options GTest::gtest GTest::gmock
                                        GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    FORESHARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}" FORESHARD_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_test(NAME ${name} COMMAND ${name})
endfunction()
