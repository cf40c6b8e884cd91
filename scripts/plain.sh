#!/usr/bin/env bash
# Prints the packages that must also be tested without the race detector. It would take minutes to link and run the
# tests of all others twice.
#
#   scripts/plain.sh NORACE INVARIANTS [PACKAGE...]    the lists of the Makefile
#
# These are the packages that the pass with the race detector leaves out (NORACE), and those with a test that does less
# in that pass: it asks testing.Short or racetest, damages bytes (drivertest.Faults), or is for other builds.
# The pass with the invariants has neither -short nor the race detector, so its packages are left out.
# internal/lint holds what this relies on.
set -euo pipefail
cd "$(dirname "$0")/.."
norace=$1 invariants=$2
shift 2
files='{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}'
go list -f "$files" "${@:-./...}" | sed '/^$/d' |
  while read -r file; do
    dir=${file#"$PWD"} dir=.${dir%/*}
    case " $invariants " in *" $dir "*) continue ;; esac
    case " $norace " in *" ${dir#./} "*) echo "$dir" && continue ;; esac
    ! grep -qE 'testing\.Short\(\)|racetest\.|drivertest\.Faults\(|^//go:build.*race' "$file" || echo "$dir"
  done | sort -u
