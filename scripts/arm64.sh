# Sourced by scripts that build for arm64 on another machine: sets the environment of a cross build. The arm64 libraries
# are unpacked into build/arm64, and an arm64 Python into build/arm64/python; nothing is installed.
need() {
	command -v "$1" >/dev/null || { echo "arm64: $1 is missing: apt-get install $2" >&2; exit 1; }
}
need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
need qemu-aarch64 qemu-user

root=$PWD/build/arm64
lib=$root/usr/lib/aarch64-linux-gnu
if [ ! -f "$lib/libjpeg.a" ] || [ ! -f "$lib/libopus.a" ] || [ ! -f "$lib/libvorbis.a" ] ||
	[ ! -x "$root/python/usr/bin/python3" ]; then
	# apt with lists and cache of its own, for the other architecture. It takes no package for installed, so that it
	# downloads all that Python needs.
	apt=$root/apt
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$root/python"
	: >"$apt/status"
	. /etc/os-release
	case $ID in
	debian)
		keys=/usr/share/keyrings/debian-archive-keyring.gpg
		echo "deb [arch=arm64 signed-by=$keys] http://deb.debian.org/debian $VERSION_CODENAME main" ;;
	ubuntu)
		keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
		echo "deb [arch=arm64 signed-by=$keys] http://ports.ubuntu.com/ubuntu-ports $VERSION_CODENAME main" ;;
	*)
		echo "arm64: no recipe for $ID: put an arm64 libjpeg.a and its headers into $root/usr" >&2
		exit 1 ;;
	esac >"$apt/sources.list"
	options="-q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::lists=$apt/lists -o Dir::State::status=$apt/status
		-o Dir::Cache=$apt/cache -o Dir::Etc::sourcelist=$apt/sources.list -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User="
	# shellcheck disable=SC2086
	apt-get $options update
	case $ID in debian) package=libjpeg62-turbo-dev ;; *) package=libjpeg-turbo8-dev ;; esac
	for package in $package libopus-dev libvorbis-dev libogg-dev; do
		# shellcheck disable=SC2086
		(cd "$apt" && apt-get $options download "$package:arm64")
		dpkg -x "$apt/$package"_*_arm64.deb "$root"
	done
	# NumPy's wheel needs libstdc++6.
	# shellcheck disable=SC2086
	apt-get $options --yes --download-only --no-install-recommends install python3 libstdc++6
	for package in "$apt"/cache/archives/*.deb; do
		dpkg -x "$package" "$root/python"
	done
fi

export GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc
export CGO_CFLAGS="-O2 -I$root/usr/include -I$root/usr/include/aarch64-linux-gnu"
export CGO_LDFLAGS="-L$lib"
# Programs of this architecture run as "$EMULATOR PROGRAM".
EMULATOR="qemu-aarch64 -L $root/python"
