/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process: the name two.test has two addresses, 127.0.0.2 and
 * then 127.0.0.1. */
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
						       struct addrinfo **ret)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	struct addrinfo *last;
	int rc;

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (!host || strcmp(host, "two.test") != 0)
		return real(host, port, hints, ret);
	rc = real("127.0.0.2", port, hints, ret);
	if (rc)
		return rc;
	for (last = *ret; last->ai_next;)
		last = last->ai_next;
	return real("127.0.0.1", port, hints, &last->ai_next);
}
