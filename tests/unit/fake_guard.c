/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_guard.h"

#include <check.h>
#include <string.h>

const char guard_shared[] = "correct horse battery staple";

static int find_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret,
		       struct control_refused *refused)
{
	const struct guard *g = ctx;

	*ret = g->secret;
	if (!g->only || strcmp(g->only, hello->job) == 0)
		return RS_OK;
	*refused = (struct control_refused){.code = RS_EREFUSED, .message = "no secret for that job"};
	return RS_EREFUSED;
}

int guard_may_join(void *ctx, const char *peer, const struct control_hello *hello, double *ret_weight,
		   struct control_refused *refused)
{
	struct guard *g = ctx;

	ck_assert_str_eq(hello->job, "resnet");
	g->peer = peer;
	g->asked++;
	*ret_weight = 2.5;
	if (!g->closed)
		return RS_OK;
	*refused = (struct control_refused){.code = RS_EREFUSED, .message = "not you"};
	return RS_EREFUSED;
}

int guard_random(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	struct guard *g = ctx;

	if (g->no_randomness)
		return rs_fail(e, RS_EIO, "the system has no random numbers");
	memset(buf, g->next++, n);
	return RS_OK;
}

void guard_init(struct guard *g, const char *secret)
{
	*g = (struct guard){.policy = {.random = guard_random, .ctx = g}};
	if (!secret)
		return;
	g->secret.len = (uint32_t)strlen(secret);
	memcpy(g->secret.bytes, secret, g->secret.len);
	g->policy.secret = find_secret;
}

enum handshake_step guard_feed(struct handshake *h, const uint8_t *bytes, size_t len, size_t piece,
			       struct handshake_result *ret, size_t *ret_used)
{
	enum handshake_step step = HANDSHAKE_MORE;

	*ret_used = 0;
	while (step == HANDSHAKE_MORE && len > 0) {
		uint8_t *at;
		size_t n = handshake_target(h, &at);

		ck_assert_uint_gt(n, 0);
		n = n < piece ? n : piece;
		n = n < len ? n : len;
		memcpy(at, bytes, n);
		bytes += n;
		len -= n;
		*ret_used += n;
		step = handshake_received(h, n, ret);
	}
	return step;
}
