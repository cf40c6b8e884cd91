#!/bin/sh
# Builds the wheel for arm64 on another machine and starts its programs in the emulator: wheel-arm64.sh PYTHON FOLDER
set -eu
cd "$(dirname "$0")/.."
python=$1
out=$2
. scripts/arm64.sh

(cd python && STOKER_WHEEL_MACHINE=aarch64 "$python" -m build --wheel --no-isolation --outdir "$out" . >"$root/wheel.log" 2>&1) ||
	{ tail -n 5 "$root/wheel.log" >&2; exit 1; }
work=$root/try
rm -rf "$work"
mkdir -p "$work"
"$python" -m zipfile -e "$out"/*_aarch64.whl "$work/wheel"
chmod +x "$work"/wheel/stoker/bin/stoker*
# Both programs do real work: images are generated, packed and verified, with all values decoded.
for program in "$EMULATOR $work/wheel/stoker/bin/stoker" "qemu-aarch64 $work/wheel/stoker/bin/stoker-static"; do
	rm -rf "$work/photos" "$work/pack"
	$program gen images "$work/photos" --count 8 --classes 2 --size 64x48 >"$work/said"
	$program pack "$work/photos" "$work/pack" >>"$work/said"
	$program verify "$work/pack" --decode >>"$work/said"
	echo "wheel-arm64: $(basename "${program##* }") packs and verifies in the emulator: $($program --version)"
done
rm -rf "$work"
