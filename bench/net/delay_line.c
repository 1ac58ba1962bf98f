/* SPDX-License-Identifier: Apache-2.0 */
/* delay-line: the way from a switch to its hosts with a delay, for kernels without netem.
 *
 *   delay-line [--loss HOST:N] [--random-loss N] SWITCH MICROSECONDS:HOST...
 *
 * SWITCH and HOST are paths of network namespaces; hosts are numbered by the last digits
 * of their names. For host i it makes two tap devices, d<i> in the switch's namespace and
 * in0 in the host's, and carries frames from the first to the second after the delay. It
 * prints "ready" when all devices exist; they vanish when it ends.
 * Frames have the kernel's offload header, so a super-packet of TCP stays whole and costs
 * one read and one write.
 *
 * With --loss every N-th frame with data to and from one host is lost (the last two
 * bytes of its hardware address are its number). With --random-loss each packet with data
 * is lost with the chance 1/N, also one packet in the middle of a super-packet:
 * that is then cut in two.
 *
 * All frames to one host wait equally long, so a queue in the order of arrival is enough
 * for each. It is a ring of bytes; a frame that finds it full is dropped, and standard
 * error gets the number of dropped frames at the end. */
#include "bench/help_version.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
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
enum { VNET = sizeof(struct virtio_net_hdr), ETHER = 14, IP4 = 20, TCP_MIN = 20, MAC_HOST = 4 };
#define QUEUE_BYTES ((size_t)64 << 20)

/* A frame in the queue, stored before its bytes. len 0: no entry follows up to the end of
 * the ring. */
struct entry {
	int64_t due_ns;
	uint32_t len;
};

/* The way to one host: entries from tail to head, in the order of due_ns. Invariant: head
 * and tail are multiples of the alignment of an entry, and a whole entry with FRAME_MAX
 * bytes fits between each place where one begins and `QUEUE_BYTES`. */
struct queue {
	int number, port, fd; /* of the host; descriptors of both ends */
	int64_t delay_ns;
	char *ring;
	size_t head, tail, frames;
	unsigned long long dropped;
};

/* Which frames are lost. */
struct loss {
	int host; /* the one whose every every-th frame with data is lost; -1: none is */
	unsigned every, seen;
	unsigned packets; /* each packet is lost with the chance 1 / packets; 0: none is */
	uint32_t random;
};

/* The fields of a super-packet of TCP that a part of it changes. */
struct segments {
	size_t headers;    /* bytes before the data, the offload header included */
	size_t data, size; /* bytes of data; in each packet */
};

static const char usage_text[] = "Usage: delay-line [--loss HOST:N] [--random-loss N] SWITCH MICROSECONDS:HOST...\n"
				 "1 to 1000000 microseconds, paths of network namespaces, 1 to 250 hosts\n";

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
		if (write(q->fd, e + 1, e->len) < 0)
			q->dropped++; /* the host's interface is not up */
		q->tail += entry_size(e->len);
		q->frames--;
	}
}

/* Returns whether a whole frame to `host` is lost. */
static bool is_lost(struct loss *loss, int host, const char *frame, ssize_t n)
{
	const unsigned char *from = (const unsigned char *)frame + VNET + 6 + MAC_HOST;
	bool on_link = host == loss->host || from[0] * 256 + from[1] == loss->host;

	return loss->host >= 0 && on_link && n >= WITH_DATA && ++loss->seen % loss->every == 0;
}

static uint16_t load16(const char *at)
{
	const unsigned char *p = (const unsigned char *)at;

	return (uint16_t)(p[0] << 8 | p[1]);
}

static void store16(char *at, uint32_t v)
{
	at[0] = (char)(v >> 8);
	at[1] = (char)v;
}

/* The Internet checksum (RFC 1071), not yet inverted. */
static uint32_t sum16(const char *at, size_t n, uint32_t sum)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		sum += load16(at + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Returns false if the frame is not TCP over IPv4 with data. */
static bool find_segments(struct segments *ret, const char *frame, size_t n)
{
	const struct virtio_net_hdr *v = (const void *)frame;
	const char *ip = frame + VNET + ETHER;

	if (n < VNET + ETHER + IP4 + TCP_MIN || load16(ip - 2) != 0x0800 || ip[0] != 0x45 || ip[9] != 6)
		return false;
	ret->headers = VNET + ETHER + IP4 + ((unsigned char)ip[IP4 + 12] >> 4) * 4u;
	if (n <= ret->headers)
		return false;
	ret->data = n - ret->headers;
	ret->size = v->gso_type == VIRTIO_NET_HDR_GSO_NONE || v->gso_size == 0 ? ret->data : v->gso_size;
	return true;
}

/* Makes a frame whose data is the bytes from `first` on, `data` of them, of a
 * super-packet. Returns its length. */
static uint32_t cut(char *to, const char *frame, const struct segments *s, size_t first, size_t data)
{
	struct virtio_net_hdr v;
	char *ip = to + VNET + ETHER, *tcp = ip + IP4;
	uint32_t seq, tcp_len = (uint32_t)(s->headers - VNET - ETHER - IP4 + data);

	memmove(to + s->headers, frame + s->headers + first, data);
	memmove(to, frame, s->headers);
	memcpy(&v, to, sizeof v);
	if (data <= s->size)
		v.gso_type = VIRTIO_NET_HDR_GSO_NONE, v.gso_size = 0;
	memcpy(to, &v, sizeof v);
	store16(ip + 2, IP4 + tcp_len);
	store16(ip + 10, 0);
	store16(ip + 10, ~sum16(ip, IP4, 0));
	seq = ((uint32_t)load16(tcp + 4) << 16 | load16(tcp + 6)) + (uint32_t)first;
	store16(tcp + 4, seq >> 16);
	store16(tcp + 6, seq);
	/* the kernel adds the rest to the sum of the pseudo-header */
	store16(tcp + 16, sum16(ip + 12, 8, 6 + tcp_len));
	return (uint32_t)(s->headers + data);
}

static unsigned next_random(struct loss *loss)
{
	loss->random ^= loss->random << 13;
	loss->random ^= loss->random >> 17;
	loss->random ^= loss->random << 5;
	return loss->random;
}

static void queue_add(struct queue *q, uint32_t len)
{
	struct entry *e = (struct entry *)(q->ring + q->head);

	*e = (struct entry){.due_ns = now_ns() + q->delay_ns, .len = len};
	q->head += entry_size(len);
	q->frames++;
}

/* Queues what is left of a frame, of n bytes, after random losses: it is at `e`, or in
 * parts there and behind. A part is cut only if there is room for it; else the rest is
 * lost. */
static void queue_without_losses(struct queue *q, struct entry *e, size_t n, struct loss *loss)
{
	static char whole[FRAME_MAX];
	struct segments s;
	size_t from = 0;

	if (!loss->packets || !find_segments(&s, (char *)(e + 1), n)) {
		queue_add(q, (uint32_t)n);
		return;
	}
	memcpy(whole, e + 1, n);
	for (size_t at = 0; at < s.data; at += s.size) {
		size_t end = at + s.size < s.data ? at + s.size : s.data;
		bool lost = next_random(loss) % loss->packets == 0;

		if (!lost && end < s.data)
			continue;
		if ((lost ? at : end) > from && e)
			queue_add(q, cut((char *)(e + 1), whole, &s, from, (lost ? at : end) - from));
		from = end;
		e = queue_room(q);
	}
}

/* Queues frames that the switch's port sends to a host. */
static void take(struct queue *q, struct loss *loss)
{
	static char lost[FRAME_MAX];

	for (int i = 0; i < BURST; i++) {
		struct entry *e = queue_room(q);
		ssize_t n = read(q->port, e ? (char *)(e + 1) : lost, FRAME_MAX);

		if (n <= 0)
			return;
		if (!e)
			q->dropped++;
		else if (!is_lost(loss, q->number, (char *)(e + 1), n))
			queue_without_losses(q, e, (size_t)n, loss);
	}
}

/* Reads and drops what a host sends into its end: nothing is routed there. */
static void discard(int host)
{
	static char frame[FRAME_MAX];

	while (read(host, frame, sizeof frame) > 0)
		;
}

/* Returns the nanoseconds until the first frame is due, at least 0; -1: none waits. */
static int64_t next_due(struct queue *queues, int hosts)
{
	int64_t least = -1, now = now_ns();

	for (int i = 0; i < hosts; i++) {
		struct entry *e = queue_first(&queues[i]);
		int64_t wait = e && e->due_ns > now ? e->due_ns - now : 0;

		if (e && (least < 0 || wait < least))
			least = wait;
	}
	return least;
}

static void run(struct queue *queues, int hosts, struct loss *loss)
{
	static struct pollfd fds[2 * HOSTS_MAX]; /* port and host of each host in turn */

	for (int i = 0; i < hosts; i++) {
		fds[2 * i] = (struct pollfd){.fd = queues[i].port, .events = POLLIN};
		fds[2 * i + 1] = (struct pollfd){.fd = queues[i].fd, .events = POLLIN};
	}
	while (!ended) {
		int64_t wait = next_due(queues, hosts);
		struct timespec until = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};

		if (ppoll(fds, 2 * (nfds_t)hosts, wait < 0 ? NULL : &until, NULL) < 0 && errno != EINTR)
			die("ppoll");
		for (int i = 0; i < hosts; i++) {
			deliver(&queues[i]);
			if (fds[2 * i].revents & POLLIN)
				take(&queues[i], loss);
			if (fds[2 * i + 1].revents & POLLIN)
				discard(queues[i].fd);
		}
	}
}

/* Reads the options; returns how many arguments they are, or -1. */
static int parse_loss(struct loss *loss, int argc, char **argv)
{
	int at = 1;

	for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
		if (strcmp(argv[at], "--loss") == 0 && sscanf(argv[at + 1], "%d:%u", &loss->host, &loss->every) == 2 &&
		    loss->every > 0)
			continue;
		if (strcmp(argv[at], "--random-loss") == 0 && sscanf(argv[at + 1], "%u", &loss->packets) == 1 &&
		    loss->packets > 0)
			continue;
		return -1;
	}
	return at - 1;
}

/* Reads "MICROSECONDS:HOST". Returns the path of the host; NULL: it is something else. */
static const char *parse_host(struct queue *q, const char *word)
{
	const char *path = strchr(word, ':'), *digits;
	long delay_us = strtol(word, NULL, 10);

	if (!path || delay_us < 1 || delay_us > 1000000)
		return NULL;
	digits = path + strlen(path);
	while (digits[-1] >= '0' && digits[-1] <= '9')
		digits--;
	q->number = (int)strtol(digits, NULL, 10);
	q->delay_ns = delay_us * 1000;
	return path + 1;
}

static void open_queue(struct queue *q, const char *port_namespace, const char *host_namespace)
{
	char name[16];

	snprintf(name, sizeof name, "d%d", q->number);
	q->port = open_tap(port_namespace, name);
	q->fd = open_tap(host_namespace, "in0");
	q->ring = malloc(QUEUE_BYTES);
	if (!q->ring)
		die("memory for a queue");
}

static int usage(void)
{
	fputs(usage_text, stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static struct queue queues[HOSTS_MAX];
	struct sigaction end = {.sa_handler = on_signal};
	struct loss loss = {.host = -1, .random = 2463534242};
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), options, hosts;
	unsigned long long dropped = 0;

	if (bench_help_or_version(argc, argv, "delay-line", usage_text))
		return 0;
	options = parse_loss(&loss, argc, argv);
	hosts = argc - 2 - options;
	if (options < 0 || hosts < 1 || hosts > HOSTS_MAX)
		return usage();
	for (int i = 0; i < hosts; i++) {
		const char *path = parse_host(&queues[i], argv[options + 2 + i]);

		if (!path)
			return usage();
		open_queue(&queues[i], argv[options + 1], path);
	}
	if (home < 0 || setns(home, CLONE_NEWNET)) /* another process may end all processes of a host: not this one */
		die("setns");
	close(home);
	sigaction(SIGTERM, &end, NULL);
	sigaction(SIGINT, &end, NULL);
	prctl(PR_SET_TIMERSLACK, 1000);
	puts("ready");
	fflush(stdout);
	run(queues, hosts, &loss);
	for (int i = 0; i < hosts; i++) {
		dropped += queues[i].dropped;
		free(queues[i].ring);
	}
	if (dropped)
		fprintf(stderr, "delay-line: dropped %llu frames\n", dropped);
	return 0;
}
