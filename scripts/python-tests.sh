#!/usr/bin/env bash
# Runs pytest and fails if a process is left. Failures are repeated at the end.
#
#   scripts/python-tests.sh PREFIX [ARGUMENT...]    PREFIX stands before each line, "" for none; the rest is pytest's
#
# A process that a test leaves would hold the output open, and whoever reads that would wait for its end without end.
# Such ones are named and ended here, and are a failure. A test that hangs ends by itself (faulthandler_timeout in
# pyproject.toml); what hangs behind the last test says where it is after an hour.
set -uo pipefail
cd "$(dirname "$0")/../python"
prefix=$1
shift
export STOKER_TESTS_OF=$$
export STOKER_TEST_PROCESSES=2 # python/tests/processes.py
log=$(mktemp)
trap 'rm -f "$log"' EXIT
exec 3> >(exec env -u STOKER_TESTS_OF tee "$log" | env -u STOKER_TESTS_OF sed -u "s/^/$prefix/")
reader=$!
timeout --foreground -s ABRT -k 60 3600 ../.venv/bin/python -u -X faulthandler -m pytest "$@" >&3 2>&1 3>&-
code=$?
exec 3>&-

# Libraries print hundreds of lines when Python exits. The failures are repeated after them.
failures() {
  [ "$code" = 0 ] || grep -aE '^(FAILED|ERROR) |^[0-9]+ failed|^=+ .*(failed|error)' "$log" | sed "s/^/$prefix/"
}

# Processes of this run: what they inherit names it.
left() {
  local dir
  for dir in /proc/[0-9]*; do
    if grep -qzx "STOKER_TESTS_OF=$$" "$dir/environ" 2>/dev/null && ! grep -q '^State:[[:space:]]*Z' "$dir/status" 2>/dev/null; then
      echo "${dir#/proc/}"
    fi
  done
}
for ((i = 0; i < 30; i++)); do
  pids=$(left)
  [ -n "$pids" ] || { wait $reader; failures; exit $code; }
  sleep 1
done
for pid in $pids; do
  echo "${prefix}process $pid is left: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c-200), waits in $(cat "/proc/$pid/wchan" 2>/dev/null)"
done
kill -9 $pids 2>/dev/null
failures
exit $((code ? code : 1))
