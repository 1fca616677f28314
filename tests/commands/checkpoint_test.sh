#!/usr/bin/env bash
# //tools:checkpoint on files as users have them: what it says of each, what it
# writes, and one clear line for each mistake.
set -euo pipefail
source tests/commands/expect.sh
readonly checkpoint=$1 train=$2
readonly files=tests/checkpoints

# says CODE TEXT ARGUMENT...: one line of error, where it is one.
says() {
  local code=$1 text=$2
  shift 2
  expect "$code" "$text" "$checkpoint" "$@"
  local errors
  errors=$("$checkpoint" "$@" 2>&1 >/dev/null </dev/null | wc -l) || true
  if ((code != 0 && errors != 1)); then
    printf 'FAILED %s\n  wanted one line of error, got %s\n' "$*" "$errors"
    failed=1
  fi
}

# json QUERY ARGUMENT...: a Python expression of the report `r` is true.
json() {
  local -r query=$1
  shift
  check "$query of $*" python3 -c '
import json, subprocess, sys
query, *command = sys.argv[1:]
out = subprocess.run(command + ["--json"], stdout=subprocess.PIPE,
                     stderr=subprocess.DEVNULL).stdout
r = json.loads(out)
sys.exit(0 if eval(f"({query})") else f"{query} is false of {r}")' \
    "$query" "$checkpoint" "$@"
}

# Mistakes.
says 2 'wanted a command: inspect, diff, convert, check'
says 2 'did you mean inspect?' inspct "$files/half.pth"
says 2 'inspect wants one file, got 0' inspect
says 2 'diff wants two files, got 1' diff "$files/half.pth"
says 2 'unknown option --jsn; did you mean --json?' inspect --jsn x
says 2 '--dtype means nothing to inspect' inspect "$files/half.pth" --dtype x
says 2 'go with convert --for-mir' convert "$files/half.pth" "$work/x.pth" \
  --model voxelmorph
says 2 '--dtype fp16 is none of float16' convert "$files/half.pth" \
  "$work/x.pth" --dtype fp16
says 2 'gives the format: .safetensors' convert "$files/half.pth" "$work/x.bin"
says 2 'does not say which model it holds' check "$files/half.pth"
says 2 'did you mean voxelmorph?' check "$files/half.pth" --model voxelmorf
says 3 'absent/x.pth' convert "$files/half.pth" "$work/absent/x.pth"
says 12 "$work/nowhere.pth" inspect "$work/nowhere.pth"
says 12 'is a folder' inspect "$work"
says 12 "system'" inspect "$files/hostile_reduce.pth"
says 12 'is damaged: its CRC-32' inspect "$files/flipped_byte.pth"
says 12 'is empty (0 bytes)' diff "$files/half.pth" \
  "$files/truncated_empty.pth.tar"
says 0 'Usage: checkpoint inspect FILE' --help

# inspect.
says 0 '[4,2,3,3,3]  864 B' inspect \
  "$files/state_dict.pth"
says 0 "other entry 'best_dsc': 0.753" inspect "$files/numpy_scalar.pth"
says 0 'other entry '\''optimizer'\'': a dict of 2' inspect \
  "$files/training.pth.tar"
says 0 'not finite' inspect "$files/flipped_byte.pth" --no-check-crc
says 0 'not finite' inspect "$files/hostile_reduce.pth" --keep-unknown
json 'r["weights"] == "model_state" and r["totals"]["tensors"] == 10' \
  inspect "$files/voxelmorph_style.pth"
json '[t["dtype"] for t in r["tensors"] if t["key"] == "conv.bias"] ==
      ["bfloat16"]' inspect "$files/bfloat16.pth"
json 'r["tensors"][0]["minimum"] == 0 and r["tensors"][0]["maximum"] == 15' \
  inspect "$files/state_dict.pth"

# diff.
says 0 '10 tensors are bit-equal, 0 differ' diff "$files/state_dict.pth" \
  "$files/state_dict_legacy_nonzip.pth"
says 1 'differ' diff "$files/state_dict.pth" "$files/module_prefix.pth"
says 0 '10 tensors are bit-equal' diff "$files/state_dict.pth" \
  "$files/compiled_in_ddp_prefix.pth" --strip-prefix
says 1 '< head.bias  float32 [3]' diff "$files/state_dict.pth" \
  "$files/missing_and_extra.pth"
says 1 '! head.weight  shape [3,4] and [3,5]' diff "$files/state_dict.pth" \
  "$files/wrong_shape.pth"
says 1 '~ conv.bias  equal values, float32 and float64' diff \
  "$files/state_dict.pth" "$files/double.pth"
json 'not r["same"] and len(r["other_values"]) > 0 and
      all(0 < d["largest"] < 1e-3 for d in r["other_values"])' diff \
  "$files/state_dict.pth" "$files/half.pth"
says 1 "! other entry 'epoch'" diff "$files/training.pth.tar" \
  "$files/numpy_scalar.pth"

# convert, there and back.
says 0 'without epoch, best_dsc, optimizer' convert "$files/training.pth.tar" \
  "$work/weights.safetensors"
says 0 'Converted' convert "$work/weights.safetensors" "$work/weights.pth"
says 0 '10 tensors are bit-equal, 0 differ' diff "$files/training.pth.tar" \
  "$work/weights.pth"
says 0 'Converted' convert "$files/training.pth.tar" "$work/half.pth" \
  --dtype float16
json 'all(t["dtype"] in ("float16", "int64") for t in r["tensors"]) and
      "optimizer" in r["other_entries"]' inspect "$work/half.pth"
says 0 'Converted' convert "$files/module_prefix.pth" "$work/plain.pth" \
  --strip-prefix
says 0 '10 tensors are bit-equal, 0 differ' diff "$work/plain.pth" \
  "$files/state_dict.pth"
# A failure leaves what was there.
cp "$work/plain.pth" "$work/kept.pth"
says 12 'flipped_byte.pth' convert "$files/flipped_byte.pth" "$work/kept.pth"
check 'the file is as it was' cmp "$work/plain.pth" "$work/kept.pth"

# A model of this package.
check 'a training of one step' "$train" --device cpu --config tiny \
  --size 16,16,16 --steps 1 --val-pairs 0 --out "$work/run" >"$work/log"
readonly ours=$work/run/checkpoints/latest.pth
says 0 'fits voxelmorph (of the file)' check "$ours"
says 0 'fits voxelmorph (tiny)' check "$ours" --model voxelmorph --config tiny
says 12 'it fits voxelmorph (tiny)' check "$ours" --config bj
says 12 'no known configuration fits' check "$files/state_dict.pth" \
  --model voxelmorph
json 'not r["fits"] and r["would_fit"][0]["configuration"] == "tiny" and
      len(r["mismatched"]) > 0' check "$ours" --config default
says 12 'does not fit voxelmorph (default)' convert "$files/half.pth" \
  "$work/x.pth" --for-mir --model voxelmorph
says 0 'Converted' convert "$ours" "$work/for_mir.pth" --for-mir
says 0 'tensors are bit-equal, 0 differ' diff "$ours" "$work/for_mir.pth"
readonly with_warp=(--for-mir --set gen_output=true)
says 0 'of them 1 grids for MIR' convert "$ours" "$work/for_mir.pth" \
  "${with_warp[@]}"
says 0 'warning: ' convert "$ours" "$work/for_mir.pth" "${with_warp[@]}"
says 2 'did you mean gen_output?' convert "$ours" "$work/for_mir.pth" \
  --for-mir --set gen_outptu=true
json 'len(r["only_in_b"]) > 0 and not r["only_in_a"] and
      all(e["key"].endswith(".grid") and e["shape"][:2] == [1, 3]
          for e in r["only_in_b"])' diff "$ours" "$work/for_mir.pth"
json '[(t["minimum"], t["maximum"]) for t in r["tensors"]
       if t["key"].endswith(".grid")][0] ==
      (0, max(t["shape"][2] for t in r["tensors"]
              if t["key"].endswith(".grid")) - 1)' inspect "$work/for_mir.pth"
says 0 'a sampling grid, ignored' check "$work/for_mir.pth"
check 'nothing ran' test ! -e HOSTILE_CHECKPOINT_RAN
finish
