#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# folders.sh make LIST FOLDER...   makes the folders, and appends to LIST the ones that did not exist, parents first
# folders.sh remove LIST           removes those folders again, as far as they are empty, and LIST with its own folder
# 'make install' and 'make uninstall' use it, so that no empty folder of ours stays
# behind.
set -eu

make_folder() { # with its parents
	[ -d "$1" ] && return
	make_folder "$(dirname "$1")"
	mkdir -m 755 "$1"
	made="$made$1
"
}

command=$1 list=$2
shift 2
made=
case $command in
make)
	for folder in "$@"; do make_folder "$folder"; done
	[ -z "$made" ] || printf '%s' "$made" >>"$list"
	;;
remove)
	if [ -f "$list" ]; then made=$(cat "$list"); fi
	rm -f "$list"
	rmdir "$(dirname "$list")" 2>/dev/null || true
	printf '%s\n' "$made" | tac | while IFS= read -r folder; do
		[ -z "$folder" ] || rmdir "$folder" 2>/dev/null || true
	done
	;;
*)
	echo "folders.sh: found \"$command\", expected make or remove" >&2
	exit 2
	;;
esac
