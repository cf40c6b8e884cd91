#!/usr/bin/env bash
# Runs every fuzz target of the Go packages for a while, one after another.
#
#   scripts/fuzz.sh TIME [PACKAGE...]    TIME as in go test -fuzztime: 30s, 10m, 1000x
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: scripts/fuzz.sh TIME [PACKAGE...]}
shift
[ $# -gt 0 ] || set -- ./...
failed=0
while read -r dir; do
  for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | cut -c6- | sort -u); do
    printf 'fuzz: %s %s\n' "${dir#"$PWD"/}" "$target"
    # Minimizing new inputs, a minute each by default, would take all of a short run.
    # -parallel 2: workers on all cores of a large machine would spend the time on starting.
    if ! out=$(go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel 2 "$dir" 2>&1); then
      # go test can end a run whose time is up with this line alone, when its workers were asked
      # to stop in the middle of an exchange. Without a failing input it is not a finding.
      if grep -qE '^ +context deadline exceeded$' <<<"$out" && ! grep -qE 'Failing input|panic:|hung or terminated' <<<"$out"; then
        continue
      fi
      printf '%s\n' "$out" >&2
      failed=1
    fi
  done
done < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "$@")
exit $failed
