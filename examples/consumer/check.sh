#!/usr/bin/env bash
# Fails where building one loss would compile more than it and its
# dependencies, or where the program does not build, run and find the shift.
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
bazel=../../bazelw

readonly loss=@mir//mir/losses:local_ncc
compiled=$("$bazel" aquery "mnemonic('CppCompile', deps($loss))" 2>/dev/null |
  sed -n "s/^action 'Compiling \(.*\)'$/\1/p" | sort -u)
printf 'one loss compiles:\n%s\n' "$compiled"
grep -q '^mir/losses/local_ncc.cc$' <<<"$compiled" || {
  echo "error: bazel aquery does not name local_ncc.cc" >&2
  exit 1
}
if grep -v -E '^mir/(base|losses|precision)/' <<<"$compiled"; then
  echo "error: $loss compiles the files above, which it cannot need" >&2
  exit 1
fi

"$bazel" build "$loss"
"$bazel" run //:align
