#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh LIBCUDART FOLDER: builds the fake CUDA into FOLDER, as libcudart.so.13,
# libcuda.so.1 and libnvidia-ml.so.1. LIBCUDART is NVIDIA's libcudart.so.13, of which only
# the list of names is read: all of them must be there.
set -eu
names=$1 out=$2
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for source in tests/torch_cuda/*.c; do
	${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -g -fPIC -Wall -Wextra -I. -c "$source" -o "$work/$(basename "$source" .c).o"
done
nm -D --defined-only "$names" | sed -n 's/.* T \([^@]*\).*/\1/p' | sort -u >"$work/wanted"
nm --defined-only -g "$work"/*.o | sed -n 's/.* T //p' | sort -u >"$work/made"
{
	echo 'long fake_missing(const char *name);'
	comm -23 "$work/wanted" "$work/made" | sed 's/.*/long &(void) { return fake_missing("&"); }/'
} >"$work/missing.c"
${CC:-cc} -w -fPIC -c "$work/missing.c" -o "$work/missing.o"
cat >"$work/versions" <<'V'
libcudart.so.13 { global: cuda*; __cuda*; local: *; };
FAKE { global: cu[A-Z]*; nvml*; };
V
mkdir -p "$out"
${CC:-cc} -shared -o "$out/libcudart.so.13" "$work"/*.o -Wl,-soname,libcudart.so.13 \
	-Wl,--version-script="$work/versions" -pthread -ldl
ln -sf libcudart.so.13 "$out/libcuda.so.1"
ln -sf libcudart.so.13 "$out/libnvidia-ml.so.1"
