#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# compat.sh FOLDER MAKE...: builds the reducer, the agent and libreduction of the release
# before this one in FOLDER/tree, for tests/e2e/proto/test_compat.py. MAKE is the command
# that runs make. Exit status 77: there is no history.
set -eu
cd "$(dirname "$0")/.."
# the release before: the newest tag below HEAD; before the first release the commit from
# which on versions meet
first=efe56efd22961ed816dd53dc396c0f5d8c6668c1
folder=$1
shift
previous=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || echo $first)
if ! commit=$(git rev-parse --verify --quiet "$previous^{commit}"); then
	echo "compat: skipped: $previous is not in this copy of the history; a full clone has it" >&2
	exit 77
fi
if [ "$(cat "$folder/commit" 2>/dev/null)" != "$commit" ]; then
	rm -rf "$folder"
	mkdir -p "$folder/tree"
	git archive "$commit" | tar -x -C "$folder/tree"
	"$@" -C "$folder/tree" BUILD=build SAN= WERROR= GRPC=off build/default/bin/reduction-server \
		build/default/bin/reduction-agent build/default/lib/libreduction.so
	echo "$commit" >"$folder/commit"
fi
