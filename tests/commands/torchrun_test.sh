#!/usr/bin/env bash
# Our training program under PyTorch's own torchrun, and a Python program that
# keeps torchrun's contract under our runner.
set -euo pipefail
source tests/commands/expect.sh
readonly runner=$PWD/$1 worker=$PWD/$2 other=$PWD/$3
if [[ -z ${MIR_PYTHON:-} ]]; then
  echo 'SKIPPED: MIR_PYTHON names no Python with torch'
  exit 0
fi
readonly python=$MIR_PYTHON
export OMP_NUM_THREADS=1

readonly options=(--device cpu --threads 1 --config tiny --size 16,16,16
  --pairs-per-epoch 8 --val-pairs 0 --lr 1e-3 --val-every 2)

torchrun() { timeout 300 "$python" -m torch.distributed.run "$@"; }
# A port that was free a moment ago.
free_port() {
  python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}
curve() {
  python3 - "$1/metrics.jsonl" <<'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    entry = json.loads(line)
    if "loss" in entry:
        print(entry["step"], repr(entry["loss"]))
PYTHON
}
same_curve() {
  diff <(curve "$work/ours") <(curve "$work/$1")
}
logged() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; return 1; }; }

check 'under our runner' logged "$runner" --worker "$worker" --cpu-procs 2 \
  --out "$work/ours" "${options[@]}" --steps 6
check 'it has six steps' test "$(curve "$work/ours" | wc -l)" = 6

check 'torchrun --standalone' logged torchrun --standalone --nproc-per-node 2 \
  --no-python "$worker" "${options[@]}" --steps 6 --out "$work/standalone"
check 'takes the same steps' same_curve standalone

check 'torchrun, static' logged torchrun --nproc-per-node 2 --master-addr \
  127.0.0.1 --master-port "$(free_port)" --no-python "$worker" \
  "${options[@]}" --steps 6 --out "$work/static"
check 'takes the same steps' same_curve static

# A worker that its launcher starts anew: the first time rank 1 dies once the
# run has saved step 2.
cat >"$work/dies_once.sh" <<'SCRIPT'
#!/bin/bash
if [[ $RANK = 1 && ! -e $DIES_ONCE ]]; then
  touch "$DIES_ONCE"
  "$@" &
  until [[ $(grep -c '"step":[2-9],' "$OUT/metrics.jsonl" 2>/dev/null) -ge 2 ]]
  do sleep 0.02; done
  kill -KILL $!
  exit 9
fi
exec "$@"
SCRIPT
chmod +x "$work/dies_once.sh"
export DIES_ONCE OUT

OUT=$work/again DIES_ONCE=$work/again_died
check 'torchrun --max-restarts 1' logged torchrun --nproc-per-node 2 \
  --master-addr 127.0.0.1 --master-port "$(free_port)" --max-restarts 1 \
  --no-python "$work/dies_once.sh" "$worker" "${options[@]}" --steps 200 \
  --out "$work/again"
check 'one died' test -e "$work/again_died"
check 'all steps were taken' test "$(curve "$work/again" | wc -l)" = 200

# Two agents on this machine, each with one process; each counts its own
# restarts. An id tells that it is the same run.
OUT=$work/agents DIES_ONCE=$work/agents_died
port=$(free_port)
agent() {
  torchrun --nnodes 2 --node-rank "$1" --nproc-per-node 1 --rdzv-backend c10d \
    --rdzv-endpoint "127.0.0.1:$port" --rdzv-id "agents$port" \
    --max-restarts 1 --no-python "$work/dies_once.sh" "$worker" \
    "${options[@]}" --steps 200 --out "$work/agents" >"$work/agent$1" 2>&1
}
agent 0 &
first=$!
code=0
agent 1 || code=$?
wait "$first" || code=$?
check 'two agents train' test "$code" = 0 ||
  tail -n 40 "$work/agent0" "$work/agent1"
check 'all their steps were taken' test "$(curve "$work/agents" | wc -l)" = 200

# And the other way round.
mkdir "$work/python"
check 'a Python program under our runner' logged "$runner" --worker "$python" \
  --cpu-procs 2 --out "$work/python" -- "$other"
expect 0 '3.0 of 2, restart 0' cat "$work/python/rank-1.txt"
mkdir "$work/python_again"
check 'it is started again' logged "$runner" --worker "$python" --cpu-procs 2 \
  --max-restarts 1 --out "$work/python_again" -- "$other" --fail-once
expect 0 '3.0 of 2, restart 1' cat "$work/python_again/rank-0.txt"
finish
