#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the packages that are missing for what the arguments name; does nothing when all
# are there.
set -eu

usage() {
	cat <<-'END'
	Usage: install-deps.sh [--print] [build] [test] [test-all] [demo] [bench] [lint] [fresh] [deb]
	                       [rpm] [wheel] [aarch64]                     (default: build test demo)
	  build   compilers, libraries and tools that 'make' needs
	  test    what 'make test' needs besides
	  test-all  what 'make test-all' needs besides that
	  demo    what 'make demo' needs besides: PyTorch, scikit-learn with its data sets, NumPy
	  bench   what 'make bench' and 'make bench-net' need besides: gloo, Open MPI, MPICH, iproute2
	  lint    what 'make lint' and the second compiler of continuous integration need: clang and its tools, ShellCheck
	  fresh   what 'make fresh' needs: mmdebstrap
	  deb     what 'make deb' needs besides, and lintian
	  rpm     what 'make rpm' needs besides
	  wheel   what 'make portable', 'make rpm' and 'make wheel' need besides
	  aarch64  what 'make aarch64' needs besides
	It installs on Debian, Ubuntu (apt) and on Fedora, RHEL, Rocky, AlmaLinux and Amazon Linux (dnf), as root or with
	sudo; else it prints the command to run. On other systems it prints what to install. --print only prints the command.
	Exit status: 0 all packages are there, or printed; 1 some are missing and could not be installed, 2 wrong usage.
	OS_RELEASE names another file than /etc/os-release.
	END
}

# The packages of each group, one line for apt and one for dnf. The build works without those that end in "?".
table='
build    apt gcc libc6-dev make pkg-config libuv1-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler
build    apt libyaml-dev libxxhash-dev libssl-dev zlib1g-dev? libgrpc-dev? libmicrohttpd-dev? libgnutls28-dev? python3
build    dnf gcc glibc-devel make pkgconf-pkg-config libuv-devel protobuf-c-devel protobuf-c-compiler protobuf-compiler
build    dnf libyaml-devel xxhash-devel openssl-devel zlib-devel? grpc-devel? libmicrohttpd-devel? gnutls-devel? python3
test     apt check iproute2 python3 python3-numpy python3-torch python3-sklearn openssl python3-grpcio python3-xxhash
test     apt python3-protobuf protobuf-compiler-grpc systemd man-db python3-yaml curl
test     dnf check-devel iproute python3 python3-numpy python3-torch python3-scikit-learn openssl python3-grpcio
test     dnf python3-xxhash python3-protobuf grpc-plugins systemd man-db python3-pyyaml curl
test-all apt python3-venv patchelf build-essential debhelper dh-python rpm
test-all apt slurmctld slurmd slurm-client munge prometheus
test-all dnf python3 patchelf slurm-slurmctld slurm-slurmd slurm munge
demo     apt python3 python3-numpy python3-torch python3-sklearn
demo     dnf python3 python3-numpy python3-torch python3-scikit-learn
bench    apt g++ libgloo-dev python3 openmpi-bin libopenmpi-dev mpich libmpich-dev iproute2
bench    dnf gcc-c++ gloo-devel python3 openmpi openmpi-devel mpich mpich-devel iproute
lint     apt clang clang-format clang-tidy shellcheck
lint     dnf clang clang-tools-extra ShellCheck
fresh    apt mmdebstrap python3 git
fresh    dnf mmdebstrap python3 git
deb      apt build-essential debhelper dh-python lintian
deb      dnf dpkg-dev debhelper
rpm      apt rpm
rpm      dnf rpm-build systemd-rpm-macros
wheel    apt patchelf
wheel    dnf patchelf
aarch64  apt gcc-aarch64-linux-gnu mmdebstrap arch-test qemu-user-static
aarch64  dnf gcc-aarch64-linux-gnu mmdebstrap qemu-user-static
'

packages_of() { # MANAGER GROUP...
	local manager=$1
	shift
	for group in "$@"; do
		awk -v group="$group" -v manager="$manager" '$1 == group && $2 == manager { $1 = $2 = ""; print }' <<<"$table"
	done | tr -s ' ' '\n' | awk 'NF && !seen[$0]++' | tr '\n' ' '
}

os_release=${OS_RELEASE:-/etc/os-release}
system() { # the value of a field of os-release
	sed -n "s/^$1=//p" "$os_release" 2>/dev/null | tr -d "\"'"
}

manager_of_system() {
	local id
	for id in $(system ID) $(system ID_LIKE); do
		case $id in
		debian | ubuntu) echo apt && return ;;
		rhel | fedora | centos | amzn) echo dnf && return ;;
		esac
	done
	echo none
}

print=
groups=()
for argument in "$@"; do
	case $argument in
	-h | --help) usage && exit 0 ;;
	--print) print=yes ;;
	build | test | test-all | demo | bench | lint | fresh | deb | rpm | wheel | aarch64) groups+=("$argument") ;;
	*)
		echo "install-deps: found $argument, expected build, test, test-all, demo, bench, lint, fresh, deb, rpm, wheel" \
			"or aarch64" >&2
		exit 2
		;;
	esac
done
[ ${#groups[@]} -gt 0 ] || groups=(build test demo)

manager=$(manager_of_system)
case $manager in
apt) install_line="apt-get update && apt-get install -y --no-install-recommends" ;;
dnf) install_line="dnf install -y --setopt=install_weak_deps=False" ;;
none)
	name=$(system PRETTY_NAME)
	echo "install-deps: ${name:-this system} has neither apt nor dnf. Please install what is called" >&2
	echo "  in Debian and Ubuntu: $(packages_of apt "${groups[@]}" | tr -d '?')" >&2
	echo "  in Fedora and RHEL:   $(packages_of dnf "${groups[@]}" | tr -d '?')" >&2
	exit 1
	;;
esac

# shellcheck disable=SC2016 # dpkg's variable, not the shell's
is_there() {
	case $manager in
	apt) [[ " $(dpkg-query -W -f '${db:Status-Status} ' "$1" 2>/dev/null) " == *" installed "* ]] ;;
	dnf) rpm -q --whatprovides "$1" >/dev/null 2>&1 ;;
	esac
}
can_be_had() {
	case $manager in
	apt) apt-get install -s --no-install-recommends "$1" >/dev/null 2>&1 ;;
	dnf) [ -n "$(dnf -q repoquery --whatprovides "$1" 2>/dev/null)" ] ;;
	esac
}

missing=() optional=" "
for package in $(packages_of "$manager" "${groups[@]}"); do
	name=${package%\?}
	[ "$name" = "$package" ] || optional+="$name "
	if [ -n "$print" ] || ! is_there "$name"; then missing+=("$name"); fi
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ -n "$print" ]; then
	echo "$install_line ${missing[*]}"
	exit 0
fi

# Nothing to do if only packages are missing without which the build works, and this system has none of them.
for package in "${missing[@]}"; do
	if [[ $optional != *" $package "* ]] || can_be_had "$package"; then
		needed=yes
		break
	fi
done
[ -n "${needed-}" ] || exit 0

root=()
if [ "$(id -u)" != 0 ]; then
	# without a terminal sudo cannot ask for a password
	if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && [ -t 2 ]; }; }; then
		root=(sudo)
	else
		echo "install-deps: packages are missing, and this user may not install them. Please run as root:" >&2
		echo "$install_line ${missing[*]}" >&2
		exit 1
	fi
fi

calmly() { # WORD COMMAND...
	local word=$1
	shift
	"$(dirname "$0")/calm.sh" "$word" /bin/sh -c 'exec "$@" 2>&1' sh "${root[@]}" "$@"
}
apt() { # WORD ARGUMENT...: waits for another installation that is under way
	local word=$1
	shift
	calmly "$word" env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}
update() { # apt-get update does not wait for the lock of the lists by itself
	[ "$manager" = apt ] || return 0 # dnf looks by itself whether its lists are old
	for _ in 1 2 3 4 5 6 7 8 9; do
		if apt "package lists" update; then return 0; fi
		sleep 10
	done
	apt "package lists" update
}
install() {
	case $manager in
	apt) apt installing install -y --no-install-recommends "${missing[@]}" ;;
	dnf) calmly installing dnf install -y --setopt=install_weak_deps=False "${missing[@]}" ;;
	esac
}

where_to_find() { # where RHEL and its likes have packages that are not in the usual repositories
	case " $(system ID) $(system ID_LIKE) " in
	" rhel "*) echo "they may be in CodeReady Builder (subscription-manager repos --enable" \
		"codeready-builder-for-rhel-9-$(uname -m)-rpms) and in EPEL (docs.fedoraproject.org/epel)" ;;
	*" rhel "*) echo "they may be in CRB and EPEL: dnf install -y dnf-plugins-core epel-release &&" \
		"dnf config-manager --set-enabled crb" ;;
	esac
}

leave_out_what_is_not_there() { # returns 1 if something is left out without which the groups do not work
	local have=() without=() needed=() hint
	for package in "${missing[@]}"; do
		if can_be_had "$package"; then
			have+=("$package")
		elif [[ $optional == *" $package "* ]]; then
			without+=("$package")
		else
			needed+=("$package")
		fi
	done
	missing=("${have[@]}")
	[ ${#without[@]} -eq 0 ] ||
		echo "install-deps: $(system PRETTY_NAME) has no ${without[*]}; the build works without"
	[ ${#needed[@]} -gt 0 ] || return 0
	hint=$(where_to_find)
	echo "install-deps: $(system PRETTY_NAME) has no package ${needed[*]}${hint:+; $hint}" >&2
	case " ${needed[*]} " in *" python3-torch "*)
		echo "install-deps: without python3-torch, PyTorch comes from PyPI (pip install torch)" >&2 ;;
	esac
	return 1
}

echo "Installing ${#missing[@]} packages and what they need: ${missing[*]}"
# The lists of packages may be missing, or so old that the versions in them are gone.
if { [ "$manager" = apt ] && ! apt-get install -s --no-install-recommends "${missing[@]}" >/dev/null 2>&1; } ||
	! install; then
	update
	status=0
	leave_out_what_is_not_there || status=1
	[ ${#missing[@]} -eq 0 ] || install
	exit $status
fi
