/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/nccl/device.h"
#include "common/address.h"

#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	DEVICE_SPEED_UNKNOWN = 10000, /* Mbit/s, as NCCL assumes */
	DEVICE_SPEED_MIN = 1000,      /* NCCL makes no collective network of slower devices */
};

/* Returns whether a name matches the list, see device_find. */
static bool device_matches(const char *wanted, const char *name)
{
	bool inverted = *wanted == '^', whole, found = false;
	const char *at = wanted + inverted;

	whole = *at == '=';
	at += whole;
	while (*at && !found) {
		size_t n = strcspn(at, ",");

		found = n > 0 && strncmp(at, name, n) == 0 && (!whole || !name[n]);
		at += n + (at[n] == ',');
	}
	return found != inverted;
}

static bool device_same_host(const struct sockaddr *a, const union device_address *b)
{
	if (a->sa_family != b->any.sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == b->v4.sin_addr.s_addr;
	return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &b->v6.sin6_addr, sizeof b->v6.sin6_addr) == 0;
}

/* Finds the own address from which packets to an address leave. */
static bool device_route(union device_address *ret, const struct addrinfo *to)
{
	int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* a connected UDP socket sends nothing */
	socklen_t len = sizeof *ret;
	bool found;

	if (fd < 0)
		return false;
	found = connect(fd, to->ai_addr, to->ai_addrlen) == 0 && getsockname(fd, &ret->any, &len) == 0;
	close(fd);
	return found;
}

static bool device_route_to(union device_address *ret, const char *peer)
{
	struct addrinfo *found, hints = {.ai_socktype = SOCK_DGRAM};
	struct rs_host_port to;
	bool routed = false;

	if (rs_host_port_split(&to, peer, false, NULL) || getaddrinfo(to.host, to.port, &hints, &found))
		return false;
	for (const struct addrinfo *a = found; a && !routed; a = a->ai_next)
		routed = device_route(ret, a);
	freeaddrinfo(found);
	return routed;
}

/* Returns how well an address suits; 0: not at all. */
static int device_rank(const struct ifaddrs *a, const char *wanted, const union device_address *own)
{
	bool v6;

	if (!a->ifa_addr || !(a->ifa_flags & IFF_UP))
		return 0;
	v6 = a->ifa_addr->sa_family == AF_INET6;
	if (!v6 && a->ifa_addr->sa_family != AF_INET)
		return 0;
	if (v6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a->ifa_addr)->sin6_addr))
		return 0;
	if (wanted)
		return device_matches(wanted, a->ifa_name) ? 4 - v6 : 0;
	if (own && device_same_host(a->ifa_addr, own))
		return 9;
	return (a->ifa_flags & IFF_LOOPBACK) ? 2 - v6 : 4 - v6;
}

/* Reads what the kernel knows of the interface. */
static void device_describe(struct device *d)
{
	char path[64 + IF_NAMESIZE], real[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof path, "/sys/class/net/%s/device", d->interface);
	if (realpath(path, real) && strlen(real) < sizeof d->pci)
		memcpy(d->pci, real, strlen(real) + 1);
	snprintf(path, sizeof path, "/sys/class/net/%s/speed", d->interface);
	f = fopen(path, "re");
	if (f && (fscanf(f, "%d", &d->speed) != 1 || d->speed <= 0))
		d->speed = DEVICE_SPEED_UNKNOWN;
	if (f)
		fclose(f);
	d->speed = d->speed < DEVICE_SPEED_MIN ? DEVICE_SPEED_MIN : d->speed;
	d->id = if_nametoindex(d->interface);
}

int device_find(struct device *ret, const char *wanted, const char *peer, struct rs_err *e)
{
	struct device d = {.speed = DEVICE_SPEED_UNKNOWN};
	const struct ifaddrs *best = NULL;
	union device_address own;
	struct ifaddrs *all;
	bool routed = !wanted && device_route_to(&own, peer);
	int best_rank = 0;

	if (getifaddrs(&all))
		return rs_fail(e, RS_EIO, "the network interfaces of this machine cannot be listed");
	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		int rank = device_rank(a, wanted, routed ? &own : NULL);

		if (rank > best_rank) {
			best = a;
			best_rank = rank;
		}
	}
	if (best) {
		snprintf(d.interface, sizeof d.interface, "%s", best->ifa_name);
		memcpy(&d.address, best->ifa_addr,
		       best->ifa_addr->sa_family == AF_INET ? sizeof d.address.v4 : sizeof d.address.v6);
	}
	freeifaddrs(all);
	if (!best_rank && wanted)
		return rs_fail(e, RS_ECONFIG,
			       "NCCL_SOCKET_IFNAME is \"%s\", and no interface with that name is up and has an address",
			       wanted);
	if (!best_rank)
		return rs_fail(e, RS_EIO, "no network interface is up and has an address");
	device_describe(&d);
	*ret = d;
	return RS_OK;
}
