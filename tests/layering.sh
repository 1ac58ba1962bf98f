#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layering.sh CC SERVER_CORE AGENT_CORE LIBRARY...
# Proves that the cores do no I/O, read no clock, start no thread and take no lock. Most of it the linker proves: each
# core is linked with the given archives and without libuv. What libc would still give it is looked for by name.
# Logging is allowed: a core is given its log, as it is given its memory.
set -u
cc=$1 cores=("$2" "$3")
shift 3
forbidden='uv_.*|pthread_.*|(mtx|cnd|thrd|sem)_.*|clock_gettime|time|gettimeofday|nanosleep|usleep|sleep'
forbidden+='|socket(pair)?|bind|listen|accept4?|connect|shutdown|send|sendto|sendm?msg|recv|recvfrom|recvm?msg'
forbidden+='|(pread|pwrite|read|write)v?(64)?|open(at)?(64)?|close|ioctl|fcntl(64)?|poll|ppoll|epoll_.*|select'
forbidden+='|mmap(64)?|munmap|f(open|close|read|write|puts|printf|flush)(64)?|v?printf|puts|perror'
forbidden+='|rand|random|getrandom|RAND_.*|getenv|fork|exec.*|kill|exit|_exit|signal|sigaction'
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
failed=0
for core in "${cores[@]}"; do
	if ! "$cc" -shared -o "$out" -Wl,-z,defs -Wl,--whole-archive "$core" -Wl,--no-whole-archive "$@" \
		-lprotobuf-c -lxxhash -lyaml -lcrypto -lm; then
		echo "layering: $core does not link without libuv" >&2
		failed=1
	fi
	if found=$(nm -A -u -P "$core" | grep -E "]: (__)?($forbidden)(_chk|_2)? U"); then
		printf 'layering: %s\n' "$found" >&2
		failed=1
	fi
done
[ $failed = 0 ] && echo "layering: ok: ${cores[*]}"
