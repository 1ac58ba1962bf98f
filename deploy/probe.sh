#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints "yes" if this machine has something that the build can use, else nothing. Exit
# status 0 in both cases, 2 for wrong usage. Each probe tries the thing itself: it
# compiles, links or runs it. deploy/detect.mk calls it.
set -u

usage() {
	cat <<-'END'
	Usage: probe.sh program NAME                        NAME can be run
	       probe.sh package PKG_CONFIG NAME...          the command PKG_CONFIG knows all packages NAME
	       probe.sh option COMPILER OPTION              COMPILER accepts OPTION without a warning
	       probe.sh macro COMPILER NAME                 COMPILER defines the macro NAME
	       probe.sh header LANGUAGE COMPILER HEADER [LIBRARY...]
	                                                    a program of LANGUAGE (c, c++) that includes HEADER compiles
	                                                    and links with each LIBRARY (-lNAME)
	       probe.sh function COMPILER HEADER NAME [OPTION...]
	                                                    HEADER declares NAME, and each OPTION (-lNAME) has it
	       probe.sh shared COMPILER ARCHIVE VARIABLE...  ARCHIVE can be in a shared library that brings its own VARIABLE
	                                                    for each one of the C library's (ld --wrap)
	Prints yes or nothing. COMPILER and PKG_CONFIG may contain options.
	END
}

[ $# -ge 2 ] || [ "${1-}" = --help ] || [ "${1-}" = -h ] || {
	usage >&2
	exit 2
}
kind=$1
shift
case $kind in
--help | -h)
	usage
	exit 0
	;;
program)
	command -v "$1" >/dev/null 2>&1 && echo yes
	;;
package)
	pkg_config=$1
	shift
	# shellcheck disable=SC2086 # a command with options
	[ $# -gt 0 ] && $pkg_config --exists "$@" >/dev/null 2>&1 && echo yes
	;;
option)
	# shellcheck disable=SC2086
	$1 -Werror "$2" -c -x c /dev/null -o /dev/null >/dev/null 2>&1 && echo yes
	;;
macro)
	# shellcheck disable=SC2086
	$1 -dM -E -x c /dev/null 2>/dev/null | grep -q "^#define $2 " && echo yes
	;;
header)
	language=$1 compiler=$2 header=$3
	shift 3
	out=$(mktemp) || exit 0
	# shellcheck disable=SC2086
	printf '#include <%s>\nint main(void) { return 0; }\n' "$header" |
		$compiler -x "$language" - -o "$out" "$@" >/dev/null 2>&1 && echo yes
	rm -f "$out"
	;;
function)
	compiler=$1 header=$2 name=$3
	shift 3
	out=$(mktemp) || exit 0
	# shellcheck disable=SC2086
	printf '#include <%s>\nvoid *p;\nint main(void) { p = (void *)%s; return 0; }\n' "$header" "$name" |
		$compiler -x c - -o "$out" "$@" >/dev/null 2>&1 && echo yes
	rm -f "$out"
	;;
shared)
	compiler=$1 archive=$2
	shift 2
	out=$(mktemp) || exit 0
	wrap=
	for variable in "$@"; do wrap="$wrap -Wl,--wrap=$variable"; done
	# shellcheck disable=SC2086
	printf 'void *__wrap_%s;\n' "$@" | $compiler -shared -fPIC -fvisibility=hidden -o "$out" $wrap -x c - -x none \
		-Wl,--whole-archive "$archive" -Wl,--no-whole-archive >/dev/null 2>&1 && [ -f "$archive" ] && echo yes
	rm -f "$out"
	;;
*)
	usage >&2
	exit 2
	;;
esac
exit 0
