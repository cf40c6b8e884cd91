#!/usr/bin/env bash
# Runs every fuzz target of the Go packages for a while, one after another.
#
#   scripts/fuzz.sh TIME [PACKAGE...]    TIME as in go test -fuzztime: 30s, 10m, 1000x
#
# WORKERS=2 is how many processes fuzz: on all cores of a large machine they would spend the time on starting.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: scripts/fuzz.sh TIME [PACKAGE...]}
shift
[ $# -gt 0 ] || set -- ./...
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
# Where go test -fuzz keeps the inputs that it has found interesting.
found=$(go env GOCACHE)/fuzz
failed=0
# Coverage of the module's own code guides the fuzzing. go test -fuzz would also watch the standard library and all
# dependencies: it compiles them once more, and tries a quarter of the inputs per second. Packages with C code keep
# the flags of other builds, so that their C is not compiled again.
guided=("-gcflags=$(go list -m)/...=-d=libfuzzer")
while read -r package; do
  guided+=("-gcflags=$package=")
done < <(go list -f '{{if .CgoFiles}}{{.ImportPath}}{{end}}' ./...)
while IFS=$'\t' read -r package dir; do
  targets=$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | cut -c6- | sort -u) || continue
  # One program for all targets of a package: go test would link it anew for each.
  if ! go test -c -vet=off -ldflags=-w "${guided[@]}" -o "$built/test" "$dir"; then
    failed=1
    continue
  fi
  for target in $targets; do
    printf 'fuzz: %s %s\n' "${dir#"$PWD"/}" "$target"
    # Minimizing new inputs, a minute each by default, would take all of a short run.
    if ! out=$(cd "$dir" && "$built/test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" \
      -test.fuzzminimizetime 10x -test.parallel "${WORKERS:-2}" -test.fuzzcachedir "$found/$package" 2>&1); then
      # A run whose time is up can end with this line alone, when its workers were asked to stop in the middle of an
      # exchange. Without a failing input it is not a finding.
      if grep -qE '^ +context deadline exceeded$' <<<"$out" && ! grep -qE 'Failing input|panic:|hung or terminated' <<<"$out"; then
        continue
      fi
      printf '%s\n' "$out" >&2
      failed=1
    fi
  done
done < <(go list -f $'{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}' "$@")
exit $failed
