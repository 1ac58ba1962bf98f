/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/links.h"
#include "tests/gpu/proc.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
	LINKS_SEGMENTS = 44,                 /* packets of 1514 bytes that the kernel handles at once, 64 KiB */
	LINKS_BURST = LINKS_SEGMENTS * 1514, /* bytes that may pass at once */
	LINKS_QUEUE_MS = 5,                  /* of the switch's port */
	LINKS_HOST_QUEUE = 1000 * 1514,      /* bytes */
};

void links_address(char *to, size_t room, int i)
{
	snprintf(to, room, "10.98.0.%d", i + 1);
}

/* Starts a process in a new network namespace. -1: this is not possible here. */
static pid_t links_namespace(void)
{
	int tell[2];
	char made = 0;
	pid_t pid;

	if (pipe(tell))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		made = unshare(CLONE_NEWNET) == 0;
		if (write(tell[1], &made, 1) != 1 || !made)
			_exit(1);
		close(tell[0]);
		close(tell[1]);
		for (;;)
			pause();
	}
	close(tell[1]);
	if (pid > 0 && (read(tell[0], &made, 1) != 1 || !made)) {
		proc_kill(pid);
		pid = -1;
	}
	close(tell[0]);
	return pid;
}

/* Runs ip or tc in a namespace; the words are separated by blanks. */
static bool links_call(pid_t host, char *why, size_t room, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static bool links_call(pid_t host, char *why, size_t room, const char *format, ...)
{
	struct proc_start p = {.host = host, .out = "/dev/null"};
	char line[256], words[256], *save = NULL;
	va_list args;
	int n = 0, status;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	memcpy(words, line, sizeof words);
	for (char *w = strtok_r(words, " ", &save); w && n < PROC_ARGS_MAX - 1; w = strtok_r(NULL, " ", &save))
		p.argv[n++] = w;
	status = proc_run(&p, 10);
	if (status)
		snprintf(why, room, "\"%s\" failed with exit status %d", line, status);
	return status == 0;
}

/* Connects host i with the bridge, and shapes both directions. */
static bool links_connect(struct links *l, int i, int mbit, char *why, size_t room)
{
	pid_t b = l->bridge, h = l->hosts[i];
	int queue = mbit * 1000 / 8 * LINKS_QUEUE_MS;
	char address[32];

	links_address(address, sizeof address, i);
	return links_call(b, why, room, "ip link add p%d type veth peer name eth0 netns %d", i, (int)h) &&
	       links_call(b, why, room, "ip link set p%d gso_max_segs %d master br0 up", i, LINKS_SEGMENTS) &&
	       links_call(h, why, room, "ip link set lo up") &&
	       links_call(h, why, room, "ip addr add %s/24 dev eth0", address) &&
	       links_call(h, why, room, "ip link set eth0 gso_max_segs %d up", LINKS_SEGMENTS) &&
	       links_call(b, why, room, "tc qdisc add dev p%d root tbf rate %dmbit burst %d limit %d", i, mbit,
			  LINKS_BURST, queue > LINKS_BURST ? queue : LINKS_BURST) &&
	       links_call(h, why, room, "tc qdisc add dev eth0 root tbf rate %dmbit burst %d limit %d", mbit,
			  LINKS_BURST, LINKS_HOST_QUEUE);
}

bool links_start(struct links *l, int n, int mbit, char *why, size_t room)
{
	bool made;

	*l = (struct links){.bridge = links_namespace()};
	if (l->bridge < 0) {
		snprintf(why, room, "network namespaces do not work here (is this root?)");
		return false;
	}
	made = links_call(l->bridge, why, room, "ip link add br0 type bridge") &&
	       links_call(l->bridge, why, room, "ip link set br0 up");
	for (int i = 0; i < n && made; i++) {
		l->hosts[i] = links_namespace();
		if (l->hosts[i] < 0) {
			snprintf(why, room, "no network namespace for host %d", i);
			break;
		}
		l->n++;
		made = links_connect(l, i, mbit, why, room);
	}
	if (made && l->n == n)
		return true;
	links_stop(l);
	return false;
}

void links_stop(struct links *l)
{
	for (int i = 0; i < l->n; i++)
		proc_kill(l->hosts[i]);
	proc_kill(l->bridge);
	*l = (struct links){.n = 0};
}
