/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/control.h"

#include "common/version.h"
#include "proto/features.h"
#include "proto/reduction.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOFTWARE "reduction " RS_VERSION

uint32_t control_pack_hello(uint8_t *out, const struct control_hello *h)
{
	Reduction__V1__Hello m = REDUCTION__V1__HELLO__INIT;

	m.job = (char *)h->job;
	m.generation = h->generation;
	m.rank = h->rank;
	m.world_size = h->world_size;
	m.lane = h->lane;
	m.lanes = h->lanes;
	m.chunk_bytes = h->chunk_bytes;
	m.decoded_bytes = h->decoded_bytes;
	m.window = h->window;
	m.most_window = h->most_window;
	m.wanted_window = h->wanted_window;
	m.priorities = h->priorities;
	m.deterministic = h->deterministic;
	m.checksum = h->checksum;
	m.retain = h->retain;
	m.rejoin = h->rejoin;
	m.shared = h->shared;
	m.config_digest = h->config_digest;
	m.processes = h->processes;
	m.label = (char *)h->label;
	m.run = (char *)h->run;
	m.evidence = (char *)h->evidence;
	m.source = (char *)h->source;
	m.reducer = (char *)h->reducer;
	m.incarnation = h->incarnation;
	m.software = (char *)SOFTWARE;
	m.detect_ms = h->detect_ms;
	if (h->has_nonce)
		m.nonce = (ProtobufCBinaryData){sizeof h->nonce, (uint8_t *)h->nonce};

	m.features = h->features;
	m.groups = h->groups;
	m.group = h->group;
	m.uplinks = h->uplinks;
	m.relay = h->relay;
	m.reducers_digest = h->reducers_digest;
	return (uint32_t)reduction__v1__hello__pack(&m, out);
}

uint32_t control_pack_challenge(uint8_t *out, const uint8_t nonce[AUTH_NONCE])
{
	Reduction__V1__Challenge m = REDUCTION__V1__CHALLENGE__INIT;

	m.nonce = (ProtobufCBinaryData){AUTH_NONCE, (uint8_t *)nonce};
	return (uint32_t)reduction__v1__challenge__pack(&m, out);
}

uint32_t control_pack_proof(uint8_t *out, const uint8_t mac[AUTH_MAC])
{
	Reduction__V1__Proof m = REDUCTION__V1__PROOF__INIT;

	m.mac = (ProtobufCBinaryData){AUTH_MAC, (uint8_t *)mac};
	return (uint32_t)reduction__v1__proof__pack(&m, out);
}

uint32_t control_pack_welcome(uint8_t *out, const struct control_welcome *w)
{
	Reduction__V1__Welcome m = REDUCTION__V1__WELCOME__INIT;

	m.software = (char *)SOFTWARE;
	m.detect_ms = w->detect_ms;
	if (w->proven)
		m.mac = (ProtobufCBinaryData){sizeof w->mac, (uint8_t *)w->mac};
	m.features = w->features;
	return (uint32_t)reduction__v1__welcome__pack(&m, out);
}

uint32_t control_pack_start(uint8_t *out, const struct control_start *s)
{
	Reduction__V1__Start m = REDUCTION__V1__START__INIT;

	m.features = s->features;
	m.window = s->window;
	m.start = s->start;
	return (uint32_t)reduction__v1__start__pack(&m, out);
}

uint32_t control_pack_refused(uint8_t *out, const struct control_refused *r)
{
	Reduction__V1__Refused m = REDUCTION__V1__REFUSED__INIT;

	m.code = r->code;
	m.message = (char *)r->message;
	m.retry = r->retry;
	m.elsewhere = r->elsewhere;
	m.reducer = (char *)r->reducer;
	return (uint32_t)reduction__v1__refused__pack(&m, out);
}

uint32_t control_pack_waiting(uint8_t *out, const struct control_waiting *w)
{
	Reduction__V1__Waiting m = REDUCTION__V1__WAITING__INIT;

	m.joined = w->joined;
	m.world_size = w->world_size;
	m.missing = (uint32_t *)w->missing;
	m.n_missing = w->missing_n;
	m.refused = (char *)w->refused;
	return (uint32_t)reduction__v1__waiting__pack(&m, out);
}

uint32_t control_pack_late(uint8_t *out, const struct control_late *l)
{
	Reduction__V1__Late m = REDUCTION__V1__LATE__INIT;

	m.seq = l->seq;
	m.waited_ms = l->waited_ms;
	m.missing_all = l->missing_all;
	m.missing = (uint32_t *)l->missing;
	m.n_missing = l->missing_n;
	m.label = (char *)l->label;
	return (uint32_t)reduction__v1__late__pack(&m, out);
}

uint32_t control_pack_nonfinite(uint8_t *out, const struct control_nonfinite *n)
{
	Reduction__V1__Nonfinite m = REDUCTION__V1__NONFINITE__INIT;

	m.nan_operations = n->nan_operations;
	m.infinite_operations = n->infinite_operations;
	m.seq = n->seq;
	m.first = (char *)n->first;
	return (uint32_t)reduction__v1__nonfinite__pack(&m, out);
}

static Reduction__V1__Cause pack_cause(const struct rs_cause *c)
{
	Reduction__V1__Cause m = REDUCTION__V1__CAUSE__INIT;

	m.code = c->code;
	m.rank = c->rank;
	m.reducer = c->reducer;
	m.loss = c->loss;
	m.narrow = c->narrow;
	return m;
}

uint32_t control_pack_abort(uint8_t *out, const struct rs_err *why, const struct rs_cause *cause)
{
	Reduction__V1__Abort m = REDUCTION__V1__ABORT__INIT;
	Reduction__V1__Cause packed = pack_cause(cause ? cause : &(struct rs_cause){.code = why->code});

	m.code = why->code;
	m.message = (char *)why->msg;
	m.cause = &packed;
	return (uint32_t)reduction__v1__abort__pack(&m, out);
}

uint32_t control_pack_view(uint8_t *out, const struct control_view *v)
{
	Reduction__V1__View m = REDUCTION__V1__VIEW__INIT;
	Reduction__V1__Cause cause = pack_cause(&v->cause);
	uint8_t empty[CONTROL_REDUCERS / 8] = {0};

	m.lives = (uint32_t *)v->lives;
	m.n_lives = v->n;
	m.start = (uint64_t *)v->start;
	m.n_start = FRAME_PRIORITIES;
	m.lost = v->lost;
	m.why = (char *)v->why;
	m.reported = v->reported;
	m.lost_id = (char *)v->lost_id;
	if (v->reported || v->cause.loss)
		m.cause = &cause;
	m.features = v->features;
	m.lead = v->lead;
	if (v->features & FEATURE_RELAYS) {
		m.begun = (uint64_t *)v->begun;
		m.n_begun = FRAME_PRIORITIES;
	}
	m.epoch = v->epoch;
	m.shares = (uint32_t *)v->shares;
	m.n_shares = v->epoch ? v->n : 0;
	m.empty.data = empty;
	for (unsigned r = 0; r < v->n; r++)
		if (v->empty[r]) {
			empty[r / 8] |= (uint8_t)(1u << r % 8);
			m.empty.len = r / 8 + 1;
		}
	return (uint32_t)reduction__v1__view__pack(&m, out);
}

static int malformed(struct rs_err *e, const char *what)
{
	return rs_fail(e, RS_EPROTO, "the %s message cannot be decoded", what);
}

static void *unpack_alloc(void *failed, size_t size)
{
	void *p = malloc(size);

	if (!p)
		*(bool *)failed = true;
	return p;
}

static void unpack_free(void *failed, void *p)
{
	(void)failed;
	free(p);
}

/* Decodes a message. Returns NULL with an error if it cannot be decoded or if memory runs
 * out: protobuf-c does not say which. The caller frees the message with protobuf-c's
 * function of its type. */
static void *unpack(const ProtobufCMessageDescriptor *type, const char *what, const uint8_t *in, uint32_t len,
		    struct rs_err *e)
{
	bool failed = false;
	ProtobufCAllocator memory = {.alloc = unpack_alloc, .free = unpack_free, .allocator_data = &failed};
	void *m = protobuf_c_message_unpack(type, &memory, len, in);

	if (!m && failed)
		rs_oom(e, 0, "the %s message", what);
	else if (!m)
		malformed(e, what);
	return m;
}

/* Copies a name from the network. A name with control characters is refused, since it
 * could forge lines in a log or on a terminal. */
static int take_word(char *to, size_t size, const char *from, const char *what, struct rs_err *e)
{
	size_t len = strlen(from);

	if (len >= size)
		return rs_fail(e, RS_EPROTO, "the %s in HELLO has %zu bytes, at most %zu are allowed", what, len,
			       size - 1);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)from[i] < 0x20 || from[i] == 0x7f)
			return rs_fail(e, RS_EPROTO, "the %s in HELLO holds a control character", what);
	memcpy(to, from, len + 1);
	return RS_OK;
}

_Static_assert((int)AUTH_NONCE == (int)AUTH_MAC, "take_bytes takes both");

/* Copies a nonce or a proof, which have the same length. *ret_there is set to whether
 * there is one; if ret_there is NULL, there must be one. */
static int take_bytes(uint8_t *to, const ProtobufCBinaryData *from, bool *ret_there, const char *what, struct rs_err *e)
{
	bool there = from->len > 0;

	if (from->len != AUTH_NONCE && (there || !ret_there))
		return rs_fail(e, RS_EPROTO, "the %s has %zu bytes, %d were expected", what, from->len, AUTH_NONCE);
	if (there)
		memcpy(to, from->data, AUTH_NONCE);
	if (ret_there)
		*ret_there = there;
	return RS_OK;
}

/* Copies a sentence from the network: cut to size, control characters replaced by '?'. An
 * empty one is replaced, since users see it. */
static void take_sentence(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", *from ? from : "the peer gave no reason");
	for (char *p = to; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
}

int control_unpack_hello(const uint8_t *in, uint32_t len, struct control_hello *ret, struct rs_err *e)
{
	Reduction__V1__Hello *m = unpack(&reduction__v1__hello__descriptor, "HELLO", in, len, e);
	struct control_hello h = {0};
	int rc;

	if (!m)
		return e->code;
	h.generation = m->generation;
	h.rank = m->rank;
	h.world_size = m->world_size;
	h.lane = m->lane;
	h.lanes = m->lanes;
	h.chunk_bytes = m->chunk_bytes;
	h.decoded_bytes = m->decoded_bytes;
	h.window = m->window;
	h.most_window = m->most_window;
	h.wanted_window = m->wanted_window;
	h.priorities = m->priorities;
	h.deterministic = m->deterministic;
	h.checksum = m->checksum;
	h.retain = m->retain;
	h.rejoin = m->rejoin;
	h.shared = m->shared;
	h.config_digest = m->config_digest;
	h.processes = m->processes;
	h.incarnation = m->incarnation;
	h.detect_ms = m->detect_ms;
	h.features = m->features;
	h.groups = m->groups;
	h.group = m->group;
	h.uplinks = m->uplinks;
	h.relay = m->relay;
	h.reducers_digest = m->reducers_digest;
	rc = take_bytes(h.nonce, &m->nonce, &h.has_nonce, "nonce in HELLO", e);
	if (!rc)
		rc = take_word(h.job, sizeof h.job, m->job, "job name", e);
	if (!rc)
		rc = take_word(h.label, sizeof h.label, m->label, "label", e);
	if (!rc)
		rc = take_word(h.run, sizeof h.run, m->run, "run", e);
	if (!rc)
		rc = take_word(h.evidence, sizeof h.evidence, m->evidence, "evidence", e);
	if (!rc)
		rc = take_word(h.source, sizeof h.source, m->source, "source", e);
	if (!rc)
		rc = take_word(h.reducer, sizeof h.reducer, m->reducer, "reducer id", e);

	reduction__v1__hello__free_unpacked(m, NULL);
	if (rc)
		return rc;
	*ret = h;
	return RS_OK;
}

int control_unpack_challenge(const uint8_t *in, uint32_t len, uint8_t ret_nonce[AUTH_NONCE], struct rs_err *e)
{
	Reduction__V1__Challenge *m = unpack(&reduction__v1__challenge__descriptor, "CHALLENGE", in, len, e);
	int rc;

	if (!m)
		return e->code;
	rc = take_bytes(ret_nonce, &m->nonce, NULL, "nonce in CHALLENGE", e);
	reduction__v1__challenge__free_unpacked(m, NULL);
	return rc;
}

int control_unpack_proof(const uint8_t *in, uint32_t len, uint8_t ret_mac[AUTH_MAC], struct rs_err *e)
{
	Reduction__V1__Proof *m = unpack(&reduction__v1__proof__descriptor, "PROOF", in, len, e);
	int rc;

	if (!m)
		return e->code;
	rc = take_bytes(ret_mac, &m->mac, NULL, "proof in PROOF", e);
	reduction__v1__proof__free_unpacked(m, NULL);
	return rc;
}

int control_unpack_welcome(const uint8_t *in, uint32_t len, struct control_welcome *ret, struct rs_err *e)
{
	Reduction__V1__Welcome *m = unpack(&reduction__v1__welcome__descriptor, "WELCOME", in, len, e);
	struct control_welcome w = {0};
	int rc;

	if (!m)
		return e->code;
	w.detect_ms = m->detect_ms;
	w.features = m->features;
	snprintf(w.software, sizeof w.software, "%s", m->software);
	rc = take_bytes(w.mac, &m->mac, &w.proven, "proof in WELCOME", e);
	reduction__v1__welcome__free_unpacked(m, NULL);
	if (!rc)
		*ret = w;
	return rc;
}

int control_unpack_start(const uint8_t *in, uint32_t len, struct control_start *ret, struct rs_err *e)
{
	Reduction__V1__Start *m = unpack(&reduction__v1__start__descriptor, "START", in, len, e);

	if (!m)
		return e->code;
	*ret = (struct control_start){.features = m->features, .start = m->start, .window = m->window};
	reduction__v1__start__free_unpacked(m, NULL);
	return RS_OK;
}

static int code_from_wire(int code)
{
	return code < 0 && strcmp(rs_code_text(code), rs_code_text(1)) != 0 ? code : RS_EPROTO;
}

/* Reads the cause of a peer of release 0.1, which has it only in its sentence. */
static struct rs_cause cause_of_sentence(int code, const char *sentence)
{
	struct rs_cause c = {.code = code};
	unsigned rank;

	if (strstr(sentence, " was lost") && sscanf(sentence, "rank %u", &rank) == 1 && rank < UINT16_MAX)
		c = (struct rs_cause){.code = RS_EPEER,
				      .rank = 1 + rank,
				      .loss = strstr(sentence, "nothing was heard") ? RS_LOSS_SILENT : RS_LOSS_OTHER};
	return c;
}

static struct rs_cause take_cause(const Reduction__V1__Cause *m, int code, const char *sentence)
{
	if (!m)
		return cause_of_sentence(code, sentence);
	return (struct rs_cause){.code = code_from_wire(m->code),
				 .rank = m->rank,
				 .reducer = m->reducer,
				 .loss = m->loss <= RS_LOSS_RESET ? (enum rs_loss)m->loss : RS_LOSS_OTHER,
				 .narrow = m->narrow};
}

int control_unpack_refused(const uint8_t *in, uint32_t len, struct control_refused *ret, struct rs_err *e)
{
	Reduction__V1__Refused *m = unpack(&reduction__v1__refused__descriptor, "REFUSED", in, len, e);

	if (!m)
		return e->code;
	ret->code = code_from_wire(m->code);
	ret->retry = m->retry;
	ret->elsewhere = m->elsewhere;
	snprintf(ret->reducer, sizeof ret->reducer, "%s", m->reducer);
	take_sentence(ret->message, sizeof ret->message, m->message);
	reduction__v1__refused__free_unpacked(m, NULL);
	return RS_OK;
}

int control_unpack_waiting(const uint8_t *in, uint32_t len, struct control_waiting *ret, struct rs_err *e)
{
	Reduction__V1__Waiting *m = unpack(&reduction__v1__waiting__descriptor, "WAITING", in, len, e);

	if (!m)
		return e->code;
	*ret = (struct control_waiting){.joined = m->joined, .world_size = m->world_size};
	for (size_t i = 0; i < m->n_missing && i < CONTROL_MISSING; i++)
		ret->missing[ret->missing_n++] = m->missing[i];
	if (m->refused[0])
		take_sentence(ret->refused, sizeof ret->refused, m->refused);
	reduction__v1__waiting__free_unpacked(m, NULL);
	return RS_OK;
}

int control_unpack_late(const uint8_t *in, uint32_t len, struct control_late *ret, struct rs_err *e)
{
	Reduction__V1__Late *m = unpack(&reduction__v1__late__descriptor, "LATE", in, len, e);
	bool named;

	if (!m)
		return e->code;
	named = m->n_missing > 0;
	if (named) {
		*ret = (struct control_late){.seq = m->seq, .waited_ms = m->waited_ms};
		for (size_t i = 0; i < m->n_missing && i < CONTROL_MISSING; i++)
			ret->missing[ret->missing_n++] = m->missing[i];
		ret->missing_all = m->missing_all > ret->missing_n ? m->missing_all : ret->missing_n;
		take_sentence(ret->label, sizeof ret->label, m->label);
	}
	reduction__v1__late__free_unpacked(m, NULL);
	return named ? RS_OK : malformed(e, "LATE");
}

int control_unpack_nonfinite(const uint8_t *in, uint32_t len, struct control_nonfinite *ret, struct rs_err *e)
{
	Reduction__V1__Nonfinite *m = unpack(&reduction__v1__nonfinite__descriptor, "NONFINITE", in, len, e);

	if (!m)
		return e->code;
	*ret = (struct control_nonfinite){
	    .nan_operations = m->nan_operations, .infinite_operations = m->infinite_operations, .seq = m->seq};
	take_sentence(ret->first, sizeof ret->first, m->first);
	reduction__v1__nonfinite__free_unpacked(m, NULL);
	return RS_OK;
}

int control_unpack_abort(const uint8_t *in, uint32_t len, struct rs_err *ret, struct rs_cause *ret_cause,
			 struct rs_err *e)
{
	Reduction__V1__Abort *m = unpack(&reduction__v1__abort__descriptor, "ABORT", in, len, e);

	if (!m)
		return e->code;
	ret->code = code_from_wire(m->code);
	take_sentence(ret->msg, sizeof ret->msg, m->message);
	*ret_cause = take_cause(m->cause, ret->code, ret->msg);
	reduction__v1__abort__free_unpacked(m, NULL);
	return RS_OK;
}

/* Returns whether the numbers of a view are in range. */
static bool view_is_sound(const Reduction__V1__View *m)
{
	if (m->n_lives < 1 || m->n_lives > CONTROL_REDUCERS || m->epoch > CONTROL_LIFE_MAX ||
	    m->n_shares != (m->epoch ? m->n_lives : 0))
		return false;
	for (size_t i = 0; i < m->n_lives; i++)
		if (m->lives[i] > CONTROL_LIFE_MAX)
			return false;
	for (size_t i = 0; i < m->n_shares; i++)
		if (m->shares[i] < 1 || m->shares[i] > CONTROL_SHARE_MAX)
			return false;
	return true;
}

int control_unpack_view(const uint8_t *in, uint32_t len, struct control_view *ret, struct rs_err *e)
{
	Reduction__V1__View *m = unpack(&reduction__v1__view__descriptor, "VIEW", in, len, e);
	size_t starts;
	bool sound;

	if (!m)
		return e->code;
	sound = view_is_sound(m);
	starts = m->n_start;
	if (sound && starts == FRAME_PRIORITIES) {
		*ret = (struct control_view){.n = (unsigned)m->n_lives, .epoch = m->epoch};
		memcpy(ret->lives, m->lives, m->n_lives * sizeof *m->lives);
		if (m->epoch)
			memcpy(ret->shares, m->shares, m->n_shares * sizeof *m->shares);
		memcpy(ret->start, m->start, sizeof ret->start);
		if (m->n_begun == FRAME_PRIORITIES)
			memcpy(ret->begun, m->begun, sizeof ret->begun);
		ret->lost = m->lost <= ret->n ? m->lost : 0;
		ret->reported = m->reported;
		ret->features = m->features;
		ret->lead = m->lead;
		for (unsigned r = 0; r < ret->n && r / 8 < m->empty.len; r++)
			ret->empty[r] = m->empty.data[r / 8] >> r % 8 & 1;
		take_sentence(ret->why, sizeof ret->why, m->why);
		if (m->reported || m->cause)
			ret->cause = take_cause(m->cause, RS_ECUT, ret->why);
		snprintf(ret->lost_id, sizeof ret->lost_id, "%s", m->lost_id);
	}
	reduction__v1__view__free_unpacked(m, NULL);
	if (starts != FRAME_PRIORITIES)
		return rs_fail(e, RS_EPROTO, "a VIEW or RESUME message has %zu numbers in start, %d were expected",
			       starts, FRAME_PRIORITIES);
	return sound ? RS_OK : rs_fail(e, RS_EPROTO, "a VIEW or RESUME message holds numbers that are out of range");
}

bool control_intact(const struct frame *f, const void *payload)
{
	return !(f->flags & FRAME_CHECKED) || frame_checksum(payload, f->payload_len) == f->payload_sum;
}

uint32_t control_frame(uint8_t *out, unsigned type, uint32_t generation, uint64_t ack, const uint8_t *payload,
		       uint32_t len)
{
	struct frame f = {.type = (uint8_t)type, .generation = generation, .ack = ack, .payload_len = len};

	if (len) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, len);
	}
	frame_encode(&f, out);
	if (len)
		memcpy(out + FRAME_HEADER, payload, len);
	return FRAME_HEADER + len;
}
