/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_home.h"

#include <stdlib.h>
#include <string.h>

void fh_init(struct fh_homes *all, struct fw_world *fw)
{
	*all = (struct fh_homes){.fw = fw, .piece = SIZE_MAX};
	fw->serve_uplinks = fh_serve;
	fw->homes = all;
}

void fh_close(struct fh_homes *all)
{
	fw_close(all->fw);
	for (unsigned i = 0; i < FAKE_HOMES_MAX; i++) {
		must(!all->h[i].u);
		free(all->h[i].out.at);
		free(all->h[i].in.at);
	}
}

static void forget(struct fh_homes *all, struct fh_home *h)
{
	struct uplink *u = h->u;

	h->u = NULL;
	h->up = false;
	all->closed++;
	uplink_closed(u);
}

static void write_all(struct fh_homes *all, struct fh_home *h)
{
	struct iovec iov[2];
	unsigned n;

	while (h->up && h->room && (n = uplink_send_target(h->u, iov)) > 0) {
		size_t left = all->piece < h->room ? all->piece : h->room, sent = 0;

		for (unsigned i = 0; i < n && left; i++) {
			size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

			fw_append(&h->in, iov[i].iov_base, part);
			sent += part;
			left -= part;
		}
		if (h->room != SIZE_MAX)
			h->room -= sent;
		uplink_sent(h->u, sent, all->fw->now_ms);
		fw_check(all->fw);
	}
}

static void dial(struct fh_homes *all, struct uplink *u)
{
	struct fh_home *h = all->h;

	while (h->u)
		h++;
	must(h < all->h + FAKE_HOMES_MAX);
	h->u = u;
	h->room = SIZE_MAX;
	h->in.off = h->in.len = h->out.off = h->out.len = 0;
	uplink_set_user(u, h);
	all->dialled++;
}

void fh_serve(void *homes)
{
	struct fh_homes *all = homes;
	struct uplink *u;

	while ((u = lane_next_uplink(all->fw->lane))) {
		enum uplink_want want = uplink_want(u);
		struct fh_home *h = uplink_user(u);

		if (want == UPLINK_CONNECT)
			dial(all, u);
		else if (want == UPLINK_CLOSE && h)
			forget(all, h);
		else if (h)
			write_all(all, h);
	}
}

struct fh_home *fh_find(struct fh_homes *all, unsigned reducer)
{
	for (unsigned i = 0; i < FAKE_HOMES_MAX; i++)
		if (all->h[i].u && uplink_reducer(all->h[i].u) == reducer)
			return &all->h[i];
	return NULL;
}

struct fh_home *fh_accept(struct fh_homes *all, unsigned reducer)
{
	struct fh_home *h = all->h;
	const uint8_t *payload;
	struct frame f;
	struct rs_err e;

	while (h < all->h + FAKE_HOMES_MAX && (!h->u || h->up || uplink_reducer(h->u) != reducer))
		h++;
	must(h < all->h + FAKE_HOMES_MAX);
	h->up = true;
	uplink_connected(h->u, NULL, 0, all->fw->now_ms);
	fw_flush(all->fw);
	f = fh_expect(h, FRAME_HELLO, &payload);
	must(control_unpack_hello(payload, f.payload_len, &h->hello, &e) == RS_OK);
	memcpy(h->hello_bytes, payload, f.payload_len);
	h->hello_len = f.payload_len;
	return h;
}

struct fh_home *fh_join(struct fh_homes *all, unsigned reducer)
{
	struct fh_home *h = fh_accept(all, reducer);
	uint8_t packed[FRAME_CONTROL_MAX];

	fh_send_control(all, h, FRAME_WELCOME, packed,
			control_pack_welcome(packed, &(struct control_welcome){.detect_ms = FAKE_DETECT_MS}));
	fh_send_start(all, h, FAKE_START, 0);
	return h;
}

void fh_break(struct fh_homes *all, struct fh_home *h, const char *why)
{
	uplink_lost(h->u, why, all->fw->now_ms);
	forget(all, h);
	fw_flush(all->fw);
}

void fh_grant(struct fh_homes *all, struct fh_home *h, size_t room)
{
	h->room = room;
	write_all(all, h);
	fw_flush(all->fw);
}

/* Feeds what was sent, as far as the uplink takes it. */
static void feed(struct fh_homes *all, struct fh_home *h)
{
	struct iovec iov[2];
	unsigned n;

	while (h->up && h->out.off < h->out.len && (n = uplink_recv_target(h->u, iov)) > 0) {
		size_t left = h->out.len - h->out.off, done = 0;

		left = left < all->piece ? left : all->piece;
		for (unsigned i = 0; i < n && left; i++) {
			size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

			memcpy(iov[i].iov_base, h->out.at + h->out.off, part);
			h->out.off += part;
			done += part;
			left -= part;
		}
		uplink_received(h->u, done, all->fw->now_ms);
		fw_check(all->fw);
		fw_flush(all->fw);
	}
}

void fh_send_bytes(struct fh_homes *all, struct fh_home *h, const void *bytes, size_t len)
{
	fw_append(&h->out, bytes, len);
	feed(all, h);
}

void fh_send(struct fh_homes *all, struct fh_home *h, struct frame f, const void *payload)
{
	uint8_t head[FRAME_HEADER];

	frame_encode(&f, head);
	fw_append(&h->out, head, sizeof head);
	fh_send_bytes(all, h, payload, f.payload_len);
}

void fh_send_control(struct fh_homes *all, struct fh_home *h, unsigned type, const uint8_t *packed, uint32_t len)
{
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];

	fh_send_bytes(all, h, frame, control_frame(frame, type, FAKE_GENERATION, 0, packed, len));
}

void fh_send_start(struct fh_homes *all, struct fh_home *h, uint64_t start, uint32_t window)
{
	uint8_t packed[FRAME_CONTROL_MAX];

	fh_send_control(all, h, FRAME_START, packed,
			control_pack_start(packed, &(struct control_start){.start = start, .window = window}));
}

void fh_send_resume(struct fh_homes *all, struct fh_home *h, const struct control_view *v)
{
	uint8_t packed[FRAME_CONTROL_MAX];

	fh_send_control(all, h, FRAME_RESUME, packed, control_pack_view(packed, v));
}

void fh_send_result(struct fh_homes *all, struct fh_home *h, struct frame data, const void *payload, uint32_t len)
{
	struct frame f = data;

	f.type = FRAME_RESULT;
	f.flags = 0;
	f.ack = f.payload_sum = 0;
	f.payload_len = len;
	if (all->fw->params.checksum) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, len);
	}
	fh_send(all, h, f, payload);
}

struct frame fh_expect(struct fh_home *h, unsigned type, const uint8_t **payload)
{
	struct frame f;

	if (!fw_take_from(&h->in, &f, payload))
		ck_abort_msg("the home got nothing instead of %s", frame_type_name(type));
	if (f.type != type)
		ck_abort_msg("the home got %s instead of %s", frame_type_name(f.type), frame_type_name(type));
	must(f.generation == FAKE_GENERATION);
	return f;
}

void fh_expect_nothing(struct fh_home *h)
{
	must(h->in.len == h->in.off);
}
