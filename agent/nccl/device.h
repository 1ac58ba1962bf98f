/* SPDX-License-Identifier: Apache-2.0 */
/* The network device that the plugin shows to NCCL: one interface of this machine. */
#ifndef RS_AGENT_NCCL_DEVICE_H
#define RS_AGENT_NCCL_DEVICE_H

#include "common/error.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>

/* An IPv4 or IPv6 address with a port. */
union device_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* The device. */
struct device {
	char interface[IF_NAMESIZE];
	union device_address address; /* of the interface; port 0 */
	char pci[256];                /* path of its PCI device in /sys; "": none */
	int speed;                    /* Mbit/s */
	uint64_t id;                  /* a number of the interface on this machine */
};

static inline socklen_t device_address_len(const union device_address *a)
{
	return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

/* Finds the interface. `wanted` has the form of NCCL_SOCKET_IFNAME: prefixes of names,
 * separated by commas; "=" before them: whole names; "^": all but these. NULL: the
 * interface whose route leads to `peer` ("host:port"), else the first one that is up,
 * loopback last. May wait for name servers. Errors: RS_ECONFIG, RS_EIO. */
int device_find(struct device *ret, const char *wanted, const char *peer, struct rs_err *e);

#endif
