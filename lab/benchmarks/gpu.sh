#!/usr/bin/env bash
# From a machine with a CUDA build of torch to the figures, in under ten minutes: gpu.sh [OUT.json] [options of gpu.py]
# PYTHON chooses the interpreter. Nothing is installed where it has the packages that the benchmark imports.
set -euo pipefail
out="$(realpath -m "${1:-gpu.json}")"
[ $# -gt 0 ] && shift
cd "$(dirname "$0")/../.."
python="$(command -v "${PYTHON:-python3}")"
export PYTHONPATH="$PWD/src:$PWD/lab/src${PYTHONPATH:+:$PYTHONPATH}"
"$python" -c 'import torch; torch.zeros(1, device="cuda")' 2>/dev/null ||
  echo "$python has no torch that can use a CUDA device: nothing can be measured." >&2
if ! "$python" -c 'import sys; sys.path.append("lab/benchmarks"); import gpu' 2>/dev/null; then
  # a folder of its own sees the packages of the machine, torch among them, and takes the others from the index
  "$python" -m venv .gpu-venv
  "$python" -c 'import sys; print(*[path for path in sys.path if path.endswith("-packages")], sep="\n")' \
    > "$(.gpu-venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/machine.pth"
  python="$PWD/.gpu-venv/bin/python"
  "$python" -m pip install --quiet '.[generate,report]' ./builtin ./documents ./lab
fi
exec "$python" lab/benchmarks/gpu.py --out "$out" "$@"
