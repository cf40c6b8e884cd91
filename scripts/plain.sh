#!/usr/bin/env bash
# Prints what must also be tested without the race detector, as arguments of go test, one line for each run of it. It
# would take minutes to link and run all tests twice.
#
#   scripts/plain.sh NORACE INVARIANTS [PACKAGE...]    the lists of the Makefile
#
# A test does less in the pass with the race detector if it asks testing.Short or racetest, damages bytes
# (drivertest.Faults), or is for other builds. The first line has packages with all their tests: those that the race pass
# leaves out (NORACE), and those with such a question outside of a test. The second line has the tests that ask.
# The pass with the invariants has neither -short nor the race detector, so its packages are left out.
# internal/lint compares these lines with the tests that ask.
set -euo pipefail
cd "$(dirname "$0")/.."
norace=$1 invariants=$2
shift 2
files='{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}'
# Lines of a package, and of a package and a test.
found=$(go list -f "$files" "${@:-./...}" | awk -v root="$PWD" -v norace=" $norace " -v invariants=" $invariants " '
  { dir = $0; sub("/[^/]*$", "", dir); dir = "." substr(dir, length(root) + 1) }
  $0 == "" || index(invariants, " " dir " ") { next }
  index(norace, " " substr(dir, 3) " ") { print dir; next }
  {
    test = ""
    while ((getline line <$0) > 0) {
      if (line ~ /^func /) {
        test = line ~ /^func (Test|Fuzz|Example)/ ? substr(line, 6, index(line, "(") - 6) : ""
      } else if (line ~ /^[^ \t]/) {
        test = ""
      }
      if (line ~ /testing\.Short\(\)|racetest\.|drivertest\.Faults\(|^\/\/go:build.*race/) { print dir, test }
    }
    close($0)
  }' | sed 's/ $//' | sort -u)
whole=$(awk 'NF == 1' <<<"$found")
some=$(awk 'NF == 1 { whole[$1] } NF == 2 && !($1 in whole)' <<<"$found")
[ -z "$whole" ] || echo $whole
[ -z "$some" ] || echo "-run=^($(cut -d' ' -f2 <<<"$some" | sort -u | paste -sd'|'))\$" $(cut -d' ' -f1 <<<"$some" | sort -u)
