#!/usr/bin/env bash
# Makes the private environments of the rival loaders under bench/work/venv, one after another, and records for each
# whether it is usable. Safe to repeat: what is already there at the pinned version is left alone.
#
#   bench/setup.sh             every environment
#   bench/setup.sh grain tf    only these
#
# Needs Debian 12 or Ubuntu, Python 3.10+, and for FFCV and SPDL some system libraries, which are installed through apt
# when this runs as root (libopencv-dev is large). A rival that cannot be installed does not stop the others: its
# error is kept in bench/work/setup/<name>.err and bench/run.py prints it in the place of its figures.
set -u
cd "$(dirname "$0")/.."
WORK=${STOKER_BENCH_WORK:-$PWD/bench/work}
mkdir -p "$WORK/venv" "$WORK/setup"
PYTHON=${PYTHON:-python3}
TORCH="torch==2.15.0 torchvision==0.29.2"

say() { printf 'bench: %s\n' "$*"; }

# system NAME PACKAGE...: system packages, through apt when that is possible; NAME is the environment that wants them.
system() {
  local name=$1; shift
  local missing=() p
  for p in "$@"; do dpkg -s "$p" >/dev/null 2>&1 || missing+=("$p"); done
  [ ${#missing[@]} = 0 ] && return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "$name: system packages are missing; as root: apt-get install ${missing[*]}"
    return 1
  fi
  say "$name: apt-get install ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive nice apt-get install -y --no-install-recommends "${missing[@]}" >>"$WORK/setup/apt.log" 2>&1 ||
    { apt-get update >>"$WORK/setup/apt.log" 2>&1 &&
      DEBIAN_FRONTEND=noninteractive nice apt-get install -y --no-install-recommends "${missing[@]}" >>"$WORK/setup/apt.log" 2>&1; }
}

# torch_site: the site-packages folder that holds torch. The rivals that live beside torch all share one copy (5 GB):
# the project's .venv when it has one, otherwise bench/work/venv/torch.
torch_site() {
  local d
  for d in "$PWD"/.venv/lib/python3*/site-packages "$WORK"/venv/torch/lib/python3*/site-packages; do
    [ -d "$d/torch" ] && [ -d "$d/torchvision" ] && { echo "$d"; return; }
  done
  say "torch: not in .venv; installing it into bench/work/venv/torch (about 5 GB)" >&2
  "$PYTHON" -m venv "$WORK/venv/torch" && "$WORK/venv/torch/bin/pip" install -q $TORCH pillow==13.0.0 >>"$WORK/setup/torch.log" 2>&1
  echo "$WORK"/venv/torch/lib/python3*/site-packages
}

# env NAME torch|plain PACKAGE==VERSION...: one environment. Packages are installed one by one, so that one that fails
# is named and the rest are still there; alone:PACKAGE==VERSION is installed without what it says that it needs.
env() {
  local name=$1 kind=$2 alone; shift 2
  local venv=$WORK/venv/$name log=$WORK/setup/$name.log spec ok=1
  : >"$log"; rm -f "$WORK/setup/$name.err"
  if [ ! -x "$venv/bin/python" ]; then
    say "$name: making the environment"
    "$PYTHON" -m venv "$venv" >>"$log" 2>&1 || { fail "$name" "cannot make a venv" "$log"; return 1; }
  fi
  if [ "$kind" = torch ]; then
    local site=("$venv"/lib/python3*/site-packages)
    torch_site >"${site[0]}/shared_torch.pth"
  fi
  for spec in "$@"; do
    alone=; [[ $spec = alone:* ]] && alone=--no-deps spec=${spec#alone:}
    if "$venv/bin/python" - "$spec" <<'PY' 2>/dev/null
import importlib.metadata as m, sys
name, _, version = sys.argv[1].partition("==")
sys.exit(0 if m.version(name) == version else 1)
PY
    then continue; fi
    say "$name: pip install $spec"
    if ! nice "$venv/bin/pip" install -q --disable-pip-version-check $alone "$spec" >>"$log" 2>&1; then
      fail "$name" "pip install $spec failed" "$log"; ok=0
    fi
  done
  "$venv/bin/pip" freeze --disable-pip-version-check >"$WORK/setup/$name.freeze" 2>/dev/null
  [ $ok = 1 ] && say "$name: ready"
  return 0
}

# fail NAME WHAT LOG: keeps the reason where run.py finds it.
fail() {
  say "$1: $2 (see $3)"
  { echo "$2"; grep -v '^ *$' "$3" | tail -n 12; } >>"$WORK/setup/$1.err"
}

side()  { env side torch webdataset==1.0.2 litdata==0.2.76 opencv-python-headless==5.0.0.93 simplejpeg==1.9.0 psutil==7.2.2; }
robots() { system robots libavcodec59 libavformat59 libavdevice59 libavfilter8 libswscale6
          env robots torch alone:lerobot==0.4.4; }
remote() { system remote fio nginx-light curl; env remote torch obstore==0.12.1 boto3==1.44.5 s3torchconnector==1.5.0 opencv-python-headless==5.0.0.93 simplejpeg==1.9.0; }
public() { env public torch jsonargparse==4.40.0 docstring_parser==0.18.0 typeshed_client==2.14.0 evaluate==0.4.6; }
mds()   { env mds torch mosaicml-streaming==0.13.0; }
spdl()  { system spdl libavfilter8 libavdevice59 libavformat59 libavcodec59 libswscale6
          env spdl torch numpy==2.4.6 spdl==0.8.0 opencv-python-headless==5.0.0.93 simplejpeg==1.9.0; }
grain() { env grain plain numpy==2.4.6 grain==0.2.18 opencv-python-headless==5.0.0.93 pillow==13.0.0; }
dali()  { env dali plain numpy==2.4.6 nvidia-dali-cuda120==2.4.0; }
tf()    { env tf plain numpy==2.4.6 tensorflow-cpu==2.21.0; }
ray()   { env ray plain numpy==2.4.6 ray==2.60.0 pandas==3.1.1 pyarrow==26.0.1 fsspec==2026.9.0; }
traceml() { env traceml torch traceml-ai==0.5.0; }
tensorsocket() { env tensorsocket torch pyzmq==27.3.0 tornado==6.6.1 alone:tensorsocket==0.0.5; }
torchcodec() { system torchcodec libavfilter8 libavdevice59 libavformat59 libavcodec59 libswscale6; env torchcodec torch torchcodec==0.17.0; }
turboloader() { env turboloader plain numpy==2.4.6 turboloader==2.39.0; }
datago() { env datago plain numpy==2.4.6 pillow==13.0.0 datago==2026.10.1; }
ffcv()  { system ffcv build-essential pkg-config libturbojpeg0-dev libopencv-dev libjpeg62-turbo-dev
          env ffcv torch setuptools==80.9.0 numpy==2.4.6 numba==0.68.1 opencv-python-headless==5.0.0.93 ffcv==1.0.2; }

for name in "${@:-side mds spdl torchcodec turboloader grain dali tf datago ffcv}"; do
  for one in $name; do
    case $one in
      side | remote | robots | public | mds | spdl | torchcodec | turboloader | grain | dali | tf | ray | traceml | tensorsocket | datago | ffcv) "$one" ;;
      *) say "no environment is called $one"; exit 2 ;;
    esac
  done
done
