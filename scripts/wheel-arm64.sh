#!/bin/sh
# Builds the wheel for arm64 on another machine. Its programs, and its Python package with an arm64 Python and NumPy, work
# in the emulator: wheel-arm64.sh PYTHON FOLDER
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

# The Python package, with an arm64 Python and NumPy. The engine is started by a script, because the kernel does not know
# the emulator.
arm64_python=$root/python/usr/bin/python3
version=$($EMULATOR "$arm64_python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version "$version" \
	--platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --dest "$work" numpy
"$python" -m zipfile -e "$work"/numpy-*.whl "$work/wheel"
printf '#!/bin/sh\nexec %s "$@"\n' "$EMULATOR $work/wheel/stoker/bin/stoker" >"$work/engine"
chmod +x "$work/engine"
PYTHONPATH=$work/wheel STOKER_BINARY=$work/engine $EMULATOR "$arm64_python" scripts/try_package.py "$work/photos" "$work/pack"
rm -rf "$work"
