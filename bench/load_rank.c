/* SPDX-License-Identifier: Apache-2.0 */
/* One rank: HELLO -> WELCOME -> START -> contributions up to the window, a further one
 * for each result -> GOODBYE -> the reducer closes. Failure modes: REFUSED, ABORT, a
 * closed connection, an unexpected frame: each ends the run with a sentence. A wrong sum
 * is counted, and the run goes on. */
#include "bench/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int broken(const struct load_rank *r, struct rs_err *e)
{
	return rs_fail_sys(e, RS_EIO, errno, "rank %u of job %s: the connection broke", r->rank, r->job->name);
}

/* Sends a whole control frame. Precondition: the connection's buffer is empty or nearly
 * so. */
static int send_control(struct load_rank *r, unsigned type, const uint8_t *payload, uint32_t len, struct rs_err *e)
{
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint32_t n = control_frame(frame, type, 0, r->done / r->job->chunks, payload, len);
	ssize_t sent = send(r->fd, frame, n, MSG_NOSIGNAL);

	if (sent >= 0 && (uint32_t)sent < n)
		errno = ENOBUFS;
	return sent == (ssize_t)n ? RS_OK : broken(r, e);
}

int load_rank_hello(struct load_rank *r, struct rs_err *e)
{
	const struct load_options *o = &r->all->opt;
	uint8_t payload[FRAME_CONTROL_MAX];
	struct control_hello h = {
	    .rank = r->rank,
	    .world_size = o->ranks,
	    .lanes = 1,
	    .chunk_bytes = o->chunk,
	    .window = o->window,
	    .priorities = 1,
	    .processes = 1,
	    .label = "reduction-load",
	    .reducer = "r0",
	    .incarnation = r->all->incarnation,
	    .detect_ms = 60000,
	};

	memcpy(h.job, r->job->name, sizeof h.job);
	return send_control(r, FRAME_HELLO, payload, control_pack_hello(payload, &h), e);
}

/* Makes the frame of contribution g, with its header in `head`. Returns its bytes. */
static uint32_t contribution(const struct load_rank *r, uint64_t g, uint8_t *head, struct iovec iov[2])
{
	const struct load_job *j = r->job;
	const struct load_data *d = &r->all->data;
	struct frame f = {
	    .type = FRAME_DATA,
	    .of.dtype = r->all->opt.dtype,
	    .of.op = RS_SUM,
	    .chunk = (uint32_t)(g % j->chunks),
	    .of.seq = g / j->chunks,
	    .of.count = j->count,
	    .ack = r->ack,
	    .chunk_elems = j->chunk_elems,
	};

	f.payload_len = frame_chunk_len(f.of.count, f.chunk_elems, f.chunk) * (uint32_t)d->elem;
	frame_encode(&f, head);
	iov[0] = (struct iovec){head, FRAME_HEADER};
	iov[1] = (struct iovec){d->mine[r->rank % LOAD_CLASSES] + load_data_at(d, g), f.payload_len};
	return FRAME_HEADER + f.payload_len;
}

static void skip(struct iovec **iov, unsigned *n, size_t bytes)
{
	while (bytes) {
		size_t part = bytes < (*iov)->iov_len ? bytes : (*iov)->iov_len;

		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + part;
		(*iov)->iov_len -= part;
		bytes -= part;
		if ((*iov)->iov_len == 0) {
			++*iov;
			--*n;
		}
	}
}

/* Makes one system call with all frames that the window allows. Returns 1 if everything
 * was taken, 0 if not, or an error. */
static int send_batch(struct load_rank *r, uint64_t until, struct rs_err *e)
{
	uint8_t heads[LOAD_BATCH][FRAME_HEADER];
	uint32_t size[LOAD_BATCH];
	struct iovec iov[2 * LOAD_BATCH], *from = iov;
	unsigned frames = 0, n;
	struct msghdr msg = {0};
	size_t total = 0, left;
	ssize_t sent;

	/* the rest of a frame must follow its beginning */
	if (!r->sent)
		r->ack = r->done / r->job->chunks;
	while (frames < LOAD_BATCH && r->next + frames < until) {
		size[frames] = contribution(r, r->next + frames, heads[frames], iov + 2 * frames);
		total += size[frames++];
	}
	n = 2 * frames;
	skip(&from, &n, r->sent);
	total -= r->sent;
	msg.msg_iov = from;
	msg.msg_iovlen = n;
	sent = sendmsg(r->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : broken(r, e);
	left = r->sent + (size_t)sent;
	for (unsigned i = 0; i < frames && left >= size[i]; i++) {
		left -= size[i];
		r->next++;
	}
	r->sent = (uint32_t)left;
	r->quiet = false;
	return (size_t)sent == total;
}

int load_rank_write(struct load_rank *r, struct rs_err *e)
{
	uint64_t until = r->done + r->all->opt.window;
	int rc = 1;

	if (r->state != LOAD_RUNNING)
		return RS_OK;
	if (until > r->job->end)
		until = r->job->end;
	while (rc > 0 && r->next < until)
		rc = send_batch(r, until, e);
	r->write_wait = rc == 0;
	if (rc < 0)
		return rc;
	if (r->done < r->job->end)
		return RS_OK;
	r->state = LOAD_LEAVING;
	return send_control(r, FRAME_GOODBYE, NULL, 0, e);
}

int load_rank_tick(struct load_rank *r, struct rs_err *e)
{
	bool quiet = r->quiet;

	r->quiet = true;
	return quiet && r->state <= LOAD_RUNNING && !r->sent ? send_control(r, FRAME_PING, NULL, 0, e) : RS_OK;
}

static int take_control(struct load_rank *r, const uint8_t *payload, struct rs_err *e)
{
	struct control_refused refused;
	struct rs_cause cause;
	struct rs_err why;

	switch (r->in.type) {
	case FRAME_START:
		r->state = LOAD_RUNNING;
		r->all->counts.joined++;
		return load_rank_write(r, e);
	case FRAME_REFUSED:
		if (control_unpack_refused(payload, r->in.payload_len, &refused, e))
			return e->code;
		return rs_fail(e, refused.code, "rank %u of job %s was refused: %s", r->rank, r->job->name,
			       refused.message);
	case FRAME_ABORT:
		if (control_unpack_abort(payload, r->in.payload_len, &why, &cause, e))
			return e->code;
		return rs_fail(e, why.code, "job %s was ended: %s", r->job->name, why.msg);
	default: /* WELCOME, WAITING, PING: no reaction */
		return RS_OK;
	}
}

/* Checks the header of a result. It is known in advance, since results arrive in the
 * order of contributions. */
static int check_result(const struct load_rank *r, struct rs_err *e)
{
	const struct load_job *j = r->job;
	const struct frame *f = &r->in;
	uint32_t chunk = (uint32_t)(r->done % j->chunks);
	uint64_t seq = r->done / j->chunks;
	uint32_t len = frame_chunk_len(j->count, j->chunk_elems, chunk) * (uint32_t)r->all->data.elem;

	if (r->done == r->next)
		return rs_fail(e, RS_EPROTO, "rank %u of job %s got a result that it did not contribute to", r->rank,
			       j->name);
	if (f->of.seq != seq || f->chunk != chunk || f->of.count != j->count || f->payload_len != len)
		return rs_fail(e, RS_EPROTO,
			       "rank %u of job %s got %u bytes as chunk %u of operation %" PRIu64
			       " instead of %u bytes as chunk %u of operation %" PRIu64,
			       r->rank, j->name, f->payload_len, f->chunk, f->of.seq, len, chunk, seq);
	return RS_OK;
}

static void take_result_bytes(struct load_rank *r, const uint8_t *at, uint32_t n)
{
	const struct load_data *d = &r->all->data;
	uint32_t until = r->all->opt.check_all ? r->in.payload_len : LOAD_HEAD;
	uint32_t compare = r->pos >= until ? 0 : until - r->pos < n ? until - r->pos : n;

	if (compare && memcmp(at, d->expected + load_data_at(d, r->done) + r->pos, compare) != 0)
		r->wrong = true;
}

static int frame_complete(struct load_rank *r, const uint8_t *payload, struct rs_err *e)
{
	r->head_have = 0;
	if (r->in.type != FRAME_RESULT)
		return take_control(r, payload, e);
	r->done++;
	r->all->counts.results++;
	r->all->counts.wrong += r->wrong;
	r->all->counts.bytes += r->in.payload_len;
	return RS_OK;
}

static int header_complete(struct load_rank *r, struct rs_err *e)
{
	if (frame_decode(r->head, &r->in, e))
		return rs_wrap(e, "rank %u of job %s", r->rank, r->job->name);
	r->pos = 0;
	r->wrong = false;
	return r->in.type == FRAME_RESULT ? check_result(r, e) : RS_OK;
}

/* Receives a part of the payload of r->in; control payloads are assembled. */
static int take_payload(struct load_rank *r, const uint8_t *at, uint32_t n, struct rs_err *e)
{
	uint8_t *control;
	int rc;

	if (r->in.type == FRAME_RESULT) {
		take_result_bytes(r, at, n);
	} else {
		if (!r->control)
			r->control = malloc(r->in.payload_len);
		if (!r->control)
			return rs_oom(e, r->in.payload_len, "a control frame");
		memcpy(r->control + r->pos, at, n);
	}
	r->pos += n;
	if (r->pos < r->in.payload_len)
		return RS_OK;
	control = r->control;
	r->control = NULL;
	rc = frame_complete(r, control, e);
	free(control);
	return rc;
}

static int take_bytes(struct load_rank *r, const uint8_t *at, size_t n, struct rs_err *e)
{
	while (n) {
		uint32_t part = r->head_have < FRAME_HEADER ? FRAME_HEADER - r->head_have : r->in.payload_len - r->pos;
		int rc = RS_OK;

		part = n < part ? (uint32_t)n : part;
		if (r->head_have == FRAME_HEADER) {
			rc = take_payload(r, at, part, e);
		} else {
			memcpy(r->head + r->head_have, at, part);
			r->head_have += part;
			if (r->head_have == FRAME_HEADER)
				rc = header_complete(r, e);
			if (!rc && r->head_have == FRAME_HEADER && !r->in.payload_len)
				rc = frame_complete(r, NULL, e);
		}
		if (rc)
			return rc;
		at += part;
		n -= part;
	}
	return RS_OK;
}

int load_rank_read(struct load_rank *r, struct rs_err *e)
{
	ssize_t got = recv(r->fd, r->all->scratch, LOAD_READ, MSG_DONTWAIT);
	int rc;

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? RS_OK : broken(r, e);
	if (got == 0 && r->state == LOAD_LEAVING) {
		r->state = LOAD_GONE;
		r->all->counts.gone++;
		return RS_OK;
	}
	if (got == 0)
		return rs_fail(e, RS_EPEER, "the reducer closed the connection of rank %u of job %s", r->rank,
			       r->job->name);
	rc = take_bytes(r, r->all->scratch, (size_t)got, e);
	return rc || r->write_wait ? rc : load_rank_write(r, e);
}
