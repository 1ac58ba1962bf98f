#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# calm.sh WORD COMMAND [ARGUMENT...]
# Runs the command and shows a line every 2 seconds of what it prints on standard output: "  WORD: LINE (n lines, s)".
# Standard error is passed on. If the command fails, its last 30 lines are shown. The exit
# status is the command's.
set -u
word=$1
shift
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

show() {
	local line='' lines=0 shown=0 text status
	SECONDS=0
	while true; do
		IFS= read -r -t 1 text
		status=$?
		if [ $status = 0 ]; then
			line=$text lines=$((lines + 1))
			printf '%s\n' "$text" >>"$log"
		elif [ $status -le 128 ]; then # end of file; above 128 it is the time limit
			break
		fi
		if [ $SECONDS -ge $((shown + 2)) ] && [ -n "$line" ]; then
			shown=$SECONDS
			printf '  %s: %.70s (%d lines, %d s)\n' "$word" "$line" "$lines" "$shown"
		fi
	done
	[ $shown = 0 ] || echo "  $word: ended after $SECONDS s"
}

"$@" | show
status=${PIPESTATUS[0]}
if [ "$status" != 0 ]; then
	echo "$word: \"$*\" failed with exit status $status; the last lines of its output:"
	tail -n 30 "$log" | sed 's/^/    | /'
fi
exit "$status"
