#!/usr/bin/env bash
# A model's tiny configuration learns: two processes, a few steps on small
# synthetic volumes, in fp32 and bf16. MIR_SHORT: in bf16 alone.
set -euo pipefail
source tests/commands/expect.sh
readonly runner=$1 worker=$2

# The validation loss falls from the first to the last entry.
falls() {
  python3 - "$1/metrics.jsonl" <<'PYTHON'
import json, sys
losses = [entry["val_loss"] for entry in map(json.loads, open(sys.argv[1]))
          if "val_loss" in entry]
print("validation losses", losses)
sys.exit(0 if len(losses) >= 2 and losses[-1] < losses[0] else 1)
PYTHON
}

precisions=(fp32 bf16)
[[ -z ${MIR_SHORT:-} ]] || precisions=(bf16)
for precision in "${precisions[@]}"; do
  code=0
  "$runner" --worker "$worker" --cpu-procs 2 --threads 1 --config tiny \
    --size 16,16,16 --pairs-per-epoch 8 --val-pairs 4 --steps 20 --val-every 0 \
    --lr 2e-3 --precision "$precision" --out "$work/$precision" \
    </dev/null >"$work/log" 2>&1 || code=$?
  if [[ $code != 0 ]]; then
    cat "$work/log"
    failed=1
  else
    check "the loss falls in $precision" falls "$work/$precision"
  fi
done
finish
