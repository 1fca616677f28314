#!/usr/bin/env bash
# Writes libraries.bzl, which names the libraries that dependencies_test starts
# from: those that it can see. The others are reached through them.
#
#   tests/dependencies/list_libraries.sh           after adding a library
#   tests/dependencies/list_libraries.sh --check   fails where the list is old
set -euo pipefail

cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
libraries=$(bazel query --noshow_progress \
  'visible(//tests/dependencies:dependencies_test,
           kind("cc_library rule", //mir/...))' | sort)
text=$(
  printf '"""Libraries of mir/ that are seen from here."""\n\n'
  printf '# Written by list_libraries.sh.\nLIBRARIES = [\n'
  while read -r library; do printf '    "%s",\n' "$library"; done <<<"$libraries"
  printf ']'
)
if [[ ${1:-} == --check ]]; then
  diff -u libraries.bzl - <<<"$text" && exit 0
  echo 'error: run tests/dependencies/list_libraries.sh' >&2
  exit 1
fi
printf '%s\n' "$text" >libraries.bzl
