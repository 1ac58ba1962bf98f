/* SPDX-License-Identifier: Apache-2.0 */
#include "common/peer.h"

#include "common/address.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 512, WORD_DIGITS = 8 };

/* Parses an address of the table: its words in hexadecimal digits, each as this machine
 * stores it, a colon and the port. */
static bool peer_parse(struct rs_endpoint *ret, const char *text)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	struct sockaddr_in four = {.sin_family = AF_INET};
	uint32_t words[4] = {0};
	unsigned n = (unsigned)strcspn(text, ":") / WORD_DIGITS, port;

	if ((n != 1 && n != 4) || sscanf(text + (size_t)n * WORD_DIGITS, ":%x", &port) != 1)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (sscanf(text + (size_t)i * WORD_DIGITS, "%8" SCNx32, &words[i]) != 1)
			return false;
	six.sin6_port = four.sin_port = htons((uint16_t)port);
	memcpy(&six.sin6_addr, words, sizeof words);
	memcpy(&four.sin_addr, words, sizeof words[0]);
	return rs_endpoint_of_sockaddr(ret, n == 4 ? (struct sockaddr *)&six : (struct sockaddr *)&four);
}

/* Counts the sockets of a table that are connected from one end to a port, and those of
 * them that belong to others. */
static void peer_look(const char *table, const struct rs_endpoint *from, unsigned port, unsigned *all, unsigned *others)
{
	char line[LINE], own[64], far[64];
	struct rs_endpoint local, remote;
	FILE *f = fopen(table, "re");
	unsigned uid;

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, " %*[^:]: %63s %63s %*s %*s %*s %*s %u", own, far, &uid) != 3 ||
		    !peer_parse(&local, own) || !peer_parse(&remote, far) || memcmp(&local, from, sizeof local) != 0 ||
		    rs_endpoint_port(&remote) != port)
			continue;
		++*all;
		*others += uid != 0 && uid != geteuid();
	}
	if (f)
		fclose(f);
}

bool rs_peer_is_own(const char *address, unsigned port)
{
	struct rs_endpoint from;
	unsigned all = 0, others = 0;

	if (!rs_endpoint_of_text(&from, address))
		return false;
	peer_look("/proc/self/net/tcp", &from, port, &all, &others);
	peer_look("/proc/self/net/tcp6", &from, port, &all, &others);
	return all > 0 && !others;
}
