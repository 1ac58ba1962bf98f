#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# image.sh FOLDER [--mmdebstrap] [--platforms LIST] [ARGUMENT]...: builds the container image
# "reduction" with podman or buildah, writes it to FOLDER/reduction.tar (an OCI archive, for
# podman load), and prints its files and its size. ARGUMENTs are those of podman build. The
# programs are built in an image of Debian; with --mmdebstrap that one is made from
# Debian's packages, on a machine that reaches a mirror of Debian but no registry. LIST is
# such as linux/amd64,linux/arm64: one image for several kinds of processor. Those of this
# machine and arm64 can be made. QEMU (qemu-user-static with binfmt_misc) runs programs of
# foreign ones.
set -eu
cd "$(dirname "$0")/../.."
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift

tool=$(command -v podman || command -v buildah) || { echo "image: found neither podman nor buildah" >&2; exit 1; }
case $(uname -m) in
x86_64) own=linux/amd64 ;;
aarch64) own=linux/arm64 ;;
*) own=linux/$(uname -m) ;;
esac
bare=
if [ "${1-}" = --mmdebstrap ]; then bare=yes && shift; fi
platforms=
if [ "${1-}" = --platforms ]; then
	platforms=${2:?"--platforms: found no list, expected one such as linux/amd64,linux/arm64"}
	shift 2
fi

# a list of images has another name in podman and buildah than an image
named() { # NAME: the arguments of build for this name
	if [ -z "$platforms" ]; then printf '%s\n' -t "$1"; else printf '%s\n' --manifest "$1"; fi
}
forget() { # NAME: build adds to a list that is there
	[ -z "$platforms" ] || "$tool" rmi "$1" >/dev/null 2>&1 || "$tool" manifest rm "$1" >/dev/null 2>&1 || true
}
make_base() { # PLATFORM
	# without documents and translations, as Debian's own slim images
	mmdebstrap --quiet --variant=apt --arch="${1#linux/}" --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$folder/base.tar"
	printf '%s\n' 'FROM scratch' 'ADD base.tar /' \
		'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' >"$folder/Containerfile"
	"$tool" build --platform "$1" "${base[@]}" "$folder"
}
if [ -n "$bare" ]; then
	command -v mmdebstrap >/dev/null || { echo "image: mmdebstrap was not found" >&2; exit 1; }
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	mapfile -t base < <(named localhost/reduction-base)
	forget localhost/reduction-base
	each=${platforms:-$own}
	[[ ,$each, = *,$own,* ]] || each=$own,$each # the one that builds
	for platform in ${each//,/ }; do make_base "$platform"; done
	set -- --build-arg BASE=localhost/reduction-base "$@"
fi
mapfile -t image < <(named reduction)
forget reduction
"$tool" build -f deploy/container/Containerfile --ignorefile deploy/container/ignore "${image[@]}" \
	--platform "${platforms:-$own}" --build-arg "BUILDPLATFORM=$own" "$@" .
rm -f "$out/reduction.tar"
if [ -z "$platforms" ]; then
	"$tool" push --quiet reduction "oci-archive:$out/reduction.tar:reduction"
else
	"$tool" manifest push --quiet --all reduction "oci-archive:$out/reduction.tar:reduction"
fi
python3 deploy/container/layers.py "$out/reduction.tar"
