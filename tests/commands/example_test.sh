#!/usr/bin/env bash
# examples/train_multi_gpu_amp trains alike alone, with two replicas in one
# process, and with two ranks, and each of its options does something.
set -euo pipefail
source tests/commands/expect.sh
readonly example=$PWD/$1 runner=$PWD/$2

alone() { "$example" --epochs=1 --save="$work/alone.pth" "$@"; }
# Half of the batch on each of two ranks.
ranks() {
  BUILD_WORKING_DIRECTORY=$work "$runner" --worker "$example" --cpu-procs 2 \
    --threads 1 -- --epochs=1 --batch_size=1 "$@" --save="$work/ranks.pth"
}
# The loss and Dice of the epoch, as far as rounding leaves them alike.
numbers() {
  grep 'Dice' | sed -E 's/.*(loss -?[0-9]+\.[0-9]{3})[0-9]*(, Dice [0-9.]{5}).*/\1\2/'
}

expected=$(alone | numbers)
echo "$expected"
check 'an epoch has numbers' test -n "$expected"
check 'the weights are there' test -s "$work/alone.pth"
check 'two replicas train alike' \
  test "$(alone --mode=dp | numbers)" = "$expected"
check 'two ranks train alike' test "$(ranks | numbers)" = "$expected"
check 'their weights are there' test -s "$work/ranks.pth"
check 'a static graph and views train alike' test "$(ranks --static_graph \
  --find_unused_parameters=false --gradient_as_bucket_view | numbers)" = \
  "$expected"
expect 0 'Dice' ranks --compression=bf16 --precision=bf16 --accumulate=2
expect 0 'warning: ' alone --precision=fp16
expect 2 'fp8' alone --precision=fp8
expect 2 'int8' alone --compression=int8
expect 2 'ddp or dp' alone --mode=dpp
expect 2 'wants 1 to 8' alone --accumulate=9
# 8 passes make two steps of 3; the last two passes change nothing.
expect 0 'Dice' alone --accumulate=3
expect 2 'one process' ranks --mode=dp
finish
