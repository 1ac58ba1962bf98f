/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"
#include "common/dtype.h"

#include <endian.h>
#include <string.h>
#include <xxhash.h>

/* offsets of the fields in a header */
enum {
	AT_MAGIC = 0,
	AT_VERSION = 2,
	AT_TYPE = 3,
	AT_FLAGS = 4,
	AT_PRIORITY = 5,
	AT_DTYPE = 6,
	AT_OP = 7,
	AT_PAYLOAD_LEN = 8,
	AT_CHUNK = 12,
	AT_SEQ = 16,
	AT_COUNT = 24,
	AT_ACK = 32,
	AT_GENERATION = 40,
	AT_NAME_HASH = 44,
	AT_CHUNK_ELEMS = 48,
	AT_TENSORS = 52,
	AT_PAYLOAD_SUM = 56,
	AT_HEADER_SUM = 60,
};
_Static_assert(AT_HEADER_SUM + 4 == FRAME_HEADER, "the header checksum ends the header");

static void put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof v);
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof v);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return le32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return le64toh(v);
}

uint32_t frame_checksum(const void *data, size_t len)
{
	return (uint32_t)XXH3_64bits(data, len);
}

/* Returns what is in the place of `tensors`. An operation that is not an all-reduce has
 * no group. */
static uint32_t frame_tensors(const struct operation *o)
{
	if (o->sharded)
		return o->parts;
	return o->op == FRAME_OP_BROADCAST ? o->root + 1 : o->tensors;
}

void frame_encode(const struct frame *f, uint8_t out[FRAME_HEADER])
{
	out[AT_MAGIC] = 'R';
	out[AT_MAGIC + 1] = 'S';
	out[AT_VERSION] = FRAME_VERSION;
	out[AT_TYPE] = f->type;
	out[AT_FLAGS] = f->flags;
	out[AT_PRIORITY] = f->of.priority;
	out[AT_DTYPE] = (uint8_t)(f->of.dtype | f->of.up << 4);
	out[AT_OP] = (uint8_t)(f->of.op | f->of.sharded << 3 | f->of.down << 5);
	put32(out + AT_PAYLOAD_LEN, f->payload_len);
	put32(out + AT_CHUNK, f->chunk);
	put64(out + AT_SEQ, f->of.seq);
	put64(out + AT_COUNT, f->of.count);
	put64(out + AT_ACK, f->ack);
	put32(out + AT_GENERATION, f->generation);
	put32(out + AT_NAME_HASH, f->of.name_hash);
	put32(out + AT_CHUNK_ELEMS, f->chunk_elems);
	put32(out + AT_TENSORS, frame_tensors(&f->of));
	put32(out + AT_PAYLOAD_SUM, f->payload_sum);
	put32(out + AT_HEADER_SUM, frame_checksum(out, AT_HEADER_SUM));
}

/* Reads the description of the operation: see frame_tensors(). Without a number of parts
 * the op stays what it is, which nobody knows. */
static struct operation frame_operation(const uint8_t in[FRAME_HEADER])
{
	struct operation o = {
	    .seq = get64(in + AT_SEQ),
	    .count = get64(in + AT_COUNT),
	    .tensors = get32(in + AT_TENSORS),
	    .name_hash = get32(in + AT_NAME_HASH),
	    .dtype = in[AT_DTYPE] & 15,
	    .op = in[AT_OP] & 31,
	    .priority = in[AT_PRIORITY],
	    .up = in[AT_DTYPE] >> 4,
	    .down = in[AT_OP] >> 5,
	};

	o.size = rs_dtype_size(o.dtype) & OPERATION_SIZE;
	if (o.op & 8 && o.tensors) {
		o.sharded = 1;
		o.op &= 23;
		o.parts = o.tensors;
		o.tensors = 0;
	} else if (o.op == FRAME_OP_BROADCAST) {
		o.root = o.tensors - 1;
		o.tensors = 0;
	}
	return o;
}

static bool type_known(unsigned type)
{
	return type >= FRAME_HELLO && type < FRAME_TYPE_NR;
}

int frame_decode(const uint8_t in[FRAME_HEADER], struct frame *ret, struct rs_err *e)
{
	struct frame f;
	uint32_t most;

	if (in[AT_MAGIC] != 'R' || in[AT_MAGIC + 1] != 'S')
		return rs_fail(e, RS_EPROTO,
			       "the received bytes are not frames of this protocol (first bytes %02x %02x)", in[0],
			       in[1]);
	/* checked before the checksum, which another version may place elsewhere */
	if (in[AT_VERSION] != FRAME_VERSION)
		return rs_fail(e, RS_EPROTO, "the peer speaks protocol version %u, this side speaks version %u",
			       in[AT_VERSION], FRAME_VERSION);
	if (get32(in + AT_HEADER_SUM) != frame_checksum(in, AT_HEADER_SUM))
		return rs_fail(e, RS_EPROTO, "a frame header's checksum is wrong");

	f = (struct frame){
	    .of = frame_operation(in),
	    .type = in[AT_TYPE],
	    .flags = in[AT_FLAGS],
	    .payload_len = get32(in + AT_PAYLOAD_LEN),
	    .chunk = get32(in + AT_CHUNK),
	    .ack = get64(in + AT_ACK),
	    .generation = get32(in + AT_GENERATION),
	    .chunk_elems = get32(in + AT_CHUNK_ELEMS),
	    .payload_sum = get32(in + AT_PAYLOAD_SUM),
	};
	if (!type_known(f.type))
		return rs_fail(e, RS_EPROTO, "frame type %u is unknown", f.type);
	if (f.flags & ~(unsigned)FRAME_FLAGS_ALL)
		return rs_fail(e, RS_EPROTO, "frame flags 0x%x are unknown", f.flags & ~(unsigned)FRAME_FLAGS_ALL);
	if (in[AT_PRIORITY] >= FRAME_PRIORITIES)
		return rs_fail(e, RS_EPROTO, "frame priority %u is beyond %u, the highest", in[AT_PRIORITY],
			       FRAME_PRIORITIES - 1);

	most = FRAME_CONTROL_MAX;
	if (f.type == FRAME_DATA || f.type == FRAME_RESULT || f.type == FRAME_KEPT || f.type == FRAME_PROBE)
		most = FRAME_PAYLOAD_MAX;
	if (f.payload_len > most)
		return rs_fail(e, RS_EPROTO, "a %s frame announces %u payload bytes, at most %u are allowed",
			       frame_type_name(f.type), f.payload_len, most);

	*ret = f;
	return RS_OK;
}

uint32_t frame_name_hash(const char *name)
{
	uint32_t h;

	if (!name || !*name)
		return 0;
	h = frame_checksum(name, strlen(name));
	return h ? h : 1;
}

const char *frame_type_name(unsigned type)
{
	static const char *const names[FRAME_TYPE_NR] = {
	    [FRAME_HELLO] = "HELLO",         [FRAME_WELCOME] = "WELCOME", [FRAME_REFUSED] = "REFUSED",
	    [FRAME_WAITING] = "WAITING",     [FRAME_START] = "START",     [FRAME_DATA] = "DATA",
	    [FRAME_RESULT] = "RESULT",       [FRAME_PING] = "PING",       [FRAME_ABORT] = "ABORT",
	    [FRAME_GOODBYE] = "GOODBYE",     [FRAME_VIEW] = "VIEW",       [FRAME_RESUME] = "RESUME",
	    [FRAME_HAVE] = "HAVE",           [FRAME_FETCH] = "FETCH",     [FRAME_KEPT] = "KEPT",
	    [FRAME_SETTLE] = "SETTLE",       [FRAME_DRAIN] = "DRAIN",     [FRAME_LATE] = "LATE",
	    [FRAME_CHALLENGE] = "CHALLENGE", [FRAME_PROOF] = "PROOF",     [FRAME_PROBE] = "PROBE",
	    [FRAME_NONFINITE] = "NONFINITE", [FRAME_LOAD] = "LOAD",       [FRAME_CREDIT] = "CREDIT",
	};

	return type_known(type) ? names[type] : "type?";
}

uint64_t frame_chunks(uint64_t count, uint32_t chunk_elems)
{
	if (count == 0 || chunk_elems == 0)
		return 1;
	return (count - 1) / chunk_elems + 1;
}

uint32_t frame_chunk_len(uint64_t count, uint32_t chunk_elems, uint32_t chunk)
{
	uint64_t first = (uint64_t)chunk * chunk_elems;

	if (first >= count)
		return 0;
	return count - first < chunk_elems ? (uint32_t)(count - first) : chunk_elems;
}
