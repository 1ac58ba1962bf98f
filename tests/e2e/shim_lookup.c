/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process whose name servers do not answer: lookups of names
 * never end. The file that REDUCTION_LOOKUPS names gets a byte for each lookup that
 * began. */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
						       struct addrinfo **ret)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	const char *path = getenv("REDUCTION_LOOKUPS");
	int fd;

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (!hints || hints->ai_flags & AI_NUMERICHOST)
		return real(host, port, hints, ret);
	fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	if (fd >= 0 && write(fd, "x", 1) == 1)
		for (;;)
			pause();
	return EAI_AGAIN;
}
