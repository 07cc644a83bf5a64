#!/usr/bin/env bash
# From a fresh checkout to a test result: installs, builds and runs the default suite.
#   tools/test.sh [PRESET]    dev (default), release, asan or tsan
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="${1:-dev}"
tools/install_deps.sh
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake --preset "$preset"
cmake --build --preset "$preset"
# The presets leave out what is labelled `sweep`.
ctest --preset "$preset" -j"$(nproc)"
