#!/usr/bin/env bash
# Checks FILEs with clang-tidy 14 and .clang-tidy. Each takes 10 to 60 s, most of
# it for LibTorch's headers.
#
#   tools/tidy.sh mir/geometry/warp.cc
set -euo pipefail

if (($# == 0)); then
  echo 'usage: tools/tidy.sh FILE.cc...' >&2
  exit 2
fi
if ! command -v clang-tidy-14 >/dev/null; then
  echo 'error: clang-tidy-14 not found: apt-get install clang-tidy-14' >&2
  exit 3
fi

root=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..
# Not from `bazel info`, which waits for a build that runs.
output=$(readlink "$root/bazel-out" || true)
external=${output%/execroot/*}/external
if [[ ! -e $external/torch/include ]]; then
  echo 'error: LibTorch is not there yet: ./bazelw build //mir/base/...' >&2
  exit 3
fi
exec clang-tidy-14 --quiet "$@" -- -std=c++17 -I"$root" \
  -isystem "$external/torch/include" \
  -isystem "$external/torch/include/torch/csrc/api/include" \
  -isystem "$external/nifti/include" \
  -isystem "$external/nifti/include/nifti" \
  -DAT_PER_OPERATOR_HEADERS -DUSE_C10D_GLOO -DUSE_DISTRIBUTED
