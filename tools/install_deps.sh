#!/usr/bin/env bash
# Installs what Foreshard needs on Debian 12; with --dev also what its checks need.
# Quick, and without root, when everything is there.
set -euo pipefail

usage="usage: install_deps.sh [--dev]"
packages=(
  g++ cmake ninja-build ccache pkg-config git python3
  protobuf-compiler libprotobuf-dev libboost-graph-dev libfmt-dev libcli11-dev nlohmann-json3-dev
  libopenblas-pthread-dev librandom123-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
for argument in "$@"; do
  case "$argument" in
    --dev) packages+=(clang clang-format clang-tidy libclang-rt-14-dev) ;;
    --help | -h) echo "$usage"; exit 0 ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps.sh: no dpkg here; install the counterparts of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state="$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)"
  [[ "$state" == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install_deps.sh: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
((EUID == 0)) || as_root=(sudo)
echo "install_deps.sh: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}"
