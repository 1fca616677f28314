#!/usr/bin/env bash
# Trainings move between Python and C++. MIR_PYTHON names a Python with torch.
set -euo pipefail
if [[ -z ${MIR_PYTHON:-} ]]; then
  echo 'SKIPPED: MIR_PYTHON names no Python with torch'
  exit 0
fi
exec "$MIR_PYTHON" "$1" "$2" "$3" "$TEST_TMPDIR"
