#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tarball.sh TREE STAGE PREFIX OUT NAME: writes OUT/NAME.tar.gz, for machines without Python.
# TREE has the programs that carry their libraries (make portable-tree), STAGE what 'make
# install DESTDIR=STAGE PREFIX=PREFIX' has installed. The same commit makes the same bytes.
set -eu
tree=$1 stage=$2 prefix=$3 out=$4 name=$5
folder=$out/$name

rm -rf "$folder"
mkdir -p "$out"
mv "$stage$prefix" "$folder"
rm -rf "$stage" "${folder:?}/bin" "$folder/lib/python" "$folder"/lib/lib*.so*
cp -R "$tree/bin" "$tree/licenses" "$tree/sbom.cdx.json" "$folder"
cp "$tree"/lib/* "$folder/lib"
ln -s libreduction.so.0 "$folder/lib/libreduction.so"
# the folder may be moved, so pkg-config must find it by the place of this file
sed -i "s|^prefix=.*|prefix=\${pcfiledir}/../..|; s|$prefix/|\${prefix}/|" "$folder/lib/pkgconfig/reduction.pc"

time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
chmod -R u=rwX,go=rX "$folder"
tar -c --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$time" -C "$out" "$name" |
	gzip -9n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz: $(stat -c %s "$out/$name.tar.gz") bytes"
