#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rpm.sh TREE PREFIX OUT VERSION MACHINE: makes the package OUT/reduction-VERSION-1.MACHINE.rpm from the
# folder TREE of 'make portable', whose units were made for PREFIX. The same commit makes
# the same bytes.
set -eu
tree=$(cd "$1" && pwd) prefix=$2 version=$4
out=$(mkdir -p "$3" && cd "$3" && pwd)
cd "$(dirname "$0")"

command -v rpmbuild >/dev/null || { echo "rpm: rpmbuild was not found: run deploy/install-deps.sh rpm" >&2; exit 1; }
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
rm -f "$out"/*.rpm
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
# RHEL 9 reads all of these; other distributions have other defaults
rpmbuild --quiet -bb --target "$5" --define "_topdir $top" --define "_rpmdir $out" \
	--define "_rpmfilename %{name}-%{version}-%{release}.%{arch}.rpm" \
	--define "version $version" --define "tree $tree" --define "deploy ${PWD%/rpm}" \
	--define "prefix_of_tree $prefix" --define "_buildhost reduction" \
	--define "_binary_payload w9.gzdio" --define "_binary_filedigest_algorithm 8" \
	--define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
	--define "source_date_epoch_from_changelog 0" reduction.spec
ls -l "$out"/*.rpm
