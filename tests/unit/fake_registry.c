/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_registry.h"
#include "proto/features.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_action(void *ctx, const struct registry_action *a)
{
	struct fr_world *w = ctx;

	w->n[a->type]++;
	w->last = *a;
	if (a->type == REGISTRY_ASK)
		w->question = a->question;
	snprintf(w->name, sizeof w->name, "%s", a->job.name);
	if (a->frame_len)
		memcpy(w->frame, a->frame, a->frame_len);
}

static void *on_alloc(void *ctx, uint64_t bytes)
{
	struct fr_world *w = ctx;

	if (w->no_memory)
		return NULL;
	w->allocated += bytes;
	return malloc(bytes);
}

static void on_free(void *ctx, void *memory, uint64_t bytes)
{
	struct fr_world *w = ctx;

	w->allocated -= bytes;
	free(memory);
}

static void open_registry(struct fr_world *w, struct registry_limits limits, uint64_t features, uint64_t digest)
{
	struct registry_options opt = {.limits = limits,
				       .threads = 3,
				       .features = FR_FEATURES | FEATURE_WINDOWS | features,
				       .reducers_digest = digest,
				       .connection_bytes = FR_CONNECTION_BYTES,
				       .alloc = on_alloc,
				       .free = on_free,
				       .action = on_action,
				       .ctx = w};
	struct rs_err e;

	*w = (struct fr_world){0};
	ck_assert_int_eq(registry_new(&w->r, &opt, &e), RS_OK);
}

void fr_open(struct fr_world *w, unsigned jobs, unsigned workers, uint64_t memory)
{
	open_registry(w, (struct registry_limits){jobs, workers, memory}, 0, 0);
}

void fr_open_relay(struct fr_world *w, uint64_t reducers_digest)
{
	open_registry(w, (struct registry_limits){2, 8, UINT64_MAX}, FEATURE_RELAYS, reducers_digest);
}

void fr_close(struct fr_world *w)
{
	registry_free(w->r);
	ck_assert_uint_eq(w->allocated, 0);
}

struct control_hello fr_hello(unsigned rank, unsigned lane)
{
	struct control_hello h = {.generation = 4,
				  .rank = rank,
				  .world_size = 2,
				  .lane = lane,
				  .lanes = 2,
				  .chunk_bytes = FR_CHUNK,
				  .window = FR_WINDOW,
				  .priorities = FR_PRIORITIES,
				  .config_digest = 99,
				  .processes = 1 + rank,
				  .incarnation = 1000 + rank,
				  .detect_ms = 5000};

	strcpy(h.job, "train");
	strcpy(h.reducer, "r0");
	snprintf(h.label, sizeof h.label, "process %u on b", rank);
	return h;
}

uint64_t fr_admit(struct fr_world *w, const struct control_hello *h)
{
	struct registry_admit a;
	struct control_refused no = {0};

	if (registry_hello(w->r, h, &a, &no))
		ck_abort_msg("refused: %s", no.message);
	ck_assert_uint_eq(a.session.rank, h->rank);
	ck_assert_uint_eq(a.stripe.lane, h->lane);
	ck_assert_str_eq(a.session.label, h->label);
	registry_admitted(w->r, a.stripe.job);
	return a.stripe.job;
}

void fr_refused(struct fr_world *w, const struct control_hello *h, int code, bool retry, const char *says)
{
	struct registry_admit a;
	struct control_refused no = {0};
	unsigned jobs = registry_jobs(w->r);

	ck_assert_int_eq(registry_hello(w->r, h, &a, &no), code);
	ck_assert_msg(no.code == code && no.retry == retry && strstr(no.message, says),
		      "code %d, retry %d, \"%s\" instead of code %d, retry %d, \"%s\"", no.code, no.retry, no.message,
		      code, retry, says);
	ck_assert_uint_eq(registry_jobs(w->r), jobs);
}

uint64_t fr_admit_all(struct fr_world *w)
{
	uint64_t id = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct control_hello h = fr_hello(i / 2, i % 2);

		ck_assert_uint_eq(w->n[REGISTRY_START], 0);
		id = fr_admit(w, &h);
	}
	ck_assert_uint_eq(w->n[REGISTRY_START], 1);
	return id;
}

void fr_all_gone(struct fr_world *w, uint64_t id, bool clean)
{
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_eq(w->n[REGISTRY_CLOSED], 0);
		registry_session_closed(w->r, id, i / 2, i % 2, clean);
	}
	ck_assert_uint_eq(w->n[REGISTRY_CLOSED], 1);
	ck_assert_uint_eq(registry_jobs(w->r), 0);
	ck_assert_uint_eq(w->allocated, 0);
}
