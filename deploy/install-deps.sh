#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing for what the arguments name; does nothing when all are there.
set -eu

usage() {
	cat <<-'END'
	Usage: install-deps.sh [build] [test] [demo] [bench] [lint]    (default: build test demo)
	  build   compilers, libraries and tools that 'make' needs
	  test    what 'make test' needs besides
	  demo    what 'make demo' needs besides: PyTorch, scikit-learn with its data sets, NumPy
	  bench   what 'make bench' and 'make bench-net' need besides: gloo, Open MPI, MPICH, iproute2
	  lint    what 'make lint' and the second compiler of continuous integration need: clang and its tools, ShellCheck
	END
}

packages_of() {
	case $1 in
	build) echo gcc libc6-dev make pkg-config libuv1-dev libprotobuf-c-dev protobuf-c-compiler libyaml-dev \
		libxxhash-dev libssl-dev libsystemd-dev coinor-libclp-dev libgrpc-dev ;;
	test) echo check iproute2 python3 python3-numpy python3-torch openssl python3-grpcio python3-xxhash protobuf-compiler \
		protobuf-compiler-grpc ;;
	demo) echo python3 python3-numpy python3-torch python3-sklearn ;;
	bench) echo g++ libgloo-dev python3 openmpi-bin libopenmpi-dev mpich libmpich-dev iproute2 ;;
	lint) echo clang clang-format clang-tidy shellcheck ;;
	*)
		echo "install-deps: $1: expected build, test, demo, bench or lint" >&2
		return 2
		;;
	esac
}

case " $* " in
*" -h "* | *" --help "*)
	usage
	exit 0
	;;
esac
[ $# -gt 0 ] || set -- build test demo
wanted=
for group in "$@"; do
	more=$(packages_of "$group") || exit 2
	wanted="$wanted $more"
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "install-deps: this is not Debian or a system made from it; please install what is called there:$wanted" >&2
	exit 1
fi

missing=
for package in $wanted; do
	# shellcheck disable=SC2016 # dpkg's variable, not the shell's
	case " $(dpkg-query -W -f '${db:Status-Status} ' "$package" 2>/dev/null) " in
	*" installed "*) ;;
	*) case " $missing " in *" $package "*) ;; *) missing="$missing $package" ;; esac ;;
	esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
	root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	root=sudo
else
	echo "install-deps: these Debian packages are missing; please run: sudo apt-get install$missing" >&2
	exit 1
fi
echo "install-deps: installing$missing"
apt() { # waits for another installation that is under way
	$root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}
update() { # apt-get update does not wait for the lock of the lists by itself
	for _ in 1 2 3 4 5 6 7 8 9; do
		if apt update; then return 0; fi
		sleep 10
	done
	apt update
}
install() {
	# shellcheck disable=SC2086 # a list
	apt install -y --no-install-recommends $missing
}
# the lists of packages may be missing, or so old that what they name is gone
# shellcheck disable=SC2086
if ! apt install -s $missing >/dev/null 2>&1 || ! install; then
	update
	install
fi
