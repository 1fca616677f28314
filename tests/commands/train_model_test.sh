#!/usr/bin/env bash
# A model's tiny configuration trains on two processes, in float32 and in
# bfloat16: every loss is finite, and they fall. MIR_SHORT: in bfloat16 alone.
#
# Usage: train_model_test.sh RUNNER WORKER SIDE
set -euo pipefail
source tests/commands/expect.sh
readonly runner=$1 worker=$2 side=$3

falls() {
  python3 - "$1/metrics.jsonl" <<'PYTHON'
import json, math, sys
entries = [json.loads(line) for line in open(sys.argv[1])]
losses = [entry["loss"] for entry in entries if "loss" in entry]
print("losses:", losses)
assert len(losses) == 12 and all(math.isfinite(loss) for loss in losses)
assert sum(losses[-4:]) < sum(losses[:4]), "the loss does not fall"
PYTHON
}

precisions=(fp32 bf16)
[[ -z ${MIR_SHORT:-} ]] || precisions=(bf16)
for precision in "${precisions[@]}"; do
  out=$work/$precision
  if ! "$runner" --worker "$worker" --cpu-procs 2 --threads 1 --config tiny \
    --size "$side,$side,$side" --pairs-per-epoch 2 --val-pairs 0 --lr 2e-3 \
    --steps 12 --val-every 0 --precision "$precision" --out "$out" \
    </dev/null >"$work/log" 2>&1; then
    cat "$work/log"
    failed=1
    continue
  fi
  check "the loss falls in $precision" falls "$out"
done
finish
