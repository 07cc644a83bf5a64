#!/usr/bin/env bash
# From a fresh checkout to a first prediction: installs, builds and asks what one training step of
# a 7B model costs on eight A100. The exit code is that of `foreshard predict`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/install_deps.sh
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake --preset release >/dev/null
cmake --build --preset release --target foreshard

command=(build/release/bin/foreshard predict --model tests/data/models/llama-2-7b.json
  --cluster dgx-a100-80g --world 8 --seq 2048 --micro-batch 1)
echo "\$ ${command[*]}"
exec "${command[@]}"
