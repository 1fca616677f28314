#!/usr/bin/env bash
# //tools:precision_report: a newcomer's mistakes, and what it prints.
set -euo pipefail
source tests/commands/expect.sh
readonly report=$1
nifti() { python3 tests/commands/nifti_file.py "$@"; }

nifti "$work/fixed.nii.gz" 12x14x10
nifti "$work/moving.nii.gz" 12x14x10 --dtype uint8
nifti "$work/small.nii.gz" 8x8x8
pair=(--fixed "$work/fixed.nii.gz" --moving "$work/moving.nii.gz")

expect 2 'wanted --fixed' "$report" --moving "$work/moving.nii.gz"
expect 2 'did you mean ncc?' "$report" "${pair[@]}" --similarities nnc
expect 2 'unknown regularizer' "$report" "${pair[@]}" --regularizers l3
expect 2 '--amplitude' "$report" "${pair[@]}" --amplitude -1
expect 2 'minmax' "$report" "${pair[@]}" --intensity minimax
expect 10 "$work/nowhere.nii" "$report" --fixed "$work/nowhere.nii" \
  --moving "$work/moving.nii.gz"
expect 10 'different grids' "$report" --fixed "$work/fixed.nii.gz" \
  --moving "$work/small.nii.gz"

expect 10 "$work/fixed.nii.gz" "$report" "${pair[@]}" \
  --field "$work/fixed.nii.gz"

for name in ncc local_mi mir.fast_ncc bending warp 'jacobian determinant'; do
  expect 0 "$name" "$report" "${pair[@]}"
done
"$report" "${pair[@]}" --similarities ncc,ssim --regularizers l2 --json \
  >"$work/report.json"
check 'the JSON has its rows' python3 - "$work/report.json" <<'PYTHON'
import json
import sys

report = json.load(open(sys.argv[1]))
assert [row["name"] for row in report["losses"]] == ["ncc", "ssim", "l2"]
for row in report["losses"] + report["warps"]:
    for precision, most in (("fp32", 1e-5), ("fp16", 0.05), ("bf16", 0.2)):
        assert 0 <= row[precision]["value_error"] < most, (row, precision)
PYTHON
finish
