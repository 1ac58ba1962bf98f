#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing for what the arguments name; does nothing
# when all are there.
set -eu

usage() {
	cat <<-'END'
	Usage: install-deps.sh [build] [test] [test-all] [demo] [bench] [lint] [fresh] [deb]    (default: build test demo)
	  build   compilers, libraries and tools that 'make' needs
	  test    what 'make test' needs besides
	  test-all  what 'make test-all' needs besides that
	  demo    what 'make demo' needs besides: PyTorch, scikit-learn with its data sets, NumPy
	  bench   what 'make bench' and 'make bench-net' need besides: gloo, Open MPI, MPICH, iproute2
	  lint    what 'make lint' and the second compiler of continuous integration need: clang and its tools, ShellCheck
	  fresh   what 'make fresh' needs: mmdebstrap
	  deb     what 'make deb' needs besides, and lintian
	It installs as root, or with sudo; else it prints the command to run. Exit status: 0 all packages are there, 1 some
	are missing and could not be installed, 2 wrong usage.
	END
}

packages_of() {
	case $1 in
	build) echo gcc libc6-dev make pkg-config libuv1-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler \
		libyaml-dev libxxhash-dev libssl-dev zlib1g-dev libgrpc-dev libmicrohttpd-dev libgnutls28-dev \
		python3 ;;
	test) echo check iproute2 python3 python3-numpy python3-torch python3-sklearn openssl python3-grpcio python3-xxhash \
		python3-protobuf protobuf-compiler-grpc systemd man-db python3-yaml curl ;;
	test-all) echo python3-venv patchelf slurmctld slurmd slurm-client munge ;;
	demo) echo python3 python3-numpy python3-torch python3-sklearn ;;
	bench) echo g++ libgloo-dev python3 openmpi-bin libopenmpi-dev mpich libmpich-dev iproute2 ;;
	lint) echo clang clang-format clang-tidy shellcheck ;;
	fresh) echo mmdebstrap python3 git ;;
	deb) echo dpkg-dev debhelper dh-python g++ lintian ;;
	*)
		echo "install-deps: found $1, expected build, test, test-all, demo, bench, lint, fresh or deb" >&2
		return 2
		;;
	esac
}

for argument in "$@"; do
	case $argument in -h | --help)
		usage
		exit 0
		;;
	esac
done
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

root=()
if [ "$(id -u)" != 0 ]; then
	# without a terminal sudo cannot ask for a password
	if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && [ -t 2 ]; }; }; then
		root=(sudo)
	else
		echo "install-deps: packages are missing, and this user may not install them. Please run as root:" >&2
		echo "apt-get update && apt-get install -y --no-install-recommends$missing" >&2
		exit 1
	fi
fi
# shellcheck disable=SC2086 # a list
echo "Installing $(set -- $missing && echo $#) Debian packages and what they need:$missing"
apt() { # WORD ARGUMENT...: waits for another installation that is under way
	local word=$1
	shift
	"$(dirname "$0")/calm.sh" "$word" /bin/sh -c 'exec "$@" 2>&1' sh "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}
update() { # apt-get update does not wait for the lock of the lists by itself
	for _ in 1 2 3 4 5 6 7 8 9; do
		if apt "package lists" update; then return 0; fi
		sleep 10
	done
	apt "package lists" update
}
install() {
	# shellcheck disable=SC2086 # a list
	apt installing install -y --no-install-recommends $missing
}
# The lists of packages may be missing, or so old that the versions in them are gone.
# shellcheck disable=SC2086
if ! apt-get install -s --no-install-recommends $missing >/dev/null 2>&1 || ! install; then
	update
	install
fi
