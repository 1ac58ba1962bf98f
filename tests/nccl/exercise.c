/* SPDX-License-Identifier: Apache-2.0 */
/* Command line, processes of ranks, and opening communicators. */
#include "tests/nccl/exercise.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

uint8_t *member_send(const struct member *m, int place)
{
	return m->region + (size_t)place * m->o->bytes;
}

uint8_t *member_receive(const struct member *m, int place)
{
	return m->region + (size_t)(m->o->depth + place) * m->o->bytes;
}

int member_open(struct member *m, const struct tables *t, const struct options *o, struct shared *s, int rank)
{
	void *handles[RANKS_MAX];
	int rc, turn = o->shuffle ? 1 : 0; /* handles[rank] need not be one's own */

	*m = (struct member){.t = t, .o = o, .s = s, .rank = rank};
	rc = tables_coll_listen(t, s->handles[(rank + turn) % o->ranks], &m->listening);
	require(rc == NCCL_SUCCESS && m->listening, "listen: %d", rc);
	barrier(s, o->ranks);
	for (int i = 0; i < o->ranks; i++)
		handles[i] = s->handles[i];
	rc = t->coll_connect(handles, o->ranks, rank, m->listening, &m->coll);
	atomic_fetch_add(&s->connects, 1);
	if (rc != NCCL_SUCCESS)
		atomic_fetch_add(&s->failed_connects, 1);
	if (rc != NCCL_SUCCESS)
		return rc;
	require(m->coll, "connect gave no communicator");
	m->region_bytes = 2 * (size_t)o->depth * o->bytes;
	m->region = mmap(NULL, m->region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(m->region != MAP_FAILED, "mmap");
	rc = t->coll_register(m->coll, m->region, m->region_bytes, NCCL_PTR_HOST, &m->registered);
	require(rc == NCCL_SUCCESS, "register: %d", rc);
	return rc;
}

void member_close(struct member *m)
{
	require(m->t->coll_deregister(m->coll, m->registered) == NCCL_SUCCESS, "deregister");
	munmap(m->region, m->region_bytes);
	require(m->t->coll_close(m->coll) == NCCL_SUCCESS, "close");
	require(m->t->coll_close_listen(m->listening) == NCCL_SUCCESS, "close_listen");
}

static void usage(void)
{
	fprintf(stderr,
		"Usage: exercise --library FILE --case NAME [--version 8..12] [--ranks N] [--depth N] [--ops N]\n"
		"                [--comms N] [--bytes N] [--seconds S] [--shuffle] [--odd RANK] [--shared FILE "
		"--rank N]\n");
	exit(2);
}

static const struct test_case *find_case(const char *name)
{
	const struct test_case *lists[] = {coll_cases, net_cases, slice_cases};

	for (unsigned i = 0; name && i < sizeof lists / sizeof lists[0]; i++)
		for (const struct test_case *c = lists[i]; c->name; c++)
			if (strcmp(c->name, name) == 0)
				return c;
	usage();
	return NULL;
}

static const struct test_case *parse(struct options *o, int argc, char **argv, const char **shared, int *rank)
{
	static const struct option names[] = {
	    {"library", required_argument, NULL, 'l'}, {"case", required_argument, NULL, 'c'},
	    {"version", required_argument, NULL, 'v'}, {"ranks", required_argument, NULL, 'n'},
	    {"depth", required_argument, NULL, 'd'},   {"ops", required_argument, NULL, 'o'},
	    {"comms", required_argument, NULL, 'm'},   {"bytes", required_argument, NULL, 'b'},
	    {"seconds", required_argument, NULL, 's'}, {"shuffle", no_argument, NULL, 'x'},
	    {"odd", required_argument, NULL, 'f'},     {"shared", required_argument, NULL, 'S'},
	    {"rank", required_argument, NULL, 'r'},    {NULL, 0, NULL, 0},
	};
	const char *name = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		int n = optarg ? atoi(optarg) : 0;

		switch (c) {
		case 'l':
			o->library = optarg;
			break;
		case 'c':
			name = optarg;
			break;
		case 'v':
			o->version = n;
			break;
		case 'n':
			o->ranks = n;
			break;
		case 'd':
			o->depth = n;
			break;
		case 'o':
			o->ops = n;
			break;
		case 'm':
			o->comms = n;
			break;
		case 'b':
			o->bytes = (size_t)n;
			break;
		case 's':
			o->seconds = atof(optarg);
			break;
		case 'x':
			o->shuffle = true;
			break;
		case 'f':
			o->odd_rank = n;
			break;
		case 'S':
			*shared = optarg;
			break;
		case 'r':
			*rank = n;
			break;
		default:
			usage();
		}
	}
	if (!o->library || o->version < 8 || o->version > 12 || o->ranks < 1 || o->ranks > RANKS_MAX || o->depth < 1 ||
	    o->depth > DEPTH_MAX || o->comms < 1 || o->comms > COMMS_MAX || *rank >= o->ranks)
		usage();
	return find_case(name);
}

static int run_rank(const struct test_case *c, const struct options *o, struct shared *s, int rank)
{
	struct tables t;
	int rc = tables_open(&t, o->library, o->version);

	require(rc == NCCL_SUCCESS, "init: %d", rc);
	c->run(o, &t, s, rank);
	return 0;
}

/* Waits for all ranks. After one has failed, ends the others: they would wait for it at a
 * barrier. */
static int wait_for(const pid_t *pids, int n)
{
	bool gone[RANKS_MAX] = {false}, failed = false;
	int status;
	pid_t pid;

	while ((pid = wait(&status)) > 0) {
		for (int r = 0; r < n; r++)
			gone[r] |= pids[r] == pid;
		for (int r = 0; r < n && status && !failed; r++)
			if (!gone[r])
				kill(pids[r], SIGKILL);
		failed |= status != 0;
	}
	return failed;
}

int main(int argc, char **argv)
{
	struct options o = {.version = 12,
			    .ranks = 2,
			    .depth = 8,
			    .ops = 64,
			    .comms = 1,
			    .bytes = 512 << 10,
			    .seconds = 1,
			    .odd_rank = -1};
	const char *file = NULL;
	int rank = -1, fd = -1;
	const struct test_case *c = parse(&o, argc, argv, &file, &rank);
	pid_t pids[RANKS_MAX];
	struct shared *s;

	if (file) {
		fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		require(fd >= 0 && ftruncate(fd, sizeof *s) == 0, "%s cannot be made", file);
	}
	s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
	require(s != MAP_FAILED, "mmap");
	if (rank >= 0)
		return run_rank(c, &o, s, rank);
	for (int r = 0; r < o.ranks; r++) {
		pids[r] = fork();
		require(pids[r] >= 0, "fork");
		if (pids[r] == 0)
			exit(run_rank(c, &o, s, r));
	}
	return wait_for(pids, o.ranks);
}
