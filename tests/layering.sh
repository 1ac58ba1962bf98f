#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layering.sh CC 'SERVER_CORE...' 'AGENT_CORE...' LIBRARY...
# Proves that the cores do no I/O, read no clock, start no thread and take no lock. Most of it the linker proves: each
# core is linked with those that follow it in its list and the libraries, and without libuv. So no core uses one that
# stands before it. What libc would still give it is looked for by name.
# Logging is allowed: a core is given its log, as it is given its memory.
set -u
read -ra cc <<<"$1"
lists=("$2" "$3")
shift 3
forbidden='uv_.*|pthread_.*|(mtx|cnd|thrd|sem)_.*|clock_gettime|time|gettimeofday|nanosleep|usleep|sleep'
forbidden+='|socket(pair)?|bind|listen|accept4?|connect|shutdown|send|sendto|sendm?msg|recv|recvfrom|recvm?msg'
forbidden+='|(pread|pwrite|read|write)v?(64)?|open(at)?(64)?|close|ioctl|fcntl(64)?|poll|ppoll|epoll_.*|select'
forbidden+='|mmap(64)?|munmap|f(open|close|read|write|puts|printf|flush)(64)?|v?printf|puts|perror'
forbidden+='|rand|random|getrandom|RAND_.*|getenv|fork|exec.*|kill|exit|_exit|signal|sigaction'
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
failed=0
for list in "${lists[@]}"; do
	read -ra below <<<"$list"
	while [ ${#below[@]} -gt 0 ]; do
		core=${below[0]} below=("${below[@]:1}")
		if ! "${cc[@]}" -shared -o "$out" -Wl,-z,defs -Wl,--whole-archive "$core" -Wl,--no-whole-archive "${below[@]}" "$@" \
			-lprotobuf-c -lxxhash -lyaml -lcrypto -lm; then
			echo "layering: $core does not link without libuv, or without the cores above it" >&2
			failed=1
		fi
		if found=$(nm -A -u -P "$core" | grep -E "]: (__)?($forbidden)(_chk|_2)? U"); then
			printf 'layering: %s\n' "$found" >&2
			failed=1
		fi
	done
done
[ $failed = 0 ] && echo "layering: ok: ${lists[*]}"
