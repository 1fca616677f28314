#!/usr/bin/env bash
# Makes a folder to check a machine with GPUs that has no compiler:
#
#   bazel run --config=cuda //tools:gpu_check_bundle -- FOLDER
#
# It holds the programs, the shared libraries that a bare machine lacks (not
# LibTorch's), and check_gpus.sh to run there.
set -euo pipefail

readonly programs=("$1" "$2" "$3") script=$4 most_mib=40
shift 4
if (($# != 1)); then
  echo 'error: wanted the folder to make, such as /tmp/gpu_check' >&2
  exit 2
fi
folder=$1
[[ $folder == /* ]] || folder=${BUILD_WORKING_DIRECTORY:-$PWD}/$folder
if [[ -e $folder && -n $(ls -A "$folder" 2>/dev/null || echo file) ]]; then
  echo "error: $folder is there and not empty; name a new folder" >&2
  exit 3
fi
if ! readelf -d "${programs[0]}" | grep -q 'NEEDED.*libtorch_cuda\.so'; then
  echo 'error: the programs are built without CUDA; give bazel run' \
    '--config=cuda' >&2
  exit 3
fi

mkdir -p "$folder/bin" "$folder/lib"
for program in "${programs[@]}"; do
  strip -o "$folder/bin/$(basename "$program")" "$program"
  # glibc is the machine's own, and LibTorch with NVIDIA's libraries too.
  ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
    grep -v -E '/lib(c|m|dl|rt|pthread|resolv|util)\.so' |
    grep -v -E '/lib(c10|torch|caffe2|gomp|cu|nv|nccl)[^/]*$' |
    xargs -r cp -L -n -t "$folder/lib"
done
cp -L "$script" "$folder/"
chmod -R u+w "$folder"

mib=$(du -sm "$folder" | cut -f 1)
if ((mib > most_mib)); then
  echo "error: $folder has $mib MiB, more than $most_mib" >&2
  exit 1
fi
echo "made $folder ($mib MiB); copy it to a machine with torch 2.11.0 and run" \
  "check_gpus.sh there"
