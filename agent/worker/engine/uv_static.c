/* SPDX-License-Identifier: Apache-2.0 */
/* For shared libraries of this tree that bring their own libuv: nobody else uses its
 * allocator.
 *
 * Debian's static libuv is compiled for programs: it refers to variables of the C library
 * in a way that a shared library may not. The linker (--wrap) leads these references to
 * the copies here, whose names it chooses. */
#include "common/loop_uv.h"

#include <netinet/in.h>
#include <stdio.h>

extern char **__wrap_environ, **__real_environ;
extern FILE *__wrap_stderr, *__real_stderr;
extern const struct in6_addr __wrap_in6addr_any;

char **__wrap_environ;
FILE *__wrap_stderr;
const struct in6_addr __wrap_in6addr_any = IN6ADDR_ANY_INIT;

__attribute__((constructor)) static void uv_static_begin(void)
{
	rs_loop_own_libuv();
	__wrap_environ = __real_environ;
	__wrap_stderr = __real_stderr;
}
