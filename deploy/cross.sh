#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cross.sh aarch64 FOLDER GOAL...: makes the goals of the Makefile (wheel, rpm) for another
# machine, in FOLDER, with Debian's cross compiler and a root of that machine with the same
# Debian, FOLDER/root, which it makes if it is not there. Its programs print their manual
# pages under QEMU. MAKE is the command make.
set -eu
cd "$(dirname "$0")/.."
machine=$1
out=$(mkdir -p "$2" && cd "$2" && pwd)
shift 2

refuse() {
	echo "cross: $*" >&2
	exit 1
}
case $machine in
aarch64) debian=arm64 ;;
*) refuse "machine: found $machine, expected aarch64" ;;
esac
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
root=$out/root
for program in "$machine-linux-gnu-gcc" mmdebstrap arch-test; do
	command -v "$program" >/dev/null || refuse "$program was not found: run deploy/install-deps.sh $machine on Debian"
done
arch-test "$debian" >/dev/null ||
	refuse "this machine does not start programs of $debian: install qemu-user-static, and let binfmt_misc be mounted"
if [ ! -e "$root" ]; then
	libraries=$(deploy/install-deps.sh --print build | grep -o '[^ ]*-dev\b' | paste -sd,)
	rm -rf "$root.new"
	# NumPy: for tests of the wheel
	mmdebstrap --quiet --variant=apt --arch="$debian" --include="$libraries,python3-numpy" "$suite" \
		"$root.new"
	mv "$root.new" "$root"
fi
# the linker follows absolute links outside of the root, and takes static libraries instead
find "$root/usr/lib" -lname '/*' -print0 | while IFS= read -rd '' link; do
	ln -sfnr "$root$(readlink "$link")" "$link"
done
export QEMU_LD_PREFIX=$root PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_LIBDIR=$root/usr/lib/$machine-linux-gnu/pkgconfig:$root/usr/share/pkgconfig
exec ${MAKE:-make} "$@" BUILD="$out" CC="$machine-linux-gnu-gcc --sysroot=$root" STRIP="$machine-linux-gnu-strip" \
	SYSROOT="$root"
