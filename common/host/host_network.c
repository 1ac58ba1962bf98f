/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of TCP in this process's network namespace, for reductionctl
 * doctor. A part that cannot be read is missing. */
#include "common/host/host_state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SETTINGS "/proc/sys/net/ipv4/"

/* Reads a setting without the end of its line. Returns false if there is none. */
static bool network_read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

/* Reads three numbers of bytes. Returns how many there are: 3, or 0. */
static size_t network_buffers(struct status_reply *to, const char *path, uint64_t **ret)
{
	char text[128];
	uint64_t *of = status_reply_take(to, 3 * sizeof *of);

	if (!of || !network_read(path, text, sizeof text) ||
	    sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &of[0], &of[1], &of[2]) != 3)
		return 0;
	*ret = of;
	return 3;
}

void host_network(struct status_reply *to, uint64_t bandwidth)
{
	Reduction__V1__NetworkStatus *n = status_reply_message(to, &reduction__v1__network_status__descriptor);
	char text[64];

	if (!n)
		return;
	n->n_rmem = network_buffers(to, SETTINGS "tcp_rmem", &n->rmem);
	n->n_wmem = network_buffers(to, SETTINGS "tcp_wmem", &n->wmem);
	n->slow_start_after_idle =
	    network_read(SETTINGS "tcp_slow_start_after_idle", text, sizeof text) && strcmp(text, "0") != 0;
	if (network_read(SETTINGS "tcp_congestion_control", text, sizeof text))
		n->congestion_control = status_reply_text(to, text);
	n->bandwidth = bandwidth;
	to->m.network = n;
}
