#!/usr/bin/env bash
# A training from end to end through the runner: two processes, a run's folder,
# a stop on request, and a resumed end that equals an unbroken run.
set -euo pipefail
source tests/commands/expect.sh
readonly runner=$1 worker=$2

readonly common=("$runner" --worker "$worker" --cpu-procs 2 --threads 1
  --config tiny --size 16,16,16 --pairs-per-epoch 8 --val-pairs 3 --lr 1e-3)

run() {
  local out=$1
  shift
  "${common[@]}" --val-every 4 --out "$out" "$@" </dev/null >"$work/log" 2>&1 ||
    { code=$?; cat "$work/log"; return "$code"; }
}

# The numbers under a key of metrics.jsonl, a line each.
numbers() {
  python3 - "$1/metrics.jsonl" "$2" <<'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    entry = json.loads(line)
    if sys.argv[2] in entry:
        print(entry["step"], repr(entry[sys.argv[2]]))
PYTHON
}

check 'a run ends well' run "$work/whole" --steps 8 --precision bf16
for file in config.json metrics.jsonl summary.png checkpoints/latest.pth \
  checkpoints/best.pth; do
  check "$file is there" test -s "$work/whole/$file"
done
check 'each step has a line' test "$(numbers "$work/whole" loss | wc -l)" = 8
check 'each validation has a line' \
  test "$(numbers "$work/whole" val_dice | wc -l)" = 3

check 'an unbroken run' run "$work/unbroken" --steps 6
check 'a shorter run' run "$work/resumed" --steps 3
check 'its rest' run "$work/resumed" --steps 6 --resume
numbers "$work/unbroken" loss >"$work/a"
numbers "$work/resumed" loss >"$work/b"
check 'a resumed run has the losses of an unbroken one' \
  diff "$work/a" "$work/b"

# Asked to stop in the middle, it saves and ends with 75; then it goes on.
"${common[@]}" --steps 100000 --val-every 0 --out "$work/asked" \
  </dev/null >"$work/asked_log" 2>&1 &
readonly asked=$!
while [[ $(grep -c '"loss"' "$work/asked/metrics.jsonl" 2>/dev/null) -lt 3 ]]; do
  kill -0 "$asked" || { cat "$work/asked_log"; exit 1; }
  sleep 0.1
done
kill -TERM "$asked"
code=0
wait "$asked" || code=$?
check "a run that is asked to stop ends with 75, not $code" test "$code" = 75
done_steps=$(numbers "$work/asked" loss | wc -l)
check 'the rest of a stopped run' \
  run "$work/asked" --resume --steps $((done_steps + 2))
check 'it goes on where it stood' \
  test "$(numbers "$work/asked" loss | wc -l)" = $((done_steps + 2))

expect 12 'nothing to resume' run "$work/nothing" --steps 3 --resume
expect 2 'did you mean' run "$work/typo" --stepz 3
expect 2 'did you mean voxelmorph?' "$runner" --model voxelmorf

check 'fp16 on a CPU runs' run "$work/half" --steps 1 --precision fp16
check 'and says that it runs in fp32' \
  test "$(grep -c 'fp16 runs in fp32 on a CPU' "$work/log")" = 1
finish
