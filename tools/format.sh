#!/usr/bin/env bash
# Formats every C++ file of the repository, or FILEs, with clang-format 14.
#
#   tools/format.sh [FILE...]           rewrites what is not formatted
#   tools/format.sh --check [FILE...]   changes nothing; fails naming each file
set -euo pipefail

check=false
if [[ ${1:-} == --check ]]; then
  check=true
  shift
fi

# Another version formats otherwise, so it is pinned.
if ! command -v clang-format-14 >/dev/null; then
  echo 'error: clang-format-14 not found: apt-get install clang-format-14' >&2
  exit 3
fi

if (($# > 0)); then
  files=("$@")
else
  cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
  mapfile -t files < <(
    git ls-files --cached --others --exclude-standard -- '*.cc' '*.h'
  )
fi

wrong=()
for file in "${files[@]}"; do
  [[ -e $file ]] || continue  # Deleted, and not yet committed so.
  clang-format-14 --dry-run --Werror "$file" 2>/dev/null || wrong+=("$file")
done
((${#wrong[@]} > 0)) || exit 0
if [[ $check == true ]]; then
  printf '%s is not formatted: run tools/format.sh\n' "${wrong[@]}" >&2
  exit 1
fi
clang-format-14 -i "${wrong[@]}"
printf '   Formatted %s\n' "${wrong[@]}"
