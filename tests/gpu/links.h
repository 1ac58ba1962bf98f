/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts with shaped links on one machine: each host is a network namespace, and all are
 * connected by a bridge in one more. A process in each namespace keeps it; nothing is
 * left when they end. It needs root. */
#ifndef RS_TESTS_GPU_LINKS_H
#define RS_TESTS_GPU_LINKS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { LINKS_HOSTS_MAX = 9 };

/* Invariant: hosts[0 .. n) and bridge are processes that sleep in their namespaces. */
struct links {
	pid_t bridge;
	pid_t hosts[LINKS_HOSTS_MAX];
	int n;
};

/* Makes n hosts whose links carry `mbit` Mbit/s in each direction. False: `why` says what
 * does not work here. */
bool links_start(struct links *l, int n, int mbit, char *why, size_t room);
void links_stop(struct links *l);

/* Writes the address of host i. */
void links_address(char *to, size_t room, int i);

#endif
