#!/usr/bin/env bash
# Makes this machine ready to build and run Stoker. Safe to repeat: what is there is left alone.
#
#   scripts/setup.sh system            a C compiler, libjpeg-turbo, Opus and Vorbis with their headers, Go 1.26, Python 3.10 with venv
#   scripts/setup.sh python FILE...    the private environment .venv with the stoker package and what FILE lists
#   scripts/setup.sh web               nginx, which tests of web servers start; without it they are skipped
#   scripts/setup.sh schedulers        Slurm and Open MPI, for make test-cluster
#
# Missing system packages are installed through apt when this runs as root on Debian or Ubuntu; otherwise one line
# says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=.venv
LOG=build/setup.log
mkdir -p build

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

# install PACKAGE...: through apt, or says what to do and ends.
install() {
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    fail "please install these packages, then run make again: sudo apt-get install -y $*"
  fi
  say "apt-get install $*"
  export DEBIAN_FRONTEND=noninteractive
  # Package lists may be missing or old; fetching them takes a while, so first try without.
  apt-get install -y --no-install-recommends "$@" >"$LOG" 2>&1 ||
    { apt-get update >"$LOG" 2>&1 && apt-get install -y --no-install-recommends "$@" >>"$LOG" 2>&1; } ||
    fail "apt-get install $* failed; its last words: $(tail -n 1 "$LOG") (all of them: $LOG)"
}

# links: whether a program that uses the static libjpeg-turbo can be built.
links() {
  local out
  out=$(mktemp) || return 1
  printf '#include <stdio.h>\n#include <jpeglib.h>\nint main(void) { struct jpeg_error_mgr e; return !jpeg_std_error(&e) || !LIBJPEG_TURBO_VERSION_NUMBER; }\n' |
    "${CC:-gcc}" -x c - -o "$out" -l:libjpeg.a -lm 2>/dev/null
  local code=$?
  rm -f "$out"
  return $code
}

check_platform() {
  case "$(uname -s)/$(uname -m)" in
    Linux/x86_64 | Linux/aarch64) ;;
    *) fail "$(uname -s) on $(uname -m) is not supported: Stoker runs on Linux, x86_64 and arm64" ;;
  esac
}

check_go() {
  command -v go >/dev/null || fail "Go is missing: install Go 1.26 or newer (https://go.dev/doc/install) and put it on the PATH"
  local version major minor
  version=$(GOTOOLCHAIN=local go env GOVERSION) # go1.26.8
  IFS=. read -r major minor _ <<<"${version#go}"
  minor=${minor%%[!0-9]*}
  if [ "$major" -lt 1 ] || { [ "$major" -eq 1 ] && [ "$minor" -lt 26 ]; }; then
    # A Go from 1.21 on fetches the version that go.mod names by itself, unless told not to.
    go version >/dev/null 2>&1 && [ "$(go env GOTOOLCHAIN)" != local ] && [ "$minor" -ge 21 ] ||
      fail "Go is too old: this is $version, Stoker needs Go 1.26 or newer (https://go.dev/doc/install)"
  fi
}

check_python() {
  command -v "$PYTHON" >/dev/null || install python3 python3-venv
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "Python is too old: $("$PYTHON" --version), Stoker needs 3.10 or newer (PYTHON=/path/to/python3 chooses another)"
}

# links_sound: the same for Opus and Vorbis.
links_sound() {
  local out
  out=$(mktemp) || return 1
  printf '#include <opus/opus_multistream.h>\n#include <vorbis/codec.h>\nint main(void) { vorbis_info v; vorbis_info_init(&v); return !opus_get_version_string(); }\n' |
    "${CC:-gcc}" -x c - -o "$out" -l:libvorbis.a -l:libogg.a -l:libopus.a -lm 2>/dev/null
  local code=$?
  rm -f "$out"
  return $code
}

setup_system() {
  check_platform
  local missing=()
  command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)
  if [ ${#missing[@]} != 0 ] || ! links || ! links_sound; then
    if grep -qi '^ID=ubuntu' /etc/os-release 2>/dev/null; then
      missing+=(libjpeg-turbo8-dev)
    else
      missing+=(libjpeg62-turbo-dev)
    fi
    missing+=(libopus-dev libvorbis-dev)
    # A compiler without the C library's headers cannot link either.
    [ -e /usr/include/stdio.h ] || [[ " ${missing[*]} " == *" libc6-dev "* ]] || missing+=(libc6-dev)
    install "${missing[@]}"
    links || fail "a C program with libjpeg-turbo (libjpeg.a) does not link: is the static library of libjpeg-turbo's development package there?"
    links_sound || fail "a C program with Opus and Vorbis (libopus.a, libvorbis.a, libogg.a) does not link: are the static libraries of their development packages there?"
  fi
  check_go
  check_python
}

# packages ARGUMENT...: pip installs them into the environment, or why says what it ended with.
packages() {
  local code=0
  PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore "$VENV/bin/python" -m pip install --quiet --no-input "$@" >"$LOG" 2>&1 || code=$?
  [ $code != 0 ] || return 0
  # A full disk or no memory may leave no word of pip itself.
  why="$(grep -m 1 '^ERROR' "$LOG" || tail -n 1 "$LOG") (exit code $code; free: $(df -h --output=avail . | tail -n 1 | tr -d ' ') of disk, $(awk '/MemAvailable/ {printf "%d MiB", $2 / 1024}' /proc/meminfo) of memory; all of its words: $LOG)"
  return 1
}

setup_python() {
  check_python
  if ! "$VENV/bin/python" -c 'import pip' >/dev/null 2>&1; then
    # Debian and Ubuntu ship venv without what makes environments.
    "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
      install "python$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    say "making the private environment $VENV"
    "$PYTHON" -m venv --clear "$VENV" >"$LOG" 2>&1 || fail "cannot make $VENV: $(tail -n 1 "$LOG") (all of it: $LOG)"
  fi
  local requirements=()
  for file in "$@"; do
    requirements+=(-r "$file")
  done
  say "Python packages of $*"
  # What fails once is mostly the network, or pip's cache, which takes the packages' size again in memory and on disk.
  local why
  if ! packages "${requirements[@]}"; then
    say "pip failed, once more without its cache: $why"
    packages --no-cache-dir "${requirements[@]}" || fail "pip failed: $why"
  fi
  # The stoker package runs from the checkout: a path file needs no build step, and edits count at once.
  "$VENV/bin/python" -c '
import pathlib, sys, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "stoker-checkout.pth").write_text(sys.argv[1] + "\n")' "$PWD/python/src"
}

# setup_web does nothing where it may not: nobody needs nginx but tests. It is not started as a service.
setup_web() {
  if command -v nginx >/dev/null || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    return
  fi
  (RUNLEVEL=1 install nginx-light) || say "nginx cannot be installed: its tests are skipped"
}

setup_schedulers() {
  local missing=()
  command -v sbatch >/dev/null || missing+=(slurm-wlm)
  command -v mpirun >/dev/null || missing+=(openmpi-bin)
  if [ ${#missing[@]} = 0 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    return
  fi
  (RUNLEVEL=1 install "${missing[@]}") || say "${missing[*]} cannot be installed: its test is skipped"
}

case "${1-}" in
  system) setup_system ;;
  python) shift; setup_python "$@" ;;
  web) setup_web ;;
  schedulers) setup_schedulers ;;
  *) fail "usage: scripts/setup.sh system | python FILE... | web | schedulers" ;;
esac
