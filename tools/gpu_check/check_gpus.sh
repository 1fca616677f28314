#!/usr/bin/env bash
# Checks the GPUs of this machine with the programs beside this file, in under
# six minutes:
#
#   ./check_gpus.sh [FOLDER]
#
# Prints tables, and writes checks.json, ranks.json and the training's files to
# FOLDER (./gpu_check_results). LibTorch 2.11.0 is found through python3's torch
# or LD_LIBRARY_PATH. Exit status: 0 all is well, 1 a check failed, 3 there is
# no GPU or no LibTorch.
set -uo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
readonly here wanted=2.11.0
results=${1:-gpu_check_results}

python=${PYTHON:-python3}
if torch=$("$python" -c 'import os, torch
print(torch.__version__.split("+")[0], os.path.dirname(torch.__file__))' \
  2>/dev/null); then
  if [[ ${torch%% *} != "$wanted" ]]; then
    echo "error: wanted torch $wanted, python3 has ${torch%% *}" >&2
    exit 3
  fi
  export LD_LIBRARY_PATH=${torch#* }/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}$here/lib
missing=$(ldd "$here/bin/gpu_check" 2>&1 | grep 'not found' | sort -u)
if [[ -n $missing ]]; then
  printf '%s\n' "$missing" >&2
  echo "error: no LibTorch with CUDA; pip install torch==$wanted, or name the" \
    'folder of its libraries in LD_LIBRARY_PATH' >&2
  exit 3
fi

mkdir -p "$results" && cd "$results" || exit 3
status=0
step() {
  local -r name=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  timeout 300 "$@"
  local -r code=$?
  printf '== %s: exit status %d, %d s\n' "$name" "$code" $((SECONDS - start))
  ((code == 0 || status != 0)) || status=$code
  return "$code"
}

nvidia-smi -L 2>/dev/null
step 'one GPU' "$here/bin/gpu_check" --json checks.json
code=$?
((code != 3)) || exit 3
for precision in fp32 fp16 bf16; do
  step "training, all GPUs, $precision" "$here/bin/train" --gpus all \
    --worker "$here/bin/train_voxelmorph" --out "$precision" \
    --precision "$precision" --size 64,64,64 --steps 30 --val-every 0
done
if (($(nvidia-smi -L 2>/dev/null | wc -l) > 1)); then
  step 'ranks' "$here/bin/train" --gpus all --worker "$here/bin/gpu_check" \
    --json "$PWD/ranks.json"
fi
exit $((status == 0 ? 0 : status == 3 ? 3 : 1))
