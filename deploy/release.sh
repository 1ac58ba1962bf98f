#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# release.sh VERSION FOLDER: builds all artefacts of a release into FOLDER, checks them, and
# writes their SHA256SUMS. MAKE is the command make. It refuses a tree with changes, another
# version than that of the tree, and a changelog without an entry for it.
set -eu
cd "$(dirname "$0")/.."
version=$1 out=$2 make=${MAKE:-make}

refuse() {
	echo "release: $*" >&2
	exit 1
}
own=$(sed -n 's/^.define RS_VERSION "\(.*\)"/\1/p' common/version.h)
[ -n "$version" ] || refuse "found no VERSION: make release VERSION=$own"
[ "$version" = "$own" ] || refuse "VERSION: found $version, expected $own, that of common/version.h"
changed=$(git status --porcelain) || refuse "this is not a clone of the repository"
[ -z "$changed" ] || refuse "the tree has changes that are not committed: $(head -n 3 <<<"$changed")"
grep -q "^## \[\?${version//./\\.}\]\?\( \|$\)" deploy/CHANGELOG.md ||
	refuse "deploy/CHANGELOG.md: found no entry \"## $version\", expected what is new in it"

rm -rf "${out:?}"
mkdir -p "$out"
build=$(dirname "$out")
$make wheel rpm deb
cp "$build"/wheel/*.whl "$build"/portable-archive/*.tar.gz "$build"/rpm/*.rpm "$build"/deb/*.deb "$out"
rm -f "$out"/*-dbgsym_*
for kind in whl tar.gz rpm deb; do
	for file in "$out"/*."$kind"; do
		case $file in *"$version"*) ;; *) refuse "$file is not of version $version" ;; esac
	done
done
for test in wheel portable; do
	PYTHONPATH=tests/e2e "${PYTHON:-/usr/bin/python3}" "tests/e2e/deploy/test_$test.py"
done
(cd "$out" && sha256sum -- * >SHA256SUMS)
cat "$out/SHA256SUMS"
