#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bundle.sh BUILD FOLDER: collects in FOLDER what check-gpu needs on a machine that has a
# C library, a driver and NCCL, and no packages. bin/ and lib/ have our programs and
# libraries and the shared objects that they need, all of which find each other by
# $ORIGIN. FOLDER/GLIBC says which version of the C library is needed.
set -eu

build=$1 out=$2
limit=$((64 << 20))
for tool in patchelf strip ldd objdump ip tc; do
	command -v $tool >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || {
		echo "gpu-bundle: $tool was not found: run deploy/install-deps.sh test" >&2
		exit 1
	}
done
PATH=$PATH:/usr/sbin:/sbin
rm -rf "$out"
mkdir -p "$out/bin" "$out/lib" "$out/python"

add() { # FOLDER FILE...: copies files without their debugging symbols
	local to=$1
	shift
	for f in "$@"; do
		cp -L "$f" "$to"
		strip --strip-unneeded "$to/${f##*/}"
	done
}
add "$out/bin" "$build"/bin/* "$build"/tests/gpu/check-gpu "$build"/tests/gpu/gpu-* "$build/tests/nccl/exercise" \
	"$(command -v ip)" "$(command -v tc)"
add "$out/lib" "$build/lib/libreduction.so.0" "$build/lib/libnccl-net-reduction.so"
[ ! -e "$build/lib/libreduction-grpc.so" ] || add "$out/lib" "$build/lib/libreduction-grpc.so"
cp -r agent/python/reduction "$out/python"
cp -r tests/gpu/pytorch "$out"
cp agent/examples/ddp_transformer.py tests/torch_cuda/programs.py "$out/pytorch"
cp tests/torch_cuda/rank.py "$out/pytorch/cuda_rank.py"
find "$out/python" "$out/pytorch" -name __pycache__ -prune -exec rm -r {} +

# the C library comes from the machine: its driver and NCCL need its own
base='/(ld-linux[^/]*|lib(c|m|dl|pthread|rt|resolv|util|anl|nss_[a-z]*))\.so[.0-9]*$'
ldd "$out"/bin/* "$out"/lib/*.so* | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u | grep -vE "$base" |
	while read -r f; do [ -e "$out/lib/${f##*/}" ] || add "$out/lib" "$f"; done
for f in "$out"/bin/*; do patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$f"; done
for f in "$out"/lib/*; do patchelf --force-rpath --set-rpath "\$ORIGIN" "$f"; done
objdump -T "$out"/bin/* "$out"/lib/* | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1 | sed 's/GLIBC_//' >"$out/GLIBC"

size=$(du -sb "$out" | cut -f 1)
if [ "$size" -gt $limit ]; then
	echo "gpu-bundle: $out has $size bytes, at most $limit are allowed" >&2
	exit 1
fi
echo "$out: $((size >> 10)) KiB, needs C library $(cat "$out/GLIBC")"
