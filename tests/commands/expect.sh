# For the command tests: run a command, check its exit status and its words.
# Sourced, never run.

readonly work=${TEST_TMPDIR:?run by bazel test}
failed=0

# expect CODE TEXT COMMAND...: the command ends with CODE, and what it prints on
# stderr or stdout contains TEXT.
expect() {
  local code=$1 text=$2 got=0 output
  shift 2
  output=$("$@" 2>&1 </dev/null) || got=$?
  if [[ $got != "$code" ]]; then
    printf 'FAILED %s\n  wanted exit %s, got %s\n%s\n' "$*" "$code" "$got" \
      "$output"
    failed=1
  elif [[ $output != *"$text"* ]]; then
    printf 'FAILED %s\n  wanted the words: %s\n  got: %s\n' "$*" "$text" \
      "$output"
    failed=1
  fi
}

# check WORDS COMMAND...: the command succeeds.
check() {
  local words=$1
  shift
  if ! "$@"; then
    printf 'FAILED %s (%s)\n' "$words" "$*"
    failed=1
  fi
}

finish() {
  if ((failed)); then exit 1; fi
  echo passed
}
