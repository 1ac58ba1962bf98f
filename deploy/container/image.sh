#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh FOLDER [--mmdebstrap] [ARGUMENT]...: builds the container image "reduction"
# with podman or buildah, writes it to FOLDER/reduction.tar (an OCI archive, for podman
# load), and prints its files and its size. ARGUMENTs are those of podman build. The
# programs are built in an image of Debian; with --mmdebstrap that one is made from
# Debian's packages, on a machine that reaches a mirror of Debian but no registry.
set -eu
cd "$(dirname "$0")/../.."
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift

tool=$(command -v podman || command -v buildah) || { echo "image: found neither podman nor buildah" >&2; exit 1; }
if [ "${1-}" = --mmdebstrap ]; then
	shift
	command -v mmdebstrap >/dev/null || { echo "image: mmdebstrap was not found" >&2; exit 1; }
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	# without documents and translations, as Debian's own slim images
	mmdebstrap --quiet --variant=apt --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$folder/base.tar"
	printf '%s\n' 'FROM scratch' 'ADD base.tar /' \
		'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' >"$folder/Containerfile"
	"$tool" build -t localhost/reduction-base "$folder"
	set -- --build-arg BASE=localhost/reduction-base "$@"
fi
"$tool" build -f deploy/container/Containerfile --ignorefile deploy/container/ignore -t reduction "$@" .
rm -f "$out/reduction.tar"
"$tool" push --quiet reduction "oci-archive:$out/reduction.tar:reduction"
python3 deploy/container/layers.py "$out/reduction.tar"
