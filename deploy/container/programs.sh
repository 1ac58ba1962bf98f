#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# programs.sh FOLDER GRPC PROCESSOR: builds what of ours the container image has, with gRPC if
# GRPC is "on", into FOLDER/bin and FOLDER/lib. PROCESSOR is as Debian names it: that of this
# machine, or arm64, whose root with libraries is build/aarch64/root.
set -eu
cd "$(dirname "$0")/../.."
out=$1 grpc=$2 processor=$3

files=(bin/reduction-server bin/reduction-agent bin/reductionctl bin/reduction-bench lib/libreduction.so.0)
[ "$grpc" != on ] || files+=(lib/libreduction-grpc.so)
case $processor in
"$(dpkg --print-architecture)")
	build=build/default strip=strip
	make -j"$(nproc)" CFLAGS=-O2 GRPC="$grpc" "${files[@]/#/$build/}"
	;;
arm64)
	build=$PWD/build/aarch64/default strip=aarch64-linux-gnu-strip
	deploy/cross.sh aarch64 build/aarch64 -j"$(nproc)" CFLAGS=-O2 GRPC="$grpc" "${files[@]/#/$build/}"
	;;
*)
	echo "programs: processor: found $processor, expected $(dpkg --print-architecture) or arm64" >&2
	exit 1
	;;
esac
mkdir -p "$out/bin" "$out/lib"
for file in "${files[@]}"; do "$strip" -o "$out/$file" "$build/$file"; done
