/* SPDX-License-Identifier: Apache-2.0 */
/* Headers and control payloads from the network. An accepted header is equal after
 * encoding it again. An accepted control message fits its buffers, and packing and
 * unpacking it again gives an equal one. */
#include "tests/fuzz/fuzz.h"

#include "common/dtype.h"
#include "config/config.h"
#include "proto/control.h"

#include <string.h>

static void check_refusal(int rc, const struct rs_err *e)
{
	must(rc == RS_EPROTO && e->code == rc && e->msg[0]);
}

/* Any 64 bytes, and the same with a valid checksum. */
static void try_header(const uint8_t *data, size_t size)
{
	uint8_t raw[FRAME_HEADER] = {0}, again[FRAME_HEADER];
	struct rs_err e = {0};
	struct frame f;
	int rc;

	memcpy(raw, data, size < sizeof raw ? size : sizeof raw);
	for (int honest = 0; honest < 2; honest++) {
		uint32_t sum = frame_checksum(raw, FRAME_HEADER - 4);

		rc = frame_decode(raw, &f, &e);
		if (rc) {
			check_refusal(rc, &e);
		} else {
			frame_encode(&f, again);
			must(memcmp(raw, again, sizeof raw) == 0);
			must(strcmp(frame_type_name(f.type), "type?") != 0);
			must(f.payload_len <= FRAME_PAYLOAD_MAX && f.of.priority < FRAME_PRIORITIES);
		}
		for (int i = 0; i < 4; i++)
			raw[FRAME_HEADER - 4 + i] = (uint8_t)(sum >> 8 * i);
	}
}

/* The chunks of an operation together have its elements, for any numbers. */
static void try_chunks(struct fuzz_input *in)
{
	uint64_t count = fuzz_number(in), chunks;
	uint32_t elems = (uint32_t)fuzz_number(in), chunk = (uint32_t)fuzz_number(in), len;

	if (!elems)
		elems = 1;
	chunks = frame_chunks(count, elems);
	len = frame_chunk_len(count, elems, chunk);
	must(chunks >= 1 && len <= elems);
	must(chunk < chunks ? len > 0 || count == 0 : len == 0);
	if (chunks <= UINT32_MAX)
		must((chunks - 1) * elems + frame_chunk_len(count, elems, (uint32_t)(chunks - 1)) == count);
}

/* The chunks of a sharded operation lie within their parts, for any numbers, and its last
 * row ends all parts. */
static void try_parts(struct fuzz_input *in)
{
	struct operation o = {.sharded = 1, .parts = 1 + fuzz_below(in, OPERATION_PARTS_MAX)};
	uint64_t size = fuzz_number(in) % (UINT64_MAX / o.parts), chunks;
	uint32_t elems = (uint32_t)fuzz_number(in), chunk = (uint32_t)fuzz_number(in);
	struct operation_place at;

	if (!elems)
		elems = 1;
	o.count = size * o.parts;
	chunks = operation_chunks(&o, elems);
	at = operation_place(&o, elems, chunk);
	must(chunks >= o.parts && chunks % o.parts == 0 && at.part < o.parts && at.elems <= elems);
	if (chunk >= chunks)
		return;
	must(at.first == at.part * size + at.offset && at.offset + at.elems <= size && (at.elems > 0 || !size));
	must(at.elems == elems || at.offset + at.elems == size);
	must((chunk / o.parts + 1 == chunks / o.parts) == (at.offset + at.elems == size));
}

/* Chunks of encoded operations are whole blocks, which fit the job's chunks in both
 * directions and in memory. */
static void try_encodings(struct fuzz_input *in)
{
	uint32_t chunk = RS_CHUNK_MIN + fuzz_below(in, (RS_CHUNK_MAX - RS_CHUNK_MIN) / 64 + 1) * 64;
	uint32_t decoded = 2 * chunk + fuzz_below(in, 6 * chunk / 64 + 1) * 64, elems;
	struct operation o = {.dtype = fuzz_below(in, RS_DTYPE_NR) & 15, .op = fuzz_below(in, RS_OP_NR) & 31};

	o.size = rs_dtype_size(o.dtype) & OPERATION_SIZE;
	operation_choose_wire(&o, fuzz_u8(in) % (RS_WIRE_NR + 1), fuzz_u8(in) % (RS_WIRE_NR + 1));
	must(rs_wire_fits(o.up, o.dtype, o.op) && rs_wire_fits(o.down, o.dtype, o.op));
	elems = operation_chunk_elems(&o, chunk, decoded);
	must(elems > 0 && elems * (uint64_t)(operation_is_encoded(&o) ? sizeof(float) : 1) <= decoded);
	must(!operation_is_encoded(&o) || elems % RS_WIRE_BLOCK == 0);
	must(operation_up_bytes(&o, elems) <= rs_wire_chunk_most(chunk, decoded));
	must(operation_down_bytes(&o, elems) <= rs_wire_chunk_most(chunk, decoded));
}

static bool plain(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return false;
	return true;
}

static void try_hello(const uint8_t *data, uint32_t len)
{
	struct control_hello h = {0}, again = {0};
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e = {0};
	int rc = control_unpack_hello(data, len, &h, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	must(plain(h.job) && plain(h.label) && plain(h.run) && plain(h.reducer));
	len = control_pack_hello(out, &h);
	must(len <= CONTROL_HELLO_LEN);
	must(control_unpack_hello(out, len, &again, &e) == RS_OK);
	must(strcmp(h.job, again.job) == 0 && strcmp(h.run, again.run) == 0 && h.rank == again.rank &&
	     h.incarnation == again.incarnation);
	must(h.decoded_bytes == again.decoded_bytes && h.features == again.features);
	must(h.most_window == again.most_window && h.wanted_window == again.wanted_window);
	must(h.has_nonce == again.has_nonce && memcmp(h.nonce, again.nonce, sizeof h.nonce) == 0);
}

static void try_welcome(const uint8_t *data, uint32_t len)
{
	struct control_welcome w, again;
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e = {0};
	int rc = control_unpack_welcome(data, len, &w, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	must(control_unpack_welcome(out, control_pack_welcome(out, &w), &again, &e) == RS_OK);
	must(again.detect_ms == w.detect_ms && again.proven == w.proven);
	must(!w.proven || memcmp(again.mac, w.mac, sizeof w.mac) == 0);
}

static void try_challenge(const uint8_t *data, uint32_t len)
{
	uint8_t nonce[AUTH_NONCE], again[AUTH_NONCE], out[CONTROL_PROOF_LEN];
	struct rs_err e = {0};
	int rc = control_unpack_challenge(data, len, nonce, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	len = control_pack_challenge(out, nonce);
	must(len <= sizeof out && control_unpack_challenge(out, len, again, &e) == RS_OK);
	must(memcmp(nonce, again, sizeof nonce) == 0);
}

static void try_proof(const uint8_t *data, uint32_t len)
{
	uint8_t mac[AUTH_MAC], again[AUTH_MAC], out[CONTROL_PROOF_LEN];
	struct rs_err e = {0};
	int rc = control_unpack_proof(data, len, mac, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	len = control_pack_proof(out, mac);
	must(len <= sizeof out && control_unpack_proof(out, len, again, &e) == RS_OK);
	must(memcmp(mac, again, sizeof mac) == 0);
}

static void try_refused(const uint8_t *data, uint32_t len)
{
	struct control_refused r, again;
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e = {0};
	int rc = control_unpack_refused(data, len, &r, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	must(r.code < 0 && plain(r.message));
	must(control_unpack_refused(out, control_pack_refused(out, &r), &again, &e) == RS_OK);
	must(again.code == r.code && again.retry == r.retry && strcmp(again.message, r.message) == 0);
}

static void try_waiting(const uint8_t *data, uint32_t len)
{
	struct control_waiting w, again;
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e = {0};
	int rc = control_unpack_waiting(data, len, &w, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	must(w.missing_n <= CONTROL_MISSING);
	must(control_unpack_waiting(out, control_pack_waiting(out, &w), &again, &e) == RS_OK);
	must(memcmp(&w, &again, sizeof w) == 0);
}

static bool same_cause(const struct rs_cause *a, const struct rs_cause *b)
{
	return a->code == b->code && a->rank == b->rank && a->reducer == b->reducer && a->loss == b->loss &&
	       a->narrow == b->narrow;
}

static void try_abort(const uint8_t *data, uint32_t len)
{
	struct rs_err why = {0}, again = {0}, e = {0};
	struct rs_cause cause = {0}, cause_again = {0};
	uint8_t out[FRAME_CONTROL_MAX];
	int rc = control_unpack_abort(data, len, &why, &cause, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	must(why.code < 0 && plain(why.msg));
	must(control_unpack_abort(out, control_pack_abort(out, &why, &cause), &again, &cause_again, &e) == RS_OK);
	must(again.code == why.code && strcmp(again.msg, why.msg) == 0);
	must(same_cause(&cause, &cause_again));
}

static void try_view(const uint8_t *data, uint32_t len)
{
	struct control_view v = {0}, again = {0}, merged = {0};
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e = {0};
	int rc = control_unpack_view(data, len, &v, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	must(v.n >= 1 && v.n <= CONTROL_REDUCERS);
	len = control_pack_view(out, &v);
	must(len <= CONTROL_VIEW);
	must(control_unpack_view(out, len, &again, &e) == RS_OK);
	must(again.epoch == v.epoch && memcmp(again.shares, v.shares, sizeof v.shares) == 0);
	must(again.n == v.n && memcmp(again.lives, v.lives, v.n * sizeof v.lives[0]) == 0);
	must(memcmp(again.start, v.start, sizeof v.start) == 0);
	must(same_cause(&again.cause, &v.cause));
	merged.n = v.n;
	must(!control_view_conflicts(&merged, &v) && !control_view_conflicts(&v, &again));
	again.shares[v.n - 1] ^= 1;
	must(control_view_conflicts(&v, &again) == (v.epoch > 0) &&
	     control_view_conflicts(&again, &v) == (v.epoch > 0));
	again.epoch ^= 1;
	must(!control_view_conflicts(&v, &again));
	control_view_merge(&merged, &v);
	must(merged.epoch == v.epoch && !control_view_conflicts(&merged, &v));
	must(!control_view_merge(&merged, &v) && control_view_number(&merged) == control_view_number(&v));
}

static void try_late(const uint8_t *data, uint32_t len)
{
	struct control_late l = {0}, again = {0};
	uint8_t out[FRAME_CONTROL_MAX];
	struct rs_err e = {0};
	int rc = control_unpack_late(data, len, &l, &e);

	if (rc) {
		check_refusal(rc, &e);
		return;
	}
	must(l.missing_n >= 1 && l.missing_n <= CONTROL_MISSING && l.missing_n <= l.missing_all && plain(l.label));
	must(control_unpack_late(out, control_pack_late(out, &l), &again, &e) == RS_OK);
	must(again.seq == l.seq && again.missing_n == l.missing_n && strcmp(again.label, l.label) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const tries[16])(const uint8_t *, uint32_t) = {
	    try_hello, try_welcome,    try_refused,         try_waiting,     try_abort,
	    try_view,  [8] = try_late, [9] = try_challenge, [10] = try_proof};
	struct fuzz_input in = {data, size};
	uint8_t what = fuzz_u8(&in) % 16;

	if (what == 6)
		try_header(in.at, in.left);
	else if (what == 7)
		try_chunks(&in);
	else if (what == 11)
		try_encodings(&in);
	else if (what == 12)
		try_parts(&in);
	else if (tries[what])
		tries[what](in.at, (uint32_t)(in.left < FRAME_CONTROL_MAX ? in.left : FRAME_CONTROL_MAX));
	return 0;
}
