#!/usr/bin/env bash
# Python opens what a training saved. MIR_PYTHON names a Python with torch.
set -euo pipefail
source tests/commands/expect.sh
readonly train=$1
if [[ -z ${MIR_PYTHON:-} ]]; then
  echo 'SKIPPED: MIR_PYTHON names no Python with torch'
  exit 0
fi
check 'a training of two steps' "$train" --device cpu --config tiny \
  --size 16,16,16 --steps 2 --val-pairs 0 --out "$work/run"
expect 0 opened "$MIR_PYTHON" tests/commands/open_in_python.py \
  "$work/run/checkpoints/latest.pth"
finish
