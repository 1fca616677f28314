#!/usr/bin/env bash
# C++ loads what Python saved under the names and shapes of MIR's published
# weights, strictly. MIR_PYTHON names a Python with torch and numpy. MIR_SHORT:
# three cases alone.
#
# Usage: published_weights_test.sh SCRIPT PROGRAM CASES_TSV CASE...
set -euo pipefail
if [[ -z ${MIR_PYTHON:-} ]]; then
  echo 'SKIPPED: MIR_PYTHON names no Python with torch'
  exit 0
fi
script=$1 program=$2 goldens=$(dirname "$3")
shift 3
[[ -z ${MIR_SHORT:-} ]] || set -- "${@:1:3}"
exec "$MIR_PYTHON" "$script" "$program" "$goldens" "$TEST_TMPDIR" "$@"
