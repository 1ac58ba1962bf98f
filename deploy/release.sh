#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# release.sh VERSION FOLDER [OPTION]...: builds all artefacts of a release into FOLDER, checks
# them here and in bare roots (tests/fresh/fresh.py, with the OPTIONs), and writes their
# SHA256SUMS. MAKE is the command make. It refuses a tree with changes, another version than
# that of the tree, and a changelog without an entry for it.
set -eu
cd "$(dirname "$0")/.."
version=$1 out=$2 make=${MAKE:-make}
shift 2

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
$make wheel rpm deb aarch64
for from in "$build" "$build/aarch64"; do
	cp "$from"/wheel/*.whl "$from"/portable-archive/*.tar.gz "$from"/rpm/*.rpm "$out"
done
cp "$build"/deb/*.deb "$out"
rm -f "$out"/*-dbgsym_*
for kind in whl tar.gz rpm deb; do
	for file in "$out"/*."$kind"; do
		case $file in *"$version"*) ;; *) refuse "$file is not of version $version" ;; esac
	done
done
python=${PYTHON:-/usr/bin/python3}
for test in wheel portable aarch64 packages; do
	PYTHONPATH=tests/e2e "$python" "tests/e2e/deploy/test_$test.py"
done
"$python" tests/fresh/fresh.py --debian 12 --roots build-essential --steps wheel,archive --cache "$build/fresh" \
	--artefacts "$out" "$@"
(cd "$out" && sha256sum -- * >SHA256SUMS)
cat "$out/SHA256SUMS"
