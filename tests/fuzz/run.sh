#!/usr/bin/env bash
# Fuzzes the readers of mir/checkpoint with libFuzzer, address and undefined-
# behaviour sanitizers, for a number of seconds (60 unless told):
#
#   tests/fuzz/run.sh [SECONDS]
#
# Wants clang-14 and its libclang-rt-14-dev. Begins with tests/checkpoints and
# tests/fuzz/corpus. Ends with 1 where it finds something, and says where the
# input lies. LibTorch itself is not instrumented.
#
#   MIR_FUZZ_FOLDER  keeps the build, the corpus and findings (default: a
#                    temporary folder, kept where there is a finding)
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
readonly seconds=${1:-60}
if [[ ! $seconds =~ ^[0-9]+$ ]]; then
  echo "error: wanted a number of seconds, got '$seconds'" >&2
  exit 2
fi
command -v clang++-14 >/dev/null || {
  echo 'error: clang++-14 is missing; apt-get install clang-14 libclang-rt-14-dev' >&2
  exit 3
}
folder=${MIR_FUZZ_FOLDER:-$(mktemp -d)}
mkdir -p "$folder/objects" "$folder/corpus"
torch=${MIR_TORCH_ROOT:-}
if [[ -z $torch ]]; then
  ./bazelw build --noshow_progress //mir/base:catch_torch >&2
  torch=$(./bazelw info output_base 2>/dev/null)/external/torch
fi

flags=(-std=c++17 -O1 -g -fno-omit-frame-pointer -DAT_PER_OPERATOR_HEADERS
  -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
  -I. -isystem "$torch/include"
  -isystem "$torch/include/torch/csrc/api/include")
sources=(tests/fuzz/fuzz_checkpoint.cc mir/base/catch_torch.cc)
for source in archive atomic_file crc32 input_file pickle pickle_calls \
  pickle_graph python_classes safetensors storage_reader uncached_writer \
  unpickle utf8 value zip_file; do
  sources+=("mir/checkpoint/$source.cc")
done
export flags_text="${flags[*]}" folder
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} bash -c '
  object=$folder/objects/$(basename {} .cc).o
  # shellcheck disable=SC2086  # Flags without blanks.
  [[ $object -nt {} ]] || clang++-14 $flags_text -c {} -o "$object"'
mapfile -t abseil < <(pkg-config --libs absl_status absl_statusor absl_strings \
  absl_flat_hash_map absl_flat_hash_set absl_raw_hash_set absl_hash | xargs -n 1)
clang++-14 -fsanitize=fuzzer,address,undefined "$folder"/objects/*.o \
  -o "$folder/fuzz_checkpoint" "${abseil[@]}" -lz -L"$torch/lib" -ltorch_cpu -lc10 \
  "-Wl,-rpath,$torch/lib"

cp --no-preserve=mode tests/checkpoints/*.p* tests/fuzz/corpus/* \
  "$folder/corpus/"
# Pickles alone, to be changed where no zip directory is in the way.
python3 - "$folder/corpus" tests/checkpoints/*.pth <<'PYTHON'
import os, sys, zipfile
folder, *files = sys.argv[1:]
for file in files:
    if not zipfile.is_zipfile(file):
        continue
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith("/data.pkl"):
                out = os.path.join(folder, os.path.basename(file) + ".pkl")
                open(out, "wb").write(archive.read(name))
PYTHON

status=0
OMP_NUM_THREADS=1 \
  ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0 \
  "$folder/fuzz_checkpoint" -max_total_time="$seconds" -max_len=20000 \
  -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=256 -print_final_stats=1 \
  -verbosity="${MIR_FUZZ_VERBOSITY:-1}" -artifact_prefix="$folder/" \
  "$folder/corpus" || status=1
if ((status == 0)); then
  [[ -n ${MIR_FUZZ_FOLDER:-} ]] || rm -rf "$folder"
  echo "no finding in $seconds s"
else
  echo "found something: the input lies in $folder" >&2
fi
exit "$status"
