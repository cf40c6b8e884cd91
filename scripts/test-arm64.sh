#!/bin/sh
# Builds the C kernels and the command for arm64 and runs the tests of the dct
# codec and of the other pixel kernels under qemu-user.
set -eu
cd "$(dirname "$0")/.."
. scripts/arm64.sh

echo "test-arm64: building the program that loads libraries"
go build -tags netgo,osusergo -ldflags "-linkmode external -extld scripts/link-old-glibc.py" -o "$root/stoker" ./cmd/stoker
newest=$(aarch64-linux-gnu-objdump -T "$root/stoker" | grep -o 'GLIBC_[0-9.]*' | sort -V | tail -n 1)
[ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.28 ] ||
	{ echo "test-arm64: it needs $newest, newer than GLIBC_2.28" >&2; exit 1; }
$EMULATOR "$root/stoker" --version
export CGO_LDFLAGS="-L$lib -static"
echo "test-arm64: building the static program"
go build -tags netgo,osusergo -o "$root/stoker" ./cmd/stoker
qemu-aarch64 "$root/stoker" --version
echo "test-arm64: testing the kernels"
go test -short -exec qemu-aarch64 ./internal/cdec/ "$@"
