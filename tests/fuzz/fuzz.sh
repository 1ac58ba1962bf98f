#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh list               lists the targets
# fuzz.sh run TARGET SECONDS fuzzes; new inputs stay in $BUILD/corpus/TARGET, findings are
# $BUILD/found-TARGET-*
# fuzz.sh merge TARGET       copies into tests/fuzz/corpus/TARGET the inputs that together reach most code
# fuzz.sh coverage           shows the code of parsers and cores that the committed inputs reach, by file
# 'make fuzz' sets BUILD (a folder), MAKE and the rest.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
make=${MAKE:-make}
corpora=tests/fuzz/corpus
san=address,undefined,fuzzer-no-link

targets() {
	for source in tests/fuzz/fuzz_*.c; do
		basename "$source" .c | sed s/^fuzz_//
	done
}

list() {
	echo "make fuzz TARGET=... SECONDS=...; targets:"
	for target in $(targets); do
		printf '  %-8s %s\n' "$target" "$(sed -n '2s|^/\* \([^.:]*\).*|\1|p' "tests/fuzz/fuzz_$target.c")"
	done
}

prepare() { # TARGET: builds it with libFuzzer; sets bin
	if ! targets | grep -qx "$1"; then
		echo "fuzz: there is no target '$1'" >&2
		list >&2
		exit 2
	fi
	bin=$build/${san//,/-}/tests/fuzz/fuzz_$1
	"$make" -j"$(nproc)" BUILD="$build" CC=clang SAN=$san "$bin"
	mkdir -p "$build/corpus/$1" "$corpora/$1"
}

longest() { # TARGET: bytes of an input that are worth trying
	case $1 in
	config) echo 4096 ;;
	server | worker | agent | service | cluster) echo 1024 ;;
	*) echo 512 ;;
	esac
}

run() {
	local more=()
	prepare "$1"
	if [ -f "tests/fuzz/$1.dict" ]; then more+=(-dict="tests/fuzz/$1.dict"); fi
	if [ "$1" = config ]; then more+=(config/examples); fi
	"$bin" -max_total_time="$2" -max_len="$(longest "$1")" -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 \
		-artifact_prefix="$build/found-$1-" "$build/corpus/$1" "$corpora/$1" "${more[@]}"
}

most() { # TARGET: inputs that are kept; what a parser refuses ends an input, so it takes many
	case $1 in
	config) echo 60 ;;
	server | worker | agent | service) echo 30 ;;
	value | launch) echo 18 ;;
	*) echo 14 ;;
	esac
}

merge() {
	prepare "$1"
	tests/fuzz/choose.py "$bin" "$(most "$1")" "$corpora/$1" "$build/corpus/$1"
}

coverage() {
	local b=$build/coverage/default objects=() program
	"$make" -j"$(nproc)" BUILD="$build/coverage" CC=clang CFLAGS='-O1 -g -fprofile-instr-generate -fcoverage-mapping' \
		LDFLAGS=-fprofile-instr-generate fuzz-programs
	rm -f "$b"/*.profraw
	for target in $(targets); do
		program=$b/tests/fuzz/fuzz_$target
		LLVM_PROFILE_FILE=$b/$target.profraw "$program" "$corpora/$target" >"$b/$target.log"
		objects+=(-object "$program") # the last one is also the first argument, which llvm-cov wants to be a program
	done
	llvm-profdata merge -o "$b/all.profdata" "$b"/*.profraw
	printf '%-28s %7s %7s %8s\n' file lines missed reached
	llvm-cov report "$program" -instr-profile "$b/all.profdata" "${objects[@]}" \
		proto/*.c config/{cluster,cluster_spec,config,launch,print,schema,shardmap,value,ydoc}.c \
		server/{core/{lane,session*,slot,stripe*},jobs/{events,registry,status},join/handshake,control/service*}.c \
		agent/{core/{exchange*,link*,window},local/*}.c |
		awk '/\.c / || /^TOTAL/ { printf "%-28s %7s %7s %8s\n", $1, $8, $9, $10 }'
}

case ${1-list} in
list) list ;;
run) run "$2" "$3" ;;
merge) merge "$2" ;;
coverage) coverage ;;
*)
	echo "fuzz.sh: $1: expected list, run, merge or coverage" >&2
	exit 2
	;;
esac
