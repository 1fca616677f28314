#!/usr/bin/env bash
# The checks of a GPU, made on the CPU; the bundle for another machine, and what
# it says where there is no GPU.
set -euo pipefail
source tests/commands/expect.sh
readonly gpu_check=$1 runner=$2 bundle=$3 worker=$4 script=$5
export CUDA_VISIBLE_DEVICES=

expect 3 'CUDA' "$gpu_check"
expect 2 "--only has no part 'warps'" "$gpu_check" --device cpu --only warps
expect 2 '--size wants three sizes' "$gpu_check" --device cpu --size 96
expect 2 '--device wants cuda or cpu' "$gpu_check" --device gpu
expect 3 'cannot write /nowhere/a.json' "$gpu_check" --device cpu \
  --only scaler --json /nowhere/a.json

expect 0 'ok  loss         ncc' "$gpu_check" --device cpu \
  --only losses,geometry,models,scaler --json "$work/checks.json"
expect 0 'voxelmorph                   bf16' "$gpu_check" --device cpu \
  --only training --config tiny --size 32,32,32 --steps 1 \
  --json "$work/training.json"
expect 0 'ok  ranks        gradient_over_2' "$runner" --cpu-procs 2 \
  --worker "$gpu_check" --device cpu --json "$work/ranks.json"

complete() {
  python3 - "$work" <<'PYTHON'
import json, sys
def read(name):
    return json.load(open(f"{sys.argv[1]}/{name}.json"))
checks = read("checks")["checks"]
assert all(check["passed"] for check in checks)
groups = {check["group"] for check in checks}
assert groups == {"loss", "regularizer", "geometry", "model", "scaler"}, groups
kinds = {check["precision"] for check in checks if check["group"] == "model"}
assert kinds == {"fp32", "fp16", "bf16"}, kinds
# The CPU has no fp16 training.
costs = read("training")["training"]
assert {cost["precision"] for cost in costs} == {"fp32", "bf16"}
assert not any(cost["fault"] for cost in costs), costs
assert all(cost["milliseconds"] > 0 for cost in costs)
ranks = read("ranks")
assert ranks["ranks"] == 2 and len(ranks["checks"]) == 2, ranks
PYTHON
}
check 'the results are complete' complete

expect 2 'wanted the folder to make' "$bundle" "$gpu_check" "$runner" \
  "$worker" "$script"
expect 3 'built without CUDA' "$bundle" "$gpu_check" "$runner" "$worker" \
  "$script" "$work/bundle"
finish
