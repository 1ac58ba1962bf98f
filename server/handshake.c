/* SPDX-License-Identifier: Apache-2.0 */
#include "server/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void handshake_init(struct handshake *h)
{
	*h = (struct handshake){.payload = NULL};
}

void handshake_close(struct handshake *h)
{
	free(h->payload);
	h->payload = NULL;
}

size_t handshake_target(const struct handshake *h, uint8_t **ret_at)
{
	if (!h->payload) {
		*ret_at = (uint8_t *)h->head + h->have;
		return FRAME_HEADER - h->have;
	}
	*ret_at = h->payload + (h->have - FRAME_HEADER);
	return FRAME_HEADER + h->frame.payload_len - h->have;
}

const char *handshake_lacks(const struct handshake *h)
{
	(void)h;
	return "HELLO";
}

struct control_refused handshake_refusal(const struct rs_err *why)
{
	struct control_refused refused = {.code = why->code,
					  .retry = why->code == RS_ENOMEM || why->code == RS_ETIMEOUT};

	snprintf(refused.message, sizeof refused.message, "%s", why->msg);
	return refused;
}

uint32_t handshake_pack_refused(uint8_t *out, const struct control_refused *refused)
{
	uint8_t payload[FRAME_CONTROL_MAX];

	return control_frame(out, FRAME_REFUSED, 0, 0, payload, control_pack_refused(payload, refused));
}

static enum handshake_step refuse(struct handshake_result *ret, const struct rs_err *why)
{
	ret->refused = handshake_refusal(why);
	return HANDSHAKE_REFUSED;
}

/* The header stands: is this the frame that belongs here, and is there memory for it? */
static int begin_payload(struct handshake *h, struct rs_err *e)
{
	int rc = frame_decode(h->head, &h->frame, e);

	if (rc)
		return rc;
	if (h->frame.type != FRAME_HELLO)
		return rs_fail(e, RS_EPROTO, "the first frame is %s instead of HELLO", frame_type_name(h->frame.type));
	h->payload = malloc((size_t)h->frame.payload_len + 1);
	return h->payload ? RS_OK : rs_fail(e, RS_ENOMEM, "this reducer has no memory for a HELLO");
}

static enum handshake_step take_hello(struct handshake *h, struct handshake_result *ret)
{
	struct rs_err e;

	if (control_damaged(&h->frame, h->payload, &ret->refused))
		return HANDSHAKE_REFUSED;
	if (control_unpack_hello(h->payload, h->frame.payload_len, &ret->hello, &e))
		return refuse(ret, &e);
	return HANDSHAKE_ADMIT;
}

enum handshake_step handshake_received(struct handshake *h, size_t n, struct handshake_result *ret)
{
	struct rs_err e;

	h->have += (uint32_t)n;
	if (h->have < FRAME_HEADER)
		return HANDSHAKE_MORE;
	if (!h->payload && begin_payload(h, &e))
		return refuse(ret, &e);
	if (h->have < FRAME_HEADER + h->frame.payload_len)
		return HANDSHAKE_MORE;
	return take_hello(h, ret);
}
