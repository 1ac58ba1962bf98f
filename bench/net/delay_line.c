/* SPDX-License-Identifier: Apache-2.0 */
/* delay-line: links with a delay, for kernels without netem.
 *
 *   delay-line [--loss HOST:N] MICROSECONDS SWITCH HOST...    SWITCH and HOST are paths of network namespaces
 *
 * For host i it makes two tap devices, p<i> in the switch's namespace and eth0 in the
 * host's, and carries frames between them: frames from p<i> reach the host after the
 * delay, frames from the host reach the switch at once. It prints "ready" when all
 * devices exist; they vanish when it ends. Frames have the kernel's offload header, so a
 * super-packet of TCP stays whole and costs one read and one write. With --loss every
 * N-th frame with data to and from one host is lost.
 *
 * All frames wait equally long, so one queue in the order of arrival is enough. It is a
 * ring of bytes; a frame that finds it full is dropped, and standard error gets the
 * number of dropped frames at the end. */
#include "bench/help_version.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS_MAX = 250, FRAME_MAX = 66 << 10, BURST = 16, WITH_DATA = 200 /* bytes; acknowledgements have less */ };
#define QUEUE_BYTES ((size_t)64 << 20)

/* A frame in the queue, stored before its bytes. len 0: no entry follows up to the end of
 * the ring. */
struct entry {
	int64_t due_ns;
	uint32_t len;
	int fd;
};

/* The queue: entries from tail to head, in the order of due_ns. Invariant: head and tail
 * are multiples of the alignment of an entry, and a whole entry with FRAME_MAX bytes fits
 * between each place where one begins and `QUEUE_BYTES`. */
struct queue {
	char *ring;
	size_t head, tail, frames;
	unsigned long long dropped;
};

/* The link that loses frames. */
struct loss {
	int host; /* -1: none does */
	unsigned every, seen;
};

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "delay-line: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void enter(const char *namespace)
{
	int ns = open(namespace, O_RDONLY | O_CLOEXEC);

	if (ns < 0 || setns(ns, CLONE_NEWNET))
		die(namespace);
	close(ns);
}

/* Makes a tap device in a namespace, which this process then is in. Returns the device's
 * descriptor. */
static int open_tap(const char *namespace, const char *name)
{
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int fd;

	enter(namespace);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", name);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &r) || ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4))
		die("/dev/net/tun");
	return fd;
}

static size_t entry_size(uint32_t len)
{
	return (sizeof(struct entry) + len + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
}

/* Returns where the next frame may be read to, or NULL if the ring is full. Wraps to the
 * front near the end. */
static struct entry *queue_room(struct queue *q)
{
	const size_t need = sizeof(struct entry) + FRAME_MAX;

	if (q->frames == 0)
		q->head = q->tail = 0;
	if (q->head >= q->tail && QUEUE_BYTES - q->head < 2 * need) {
		if (q->tail <= need)
			return NULL;
		((struct entry *)(q->ring + q->head))->len = 0;
		q->head = 0;
	}
	if (q->head < q->tail && q->tail - q->head <= need)
		return NULL;
	return (struct entry *)(q->ring + q->head);
}

/* Returns the oldest frame, or NULL. */
static struct entry *queue_first(struct queue *q)
{
	struct entry *e = (struct entry *)(q->ring + q->tail);

	if (q->frames == 0)
		return NULL;
	if (e->len == 0) {
		q->tail = 0;
		e = (struct entry *)q->ring;
	}
	return e;
}

/* Delivers frames that are due. */
static void deliver(struct queue *q)
{
	struct entry *e;

	while ((e = queue_first(q)) && e->due_ns <= now_ns()) {
		if (write(e->fd, e + 1, e->len) < 0)
			q->dropped++; /* the host's interface is not up */
		q->tail += entry_size(e->len);
		q->frames--;
	}
}

/* Returns whether a frame is lost. loss NULL: none is on this link. */
static bool is_lost(struct loss *loss, ssize_t n)
{
	return loss && n >= WITH_DATA && ++loss->seen % loss->every == 0;
}

/* Queues frames that the switch's port sends to a host. */
static void take(struct queue *q, int port, int host, int64_t delay_ns, struct loss *loss)
{
	static char lost[FRAME_MAX];

	for (int i = 0; i < BURST; i++) {
		struct entry *e = queue_room(q);
		ssize_t n = read(port, e ? (char *)(e + 1) : lost, FRAME_MAX);

		if (n <= 0)
			return;
		if (!e) {
			q->dropped++;
			continue;
		}
		if (is_lost(loss, n))
			continue;
		*e = (struct entry){.due_ns = now_ns() + delay_ns, .len = (uint32_t)n, .fd = host};
		q->head += entry_size(e->len);
		q->frames++;
	}
}

/* Forwards frames of a host at once. */
static void pass(struct queue *q, int host, int port, struct loss *loss)
{
	static char frame[FRAME_MAX];

	for (int i = 0; i < BURST; i++) {
		ssize_t n = read(host, frame, sizeof frame);

		if (n <= 0)
			return;
		if (!is_lost(loss, n) && write(port, frame, (size_t)n) < 0)
			q->dropped++;
	}
}

/* fds: port and host of each host in turn. */
static void run(struct queue *q, struct pollfd *fds, int hosts, int64_t delay_ns, struct loss *lossy)
{
	while (!ended) {
		struct entry *first = queue_first(q);
		int64_t wait = first ? first->due_ns - now_ns() : 0;
		struct timespec until = {.tv_sec = wait > 0 ? wait / 1000000000 : 0,
					 .tv_nsec = wait > 0 ? wait % 1000000000 : 0};

		if (ppoll(fds, 2 * (nfds_t)hosts, first ? &until : NULL, NULL) < 0 && errno != EINTR)
			die("ppoll");
		deliver(q);
		for (int i = 0; i < hosts; i++) {
			struct loss *loss = i == lossy->host ? lossy : NULL;

			if (fds[2 * i].revents & POLLIN)
				take(q, fds[2 * i].fd, fds[2 * i + 1].fd, delay_ns, loss);
			if (fds[2 * i + 1].revents & POLLIN)
				pass(q, fds[2 * i + 1].fd, fds[2 * i].fd, loss);
		}
	}
}

int main(int argc, char **argv)
{
	static const char usage[] = "Usage: delay-line [--loss HOST:N] MICROSECONDS SWITCH HOST...\n"
				    "1 to 1000000 microseconds, paths of network namespaces, 1 to 250 hosts\n";
	static struct pollfd fds[2 * HOSTS_MAX];
	struct sigaction end = {.sa_handler = on_signal};
	struct queue q = {0};
	struct loss loss = {.host = -1};
	bool bad = false;
	int hosts, home;
	long delay_us;

	if (bench_help_or_version(argc, argv, "delay-line", usage))
		return 0;
	if (argc > 2 && strcmp(argv[1], "--loss") == 0) {
		bad = sscanf(argv[2], "%d:%u", &loss.host, &loss.every) != 2 || !loss.every;
		argc -= 2;
		argv += 2;
	}
	hosts = argc - 3;
	delay_us = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	if (bad || hosts < 1 || hosts > HOSTS_MAX || delay_us < 1 || delay_us > 1000000) {
		fputs(usage, stderr);
		return 2;
	}
	q.ring = malloc(QUEUE_BYTES);
	if (!q.ring)
		die("memory for the queue");
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (home < 0)
		die("/proc/self/ns/net");
	for (int i = 0; i < hosts; i++) {
		char name[16];

		snprintf(name, sizeof name, "p%d", i);
		fds[2 * i] = (struct pollfd){.fd = open_tap(argv[2], name), .events = POLLIN};
		fds[2 * i + 1] = (struct pollfd){.fd = open_tap(argv[3 + i], "eth0"), .events = POLLIN};
	}
	if (setns(home, CLONE_NEWNET)) /* another process may end all processes of a host: not this one */
		die("setns");
	close(home);
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGINT, &end, NULL);
	prctl(PR_SET_TIMERSLACK, 1000);
	puts("ready");
	fflush(stdout);
	run(&q, fds, hosts, (int64_t)delay_us * 1000, &loss);
	if (q.dropped)
		fprintf(stderr, "delay-line: dropped %llu frames\n", q.dropped);
	free(q.ring);
	return 0;
}
