#!/usr/bin/env bash
# Checks FILEs with clang-tidy 14 and .clang-tidy. Each takes 10 to 60 s, most of
# it for LibTorch's headers.
#
#   tools/tidy.sh mir/geometry/warp.cc
set -euo pipefail

for program in clang-tidy-14 bazel; do
  if ! command -v "$program" >/dev/null; then
    echo "error: $program not found: apt-get install clang-tidy-14" >&2
    exit 3
  fi
done

if (($# == 0)); then
  echo 'usage: tools/tidy.sh FILE.cc...' >&2
  exit 2
fi

external=$(bazel info output_base 2>/dev/null)/external
if [[ ! -e $external/torch/include ]]; then
  echo 'error: LibTorch is not there yet: ./bazelw build //mir/base/...' >&2
  exit 3
fi
root=$(bazel info workspace 2>/dev/null)
exec clang-tidy-14 --quiet "$@" -- -std=c++17 -I"$root" \
  -isystem "$external/torch/include" \
  -isystem "$external/torch/include/torch/csrc/api/include" \
  -DAT_PER_OPERATOR_HEADERS -DUSE_C10D_GLOO -DUSE_DISTRIBUTED
