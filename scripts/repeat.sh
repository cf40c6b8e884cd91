#!/usr/bin/env bash
# Runs test suites again and again, on an idle machine or beside busy processes, to find tests that fail now and then.
#
#   scripts/repeat.sh N [TARGET...]    N runs of targets of the Makefile; without any, of all that `make test` runs
#
# LOAD=4 starts four processes that keep cores busy meanwhile. PACKAGES, GOFLAGS and PYTEST reach the tests as they do
# from make; results are never taken from Go's cache, and Go's tests run in another order each time. All runs are made,
# whatever fails; what a failed one printed stays in build/repeat. Ends with 1 when one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
runs=${1:-}
case $runs in
  '' | *[!0-9]*) echo "usage: [LOAD=processes] scripts/repeat.sh N [TARGET...]" >&2 && exit 2 ;;
esac
shift
load=${LOAD:-0}
case $load in
  *[!0-9]*) echo "repeat: LOAD is '$load'; it is a number of processes" >&2 && exit 2 ;;
esac
[ $# -gt 0 ] || read -ra all < <(sed -n 's/^TESTS := //p' Makefile) && [ $# -gt 0 ] || set -- "${all[@]}"
logs=build/repeat
rm -rf "$logs"
mkdir -p "$logs"

busy=()
stop() { [ ${#busy[@]} = 0 ] || kill "${busy[@]}" 2>/dev/null; }
trap stop EXIT
trap 'exit 130' INT TERM
for ((i = 0; i < load; i++)); do
  # Each ends by itself when this script is gone, even when it was killed.
  (while kill -0 $$ 2>/dev/null; do for ((k = 0; k < 200000; k++)); do :; done; done) &
  busy+=($!)
done

# What a log says of its failure: names of tests, panics, races, and the seed of the order.
reasons() {
  grep -nE '^ *--- FAIL|^FAIL[[:space:]]|^panic:|DATA RACE|^FAILED |^ERROR |-test.shuffle|Error [0-9]+$' "$1" | grep -v 'shuffle 0' |
    awk 'NR <= 20 { print "    " $0 }'
}

failed=0
for ((run = 1; run <= runs; run++)); do
  for target in "$@"; do
    log=$logs/$run-$target.log
    start=$SECONDS
    if GOFLAGS="${GOFLAGS:-} -count=1 -shuffle=on" make --no-print-directory "$target" >"$log" 2>&1 </dev/null; then
      echo "repeat: run $run of $runs, $target: passed in $((SECONDS - start)) s"
      rm -f "$log"
    else
      echo "repeat: run $run of $runs, $target: FAILED after $((SECONDS - start)) s; all of it in $log"
      reasons "$log"
      failed=$((failed + 1))
    fi
  done
done
if [ $failed = 0 ]; then
  echo "repeat: $runs runs of $*, beside $load busy processes: no failure"
  exit 0
fi
echo "repeat: $runs runs of $*, beside $load busy processes: $failed failed"
exit 1
