/* SPDX-License-Identifier: Apache-2.0 */
/* Memory. What clients share is a memfd that the agent has made and sealed. It can
 * neither shrink nor grow, and all its pages exist before the client gets it, so that no
 * access to it can fail (SIGBUS). Making the pages of a large buffer takes time, so a
 * pool of threads does it. */
#include "agent/node/daemon/agentd.h"
#include "common/group_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* One buffer that is being made. Invariant: with err.code 0, fd and map are valid when
 * the work is done. */
struct making {
	struct rs_task task; /* first */
	struct agentd *a;
	struct local_buffer *buffer;
	uint64_t bytes;
	int fd;
	void *map;
	struct rs_err err; /* code 0: made */
};

/* Checks that the control groups of this process allow so many bytes more. The kernel
 * would end the process without a word, and not refuse the memory. */
static int shm_check_room(uint64_t bytes, struct rs_err *e)
{
	struct rs_group_memory group;

	rs_group_memory_read(&group, "");
	if (bytes <= group.left)
		return RS_OK;
	return rs_fail(e, RS_ENOMEM,
		       "the agent cannot make %llu bytes of shared memory: its control group, which is limited to %llu "
		       "bytes, has %llu left; raise that limit (MemoryMax=, resources.limits.memory)",
		       (unsigned long long)bytes, (unsigned long long)group.limit, (unsigned long long)group.left);
}

static int shm_make(struct making *m, struct rs_err *e)
{
	int fd, rc = shm_check_room(m->bytes, e);
	void *map;

	if (rc)
		return rc;
	fd = memfd_create("reduction", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "the agent cannot make shared memory");

	rc = ftruncate(fd, (off_t)m->bytes) ? errno : posix_fallocate(fd, 0, (off_t)m->bytes);
	if (!rc && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		rc = errno;
	if (rc) {
		rc = rs_fail_sys(e, RS_ENOMEM, rc, "the agent cannot make %llu bytes of shared memory",
				 (unsigned long long)m->bytes);
		goto close_fd;
	}

	/* mapping all pages now keeps page faults out of the engines' threads */
	map = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (map == MAP_FAILED) {
		rc = rs_fail_sys(e, RS_ENOMEM, errno, "the agent cannot map %llu bytes of shared memory",
				 (unsigned long long)m->bytes);
		goto close_fd;
	}

	madvise(map, m->bytes, MADV_DONTDUMP); /* gradients are not for those who read cores */
	m->fd = fd;
	m->map = map;
	return RS_OK;
close_fd:
	close(fd);
	return rc;
}

static void shm_make_run(struct rs_task *t)
{
	struct making *m = (struct making *)t;

	if (!shm_make(m, &m->err))
		m->err.code = 0;
}

static void shm_on_made(struct rs_task *t)
{
	struct making *m = (struct making *)t;

	if (!local_buffer_made(m->buffer, m->map, m->fd, m->err.code ? &m->err : NULL) && m->fd >= 0)
		close(m->fd);
	agentd_check_end_soon(m->a);
	free(m);
}

int agentd_shm_make(void *ctx, struct local_buffer *b, uint64_t bytes, struct rs_err *e)
{
	struct agentd *a = ctx;
	struct making *m = calloc(1, sizeof *m);

	if (!m)
		return rs_oom(e, 0, "shared memory in the agent on %s", a->host);
	*m = (struct making){
	    .task = {.run = shm_make_run, .done = shm_on_made}, .a = a, .buffer = b, .bytes = bytes, .fd = -1};
	rs_pool_add(&a->pool, &m->task);
	return RS_OK;
}

void agentd_shm_free(void *ctx, void *map, uint64_t bytes)
{
	(void)ctx;
	munmap(map, bytes);
}

void *agentd_stage_new(void *ctx, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)ctx;
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

void agentd_stage_free(void *ctx, void *stage, size_t bytes)
{
	(void)ctx;
	munmap(stage, bytes);
}
