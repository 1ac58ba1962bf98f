/* SPDX-License-Identifier: Apache-2.0 */
/* tcp-loop: plain TCP on the same links, for comparison in bench/net.
 *
 *   tcp-loop sink PORT                        accepts one connection, prints its throughput as JSON
 *   tcp-loop flow ADDR PORT SECONDS           sends to a sink
 *   tcp-loop echo PORT CHUNK                  sends back what it receives, on all connections, until it is ended: the
 *                                             loop that a reducer's CPU time is compared with; reads at most CHUNK
 *                                             bytes at a time
 *   tcp-loop ask ADDR:PORT,... BYTES ITERS WARMUP WINDOW CHUNK
 *                                             sends BYTES through the echoes, an equal part through each, at most
 *                                             WINDOW bytes in flight to and from each, CHUNK bytes at a time;
 *                                             prints times as reduction-bench does
 */
#include "bench/bench.h"
#include "bench/help_version.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, MAX_CONNS = 1024, RETRY_MS = 20, CONNECT_S = 10 };
static const double SETTLE_S = 0.3; /* seconds of a flow that do not count: slow start */

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what)
{
	fprintf(stderr, "tcp-loop: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void prepare(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		die("fcntl");
}

static int listen_on(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, MAX_CONNS))
		die("listen");
	return fd;
}

/* Connects; retries while no process listens yet. */
static int connect_to(const char *address, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	double deadline = now_s() + CONNECT_S;
	if (inet_pton(AF_INET, address, &a.sin_addr) != 1) {
		errno = EINVAL;
		die(address);
	}
	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (fd < 0)
			die("socket");
		if (!connect(fd, (struct sockaddr *)&a, sizeof(a)))
			return fd;
		if (errno != ECONNREFUSED || now_s() > deadline)
			die(address);
		close(fd);
		poll(NULL, 0, RETRY_MS);
	}
}

static int sink(int port)
{
	static char buf[4 * BLOCK];
	int fd = accept(listen_on(port), NULL, NULL);
	double first = 0, from = 0, last = 0;
	uint64_t bytes = 0;
	if (fd < 0)
		die("accept");
	for (ssize_t n; (n = read(fd, buf, sizeof(buf))) != 0;) {
		if (n < 0)
			die("read");
		last = now_s();
		if (!first)
			first = last;
		if (from)
			bytes += (uint64_t)n;
		else if (last - first > SETTLE_S)
			from = last;
	}
	printf("{\"MBps\":%.3f}\n", last > from ? (double)bytes / (last - from) / 1e6 : 0);
	return 0;
}

static int flow(const char *address, int port, double seconds)
{
	static char buf[4 * BLOCK];
	int fd = connect_to(address, port);
	double until = now_s() + seconds;
	while (now_s() < until)
		if (write(fd, buf, sizeof(buf)) < 0)
			die("write");
	close(fd);
	return 0;
}

/* Parses the size of a chunk. */
static size_t chunk_of(const char *text)
{
	unsigned long v = strtoul(text, NULL, 10);
	if (v < 1 || v > BLOCK) {
		fprintf(stderr, "tcp-loop: CHUNK: found \"%s\", expected 1 to %d bytes\n", text, BLOCK);
		exit(2);
	}
	return v;
}

/* One echoed connection: buf[sent..held) is to be sent back. */
struct echo {
	char *buf;
	size_t held, sent;
};

/* Moves what can be moved, a chunk at a time. False: the connection has ended. */
static bool echo_move(struct echo *e, struct pollfd *p, size_t chunk)
{
	ssize_t n;
	if (e->sent == e->held) {
		n = read(p->fd, e->buf, chunk);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return false;
		e->sent = 0;
		e->held = n < 0 ? 0 : (size_t)n;
	}
	if (e->sent < e->held) {
		n = write(p->fd, e->buf + e->sent, e->held - e->sent);
		if (n < 0 && errno != EAGAIN)
			return false;
		e->sent += n < 0 ? 0 : (size_t)n;
	}
	p->events = e->sent < e->held ? POLLOUT : POLLIN;
	return true;
}

static _Noreturn void echo(int port, size_t chunk)
{
	static struct pollfd fds[MAX_CONNS];
	static struct echo conns[MAX_CONNS];
	int n = 1;
	fds[0] = (struct pollfd){.fd = listen_on(port), .events = POLLIN};
	fprintf(stderr, "echo is listening on port %d\n", port);
	for (;;) {
		if (poll(fds, (nfds_t)n, -1) < 0)
			die("poll");
		for (int i = n - 1; i > 0; i--) {
			if (!fds[i].revents || echo_move(&conns[i], &fds[i], chunk))
				continue;
			close(fds[i].fd);
			free(conns[i].buf);
			n--;
			fds[i] = fds[n];
			conns[i] = conns[n];
		}
		if (!(fds[0].revents & POLLIN) || n == MAX_CONNS)
			continue;
		fds[n] = (struct pollfd){.fd = accept(fds[0].fd, NULL, NULL), .events = POLLIN};
		conns[n] = (struct echo){.buf = malloc(chunk)};
		if (fds[n].fd < 0 || !conns[n].buf)
			die("accept");
		prepare(fds[n++].fd);
	}
}

/* One connection to an echo during an iteration. */
struct ask {
	uint64_t share, sent, back;
};

/* Moves what can be moved. Returns the events for poll(), 0 when everything has
 * returned. */
static short ask_move(struct ask *a, int fd, uint64_t window, size_t chunk)
{
	static char out[BLOCK], in[BLOCK];
	for (ssize_t n; a->back < a->sent;) {
		n = read(fd, in, chunk);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0)
			die("an echo ended");
		a->back += (uint64_t)n;
	}
	while (a->sent < a->share && a->sent - a->back < window) {
		uint64_t room = window - (a->sent - a->back), left = a->share - a->sent;
		uint64_t size = room < left ? room : left;
		ssize_t n = write(fd, out, size < chunk ? size : chunk);
		if (n < 0 && errno == EAGAIN)
			return POLLIN | POLLOUT;
		if (n < 0)
			die("write");
		a->sent += (uint64_t)n;
	}
	return a->back < a->share ? POLLIN : 0;
}

/* Runs one iteration through all echoes. */
static void ask_once(struct pollfd *fds, int n, uint64_t bytes, uint64_t window, size_t chunk)
{
	struct ask asks[MAX_CONNS];
	int open = n;
	for (int i = 0; i < n; i++) {
		asks[i] = (struct ask){.share = bytes / (unsigned)n};
		fds[i].revents = POLLOUT;
		fds[i].events = POLLIN;
	}
	while (open) {
		open = 0;
		for (int i = 0; i < n; i++) {
			if (fds[i].revents)
				fds[i].events = ask_move(&asks[i], fds[i].fd, window, chunk);
			open += fds[i].events != 0;
		}
		if (open && poll(fds, (nfds_t)n, -1) < 0)
			die("poll");
	}
}

static int ask(char *addresses, char **arg)
{
	static struct pollfd fds[MAX_CONNS];
	struct bench_options o = {.system = "bare-loop", .in_flight = 1, .json = true};
	struct bench_row row = {.dtype = RS_FLOAT32, .op = RS_SUM, .has = {true}};
	uint64_t window = strtoull(arg[3], NULL, 10);
	size_t chunk = chunk_of(arg[4]);
	int n = 0;
	row.bytes = strtoull(arg[0], NULL, 10);
	row.count = row.bytes / sizeof(float);
	o.iters = (unsigned)strtoul(arg[1], NULL, 10);
	o.warmup = (unsigned)strtoul(arg[2], NULL, 10);
	double *us = calloc(o.iters + 1, sizeof(*us));
	if (!us || !window || !o.iters)
		die("BYTES ITERS WARMUP WINDOW");
	for (char *save, *a = strtok_r(addresses, ",", &save); a && n < MAX_CONNS; a = strtok_r(NULL, ",", &save)) {
		char *port = strchr(a, ':');
		if (!port) {
			errno = EINVAL;
			die(a);
		}
		*port++ = 0;
		fds[n].fd = connect_to(a, atoi(port));
		prepare(fds[n++].fd);
	}
	for (unsigned i = 0; i < o.warmup + o.iters; i++) {
		double start = now_s();
		ask_once(fds, n, row.bytes, window, chunk);
		if (i >= o.warmup)
			us[i - o.warmup] = (now_s() - start) * 1e6;
	}
	bench_times_of(&row.times[0], us, o.iters);
	row.times[0].wrong = UINT64_MAX;
	row.ranks = 1;
	bench_print_row(&o, &row);
	free(us);
	return 0;
}

int main(int argc, char **argv)
{
	static const char usage[] = "Usage: tcp-loop sink PORT | flow ADDR PORT SECONDS | echo PORT CHUNK |\n"
				    "       ask ADDR:PORT,... BYTES ITERS WARMUP WINDOW CHUNK\n";
	const char *mode = argc > 2 ? argv[1] : "";

	if (bench_help_or_version(argc, argv, "tcp-loop", usage))
		return 0;
	if (argc == 3 && !strcmp(mode, "sink"))
		return sink(atoi(argv[2]));
	if (argc == 4 && !strcmp(mode, "echo"))
		echo(atoi(argv[2]), chunk_of(argv[3]));
	if (argc == 5 && !strcmp(mode, "flow"))
		return flow(argv[2], atoi(argv[3]), atof(argv[4]));
	if (argc == 8 && !strcmp(mode, "ask"))
		return ask(argv[2], argv + 3);
	fputs(usage, stderr);
	return 2;
}
