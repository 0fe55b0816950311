#!/usr/bin/env bash
# Install the wheel for a Python into a clean environment in which there is no compiler, and try it.
# Usage: try_wheel.sh PYTHON FOLDER
set -euo pipefail
python=$1 folder=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch/venv"
for name in cc c++ gcc g++ clang clang++ cmake ninja; do
    printf '#!/bin/sh\necho "there is no compiler here" >&2\nexit 1\n' >"$scratch/venv/bin/$name"
    chmod +x "$scratch/venv/bin/$name"
done
export PATH="$scratch/venv/bin:$PATH" CC="$scratch/venv/bin/cc" CXX="$scratch/venv/bin/c++"
cd "$scratch"
version=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
wheel=$(ls -t "$folder"/driftree-*-"$version"-*.whl | head -1)
python -m pip install -qq --disable-pip-version-check --only-binary :all: "$wheel"
python "$here/try_model.py" >"$scratch/said.txt" || { cat "$scratch/said.txt"; exit 1; }
echo "$(basename "$wheel"): installed and tried without a compiler"
