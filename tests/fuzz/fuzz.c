/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include "proto/control.h"

#include <string.h>

void fuzz_failed(const char *condition, const char *file, int line)
{
	fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, condition);
	abort();
}

uint8_t fuzz_u8(struct fuzz_input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

uint32_t fuzz_u32(struct fuzz_input *in)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++)
		v |= (uint32_t)fuzz_u8(in) << 8 * i;
	return v;
}

uint64_t fuzz_u64(struct fuzz_input *in)
{
	uint64_t low = fuzz_u32(in);

	return low | (uint64_t)fuzz_u32(in) << 32;
}

uint32_t fuzz_below(struct fuzz_input *in, uint32_t n)
{
	return (n <= 256 ? fuzz_u8(in) : fuzz_u32(in)) % n;
}

uint64_t fuzz_number(struct fuzz_input *in)
{
	uint8_t kind = fuzz_u8(in);

	if (kind < 128)
		return kind;
	if (kind < 192) /* 2^0 .. 2^63, one less or more, or 3/2 of it */
		switch (fuzz_u8(in) & 3) {
		case 0:
			return (UINT64_C(1) << (kind - 128)) - 1;
		case 1:
			return UINT64_C(1) << (kind - 128);
		case 2:
			return (UINT64_C(1) << (kind - 128)) + 1;
		default:
			return UINT64_C(3) << (kind - 128) >> 1;
		}
	if (kind < 208)
		return UINT64_MAX - (kind - 192);
	if (kind < 224)
		return UINT32_MAX - (kind - 208);
	return kind < 240 ? fuzz_u32(in) : fuzz_u64(in);
}

const uint8_t *fuzz_bytes(struct fuzz_input *in, size_t most, size_t *ret_len)
{
	size_t n = fuzz_u8(in);
	const uint8_t *at;

	if (n == 255)
		n = SIZE_MAX; /* all */
	n = n < most ? n : most;
	n = n < in->left ? n : in->left;
	at = in->at;
	in->at += n;
	in->left -= n;
	*ret_len = n;
	return at;
}

void fuzz_text(struct fuzz_input *in, char *buf, size_t size)
{
	size_t n;
	const uint8_t *from = fuzz_bytes(in, size - 1, &n);

	memcpy(buf, from, n);
	buf[n] = '\0';
}

void fuzz_twist(struct fuzz_input *in, struct frame *f)
{
	uint8_t n = fuzz_u8(in);

	for (n = n < 128 ? 0 : n & 3; n; n--) {
		uint8_t field = fuzz_u8(in) % 16;
		uint64_t v = fuzz_number(in);

		switch (field) {
		case 0:
			f->type = (uint8_t)v;
			break;
		case 1:
			f->flags = (uint8_t)v;
			break;
		case 2:
			f->of.priority = (uint8_t)v;
			break;
		case 3:
			f->of.dtype = v & 15;
			f->of.up = v >> 4 & 15;
			break;
		case 4:
			f->of.op = v & 31;
			f->of.down = v >> 5 & 7;
			break;
		case 5:
			f->payload_len = (uint32_t)v;
			break;
		case 6:
			f->chunk = (uint32_t)v;
			break;
		case 7:
			f->of.seq = v;
			break;
		case 8:
			f->of.count = v;
			break;
		case 9:
			f->ack = v;
			break;
		case 10:
			f->generation = (uint32_t)v;
			break;
		case 11:
			f->of.name_hash = (uint32_t)v;
			break;
		case 12:
			f->chunk_elems = (uint32_t)v;
			break;
		case 13:
			f->of.tensors = (uint32_t)v;
			f->of.root = (uint32_t)v - 1;
			break;
		case 14:
			f->payload_sum = (uint32_t)v;
			break;
		default:
			f->of.seq += v; /* near its current value */
		}
	}
}

static uint32_t welcome(struct fuzz_input *in, uint8_t *out)
{
	struct control_welcome w = {.detect_ms = (uint32_t)fuzz_number(in)};

	return control_pack_welcome(out, &w);
}

static uint32_t waiting(struct fuzz_input *in, uint8_t *out)
{
	struct control_waiting w = {.joined = fuzz_u8(in), .world_size = fuzz_u8(in)};

	w.missing_n = fuzz_below(in, CONTROL_MISSING + 1);
	for (uint32_t i = 0; i < w.missing_n; i++)
		w.missing[i] = (uint32_t)fuzz_number(in);
	return control_pack_waiting(out, &w);
}

static uint32_t late(struct fuzz_input *in, uint8_t *out)
{
	struct control_late l = {.seq = fuzz_number(in), .waited_ms = (uint32_t)fuzz_number(in)};

	l.missing_n = 1 + fuzz_below(in, CONTROL_MISSING);
	l.missing_all = l.missing_n + fuzz_below(in, 3);
	for (uint32_t i = 0; i < l.missing_n; i++)
		l.missing[i] = (uint32_t)fuzz_number(in);
	fuzz_text(in, l.label, sizeof l.label);
	return control_pack_late(out, &l);
}

static uint32_t refused(struct fuzz_input *in, uint8_t *out)
{
	uint8_t flags = fuzz_u8(in);
	struct control_refused r = {.retry = flags & 1, .elsewhere = flags & 2, .code = -(int)fuzz_u8(in)};

	fuzz_text(in, r.message, sizeof r.message);
	if (flags & 4)
		fuzz_text(in, r.reducer, sizeof r.reducer);
	return control_pack_refused(out, &r);
}

static uint32_t ended(struct fuzz_input *in, uint8_t *out)
{
	struct rs_err why = {.code = -(int)fuzz_u8(in)};

	fuzz_text(in, why.msg, sizeof why.msg);
	return control_pack_abort(out, &why, &(struct rs_cause){.code = why.code, .rank = strlen(why.msg) % 4});
}

/* Makes a view, usually of one to four reducers. */
static uint32_t view(struct fuzz_input *in, uint8_t *out)
{
	uint8_t n = fuzz_u8(in);
	struct control_view v = {.n = n < 240 ? 1 + n % 4 : n};

	for (unsigned i = 0; i < v.n && in->left; i++)
		v.lives[i] = n & 8 ? (uint32_t)fuzz_number(in) : fuzz_u8(in) % 8;
	for (unsigned p = 0; p < FRAME_PRIORITIES; p++)
		v.start[p] = n & 16 ? fuzz_number(in) : fuzz_u8(in);
	if (n & 32)
		v.epoch = n & 64 ? (uint32_t)fuzz_number(in) : fuzz_u8(in) % 4;
	for (unsigned i = 0; v.epoch && i < v.n; i++)
		v.shares[i] = n & 128 ? (uint32_t)fuzz_number(in) : 1u + fuzz_u8(in) % 4;
	return control_pack_view(out, &v);
}

uint32_t fuzz_control(struct fuzz_input *in, unsigned type, uint8_t *out)
{
	uint8_t damage = fuzz_u8(in), nonce[AUTH_NONCE];
	uint32_t len = 0;

	switch (type) {
	case FRAME_WELCOME:
		len = welcome(in, out);
		break;
	case FRAME_CHALLENGE:
		memset(nonce, fuzz_u8(in), sizeof nonce);
		len = control_pack_challenge(out, nonce);
		break;
	case FRAME_REFUSED:
		len = refused(in, out);
		break;
	case FRAME_WAITING:
		len = waiting(in, out);
		break;
	case FRAME_LATE:
		len = late(in, out);
		break;
	case FRAME_ABORT:
		len = ended(in, out);
		break;
	case FRAME_VIEW:
	case FRAME_RESUME:
		len = view(in, out);
		break;
	default:
		break;
	}
	if (damage < 192)
		return len;
	if (damage < 224 && len) { /* one byte */
		out[fuzz_below(in, len)] ^= (uint8_t)(1 << damage % 8);
		return len;
	}
	if (damage < 240) { /* bytes that are no message */
		size_t n;
		const uint8_t *from = fuzz_bytes(in, FRAME_CONTROL_MAX, &n);

		memcpy(out, from, n);
		return (uint32_t)n;
	}
	return damage < 248 ? len / 2 : 0;
}

bool fuzz_decode(struct fuzz_decoder *d, const uint8_t **data, size_t *len)
{
	struct rs_err e = {0};

	while (*len) {
		size_t part = d->left ? d->left : FRAME_HEADER - d->have;

		part = part < *len ? part : *len;
		if (d->left) {
			for (size_t i = 0; i < part; i++)
				d->hash = (d->hash ^ (*data)[i]) * UINT64_C(0x100000001b3);
			if (d->f.payload_len <= FRAME_CONTROL_MAX)
				memcpy(d->control + d->f.payload_len - d->left, *data, part);
			d->left -= (uint32_t)part;
		} else {
			memcpy(d->raw + d->have, *data, part);
			d->have += (unsigned)part;
			if (d->have == FRAME_HEADER) {
				must(frame_decode(d->raw, &d->f, &e) == RS_OK);
				d->left = d->f.payload_len;
				d->hash = UINT64_C(0xcbf29ce484222325);
			}
		}
		*data += part;
		*len -= part;
		if (d->have == FRAME_HEADER && !d->left) {
			d->have = 0;
			return true;
		}
	}
	return false;
}

size_t fuzz_scatter(const struct iovec *iov, unsigned n, const uint8_t *at, size_t len)
{
	size_t done = 0;

	for (unsigned i = 0; i < n && done < len; i++) {
		size_t part = iov[i].iov_len < len - done ? iov[i].iov_len : len - done;

		must(iov[i].iov_len > 0);
		memcpy(iov[i].iov_base, at + done, part);
		done += part;
	}
	return done;
}

/* Declared by the sanitizers' run-time library, if there is one. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

size_t fuzz_heap(void)
{
	return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0;
}
