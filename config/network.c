/* SPDX-License-Identifier: Apache-2.0 */
#include "config/network.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* How an IPv4 address begins in the form of IPv6. */
static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

enum { MAPPED_BITS = 8 * sizeof mapped, ALL_BITS = 128 };

/* Reads a number of at most three digits, without a zero in front. Returns -1 for any
 * other text. */
static int scan_bits(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	int v = 0;

	if (digits == 0 || digits > 3 || text[digits] || (text[0] == '0' && digits > 1))
		return -1;
	for (; *text; text++)
		v = v * 10 + (*text - '0');
	return v;
}

/* Sets all bits behind the first ones to 0. Returns whether they were. */
static bool cut(struct rs_network *net)
{
	uint8_t before[sizeof net->ip];

	memcpy(before, net->ip, sizeof before);
	for (unsigned i = 0; i < sizeof net->ip; i++) {
		unsigned kept = net->bits > 8 * i ? net->bits - 8 * i : 0;

		net->ip[i] &= (uint8_t)(kept < 8 ? 0xff00 >> kept : 0xff);
	}
	return memcmp(before, net->ip, sizeof before) == 0;
}

bool network_parse(struct rs_network *ret, bool *ret_exact, const char *text)
{
	const char *slash = strchr(text, '/');
	size_t n = slash ? (size_t)(slash - text) : strlen(text);
	struct rs_network net = {.bits = 0};
	char address[INET6_ADDRSTRLEN];
	int bits, skipped = 0;

	if (n >= sizeof address)
		return false;
	memcpy(address, text, n);
	address[n] = '\0';
	if (inet_pton(AF_INET6, address, net.ip) != 1) {
		skipped = MAPPED_BITS;
		memcpy(net.ip, mapped, sizeof mapped);
		if (inet_pton(AF_INET, address, net.ip + sizeof mapped) != 1)
			return false;
	}
	bits = slash ? scan_bits(slash + 1) : ALL_BITS - skipped;
	if (bits < 0 || bits > ALL_BITS - skipped)
		return false;
	net.bits = (uint8_t)(bits + skipped);
	*ret_exact = cut(&net);
	*ret = net;
	return true;
}

void network_format(const struct rs_network *net, char ret[static NETWORK_TEXT])
{
	bool v4 = net->bits >= MAPPED_BITS && memcmp(net->ip, mapped, sizeof mapped) == 0;
	char address[INET6_ADDRSTRLEN];

	inet_ntop(v4 ? AF_INET : AF_INET6, net->ip + (v4 ? sizeof mapped : 0), address, sizeof address);
	snprintf(ret, NETWORK_TEXT, "%s/%d", address, net->bits - (v4 ? MAPPED_BITS : 0));
}

bool network_contains(const struct rs_network *net, const uint8_t ip[static 16])
{
	struct rs_network of = {.bits = net->bits};

	memcpy(of.ip, ip, sizeof of.ip);
	cut(&of);
	return memcmp(of.ip, net->ip, sizeof of.ip) == 0;
}

bool network_overlaps(const struct rs_network *a, const struct rs_network *b)
{
	return a->bits < b->bits ? network_contains(a, b->ip) : network_contains(b, a->ip);
}
