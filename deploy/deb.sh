#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deb.sh FOLDER: builds the Debian packages into FOLDER, from a copy of the tree with
# deploy/debian as its debian/. The copy has the files that git knows, as they are now;
# without git all files but those of builds. DEBFULLNAME and DEBEMAIL name the maintainer,
# as for Debian's own tools; without them it is who made the last commit.
set -eu
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)

if ! command -v dpkg-buildpackage >/dev/null || ! command -v dh >/dev/null; then
	echo "deb: dpkg-buildpackage or debhelper was not found: run deploy/install-deps.sh build deb" >&2
	exit 1
fi
version=$(sed -n 's/^.define RS_VERSION "\(.*\)"/\1/p' common/version.h)
name=${DEBFULLNAME:-$(git log -1 --format=%cn 2>/dev/null || id -un)}
address=${DEBEMAIL:-$(git log -1 --format=%ce 2>/dev/null || echo "$(id -un)@$(hostname -f)")}
maintainer="$name <$address>"
source=$out/reduction-$version
rm -rf "$source" "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
mkdir "$source"
files() {
	if git rev-parse --git-dir >/dev/null 2>&1; then
		git ls-files -z
	else
		find . \( -path ./build -o -name __pycache__ -o -path "./${out#"$PWD"/}" \) -prune -o -type f -print0
	fi
}
files | tar -c --null --files-from=- | tar -x -C "$source"
cp -R "$source/deploy/debian" "$source/debian"
awk -v maintainer="$maintainer" '/^Maintainer: /{ $0 = "Maintainer: " maintainer } { print }' deploy/debian/control \
	>"$source/debian/control"
# the time of the last commit, so that the same tree makes the same packages
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
date=$(date -R -d "@$SOURCE_DATE_EPOCH")
cat >"$source/debian/changelog" <<END
reduction ($version) unstable; urgency=medium

  * Version $version; /usr/share/doc/reduction/deploy/CHANGELOG.md, in the
    package reduction-doc, says what has changed.

 -- $maintainer  $date
END
# Ubuntu 22.04 and Debian 11 have a gRPC that is too old: there is no package libreduction-grpc then
if [ -z "$(deploy/probe.sh function cc grpc/grpc_security.h grpc_channel_create -lgrpc -lgpr)" ]; then
	export DEB_BUILD_PROFILES="${DEB_BUILD_PROFILES-} pkg.reduction.nogrpc"
fi
(cd "$source" && dpkg-buildpackage --build=binary --no-sign --jobs="$(nproc)")
rm -rf "$source"
echo "packages in $out:"
ls "$out"/*.deb
