#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# root.sh PROGRAMS FOLDER: makes the root of the container image in FOLDER, which does not
# exist yet. It has our PROGRAMS (programs.sh), a shell for the entry point, the shared
# libraries that they load, and the authorities that sign certificates of public servers.
# For those who scan images it names the packages of Debian that these files come from, with
# their licences.
set -eu
cd "$(dirname "$0")/../.."
programs=$1 root=$2
user=65532 # of nobody, as in other images without a distribution
own=("$programs"/bin/* "$programs"/lib/*)

mkdir -p "$root"/{etc/reduction,etc/ssl/certs,run,usr/{bin,lib/ssl,lib64,share/doc/reduction},var/lib/dpkg/status.d}
ln -s usr/bin usr/lib usr/lib64 "$root"
install -d -m 1777 "$root/tmp"
# for the group 0 too: OpenShift gives each project users of its own, in this group
install -d -o "$user" -g 0 -m 770 "$root/run/reduction"
cp -R "$programs/bin" "$programs/lib" "$root/usr"
install -m 755 deploy/container/entry.sh "$root/usr/bin/reduction-entry"
install -m 644 LICENSE "$root/usr/share/doc/reduction"
printf '%s:x:%s\n' root 0:0::/: reduction "$user:$user::/:" >"$root/etc/passwd"
printf '%s:x:%s\n' root 0: reduction "$user:" >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"

# what comes from Debian: files by the path at which they are looked for
libraries_of() {
	ldd "$@" | sed -n 's/^.*[[:space:]]\(\/[^ ]*\) (0x.*$/\1/p' | grep -v "^$programs/"
}
from_debian=("$(command -v dash)" /etc/ssl/certs/ca-certificates.crt /etc/os-release)
mapfile -t -O "${#from_debian[@]}" from_debian < <(libraries_of "${own[@]}" "${from_debian[0]}" | sort -u)
packages=(ca-certificates)
for file in "${from_debian[@]}"; do
	to=$root$(realpath "${file%/*}")/${file##*/}
	mkdir -p "${to%/*}"
	cp -L "$file" "$to"
	real=$(realpath "$file") # which packages of before /usr was merged list below /
	owner=$(dpkg-query --search "$real" 2>/dev/null || dpkg-query --search "${real#/usr}" 2>/dev/null || true)
	[ -z "$owner" ] || packages+=("${owner%%:*}")
done
ln -s dash "$root/usr/bin/sh"
ln -s /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem" # where OpenSSL looks
cp -R /usr/share/common-licenses "$root/usr/share"
for package in $(printf '%s\n' "${packages[@]}" | sort -u); do
	dpkg-query --status "$package" >"$root/var/lib/dpkg/status.d/$package"
	# a package without a file of its own has that of another one with the same source
	source=$(dpkg-query --show --showformat '${source:Package}' "$package")
	for candidate in "$package" $(dpkg-query --show --showformat '${Package} ${source:Package}\n' |
		awk -v s="$source" '$2 == s { print $1 }'); do
		copyright=/usr/share/doc/$candidate/copyright
		if [ -f "$copyright" ]; then
			install -D -m 644 "$copyright" "$root/usr/share/doc/$package/copyright"
			break
		fi
	done
	[ -f "$root/usr/share/doc/$package/copyright" ] || { echo "root: $package has no file of its licence" >&2; exit 1; }
done
