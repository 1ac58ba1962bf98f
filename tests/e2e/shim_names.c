/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process: names that end with ".test" have the addresses
 * that the file REDUCTION_NAMES gives, in lines of a name and an address; without such a
 * line they do not exist. */
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
						       struct addrinfo **ret)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	const char *end = host ? strrchr(host, '.') : NULL, *path = getenv("REDUCTION_NAMES");
	char name[64], address[64];
	FILE *names;
	int rc = EAI_NONAME;

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (!end || strcmp(end, ".test") != 0 || (hints && hints->ai_flags & AI_NUMERICHOST))
		return real(host, port, hints, ret);
	names = path ? fopen(path, "re") : NULL;
	while (names && rc && fscanf(names, "%63s %63s", name, address) == 2)
		if (strcmp(name, host) == 0)
			rc = real(address, port, hints, ret);
	if (names)
		fclose(names);
	return rc;
}
