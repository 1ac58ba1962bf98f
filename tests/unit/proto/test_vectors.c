/* SPDX-License-Identifier: Apache-2.0 */
/* The test vectors of proto/vectors: what the C code computes is what the files say. JSON
 * is YAML, so the parser of the configuration reads them. */
#include "common/auth.h"
#include "common/kernels/kernels.h"
#include "config/config.h"
#include "config/run.h"
#include "config/shardmap.h"
#include "proto/control.h"
#include "proto/frame.h"
#include "proto/reduction.pb-c.h"
#include "tests/unit/fake_vectors_connection.h"

#include <check.h>
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static int check_bad(const struct ydoc_node *n, struct rs_err *e)
{
	static const struct {
		const char *word, *sentence;
	} errors[] = {
	    {"magic", "not frames of this protocol"},
	    {"version", "speaks protocol version"},
	    {"checksum", "checksum is wrong"},
	    {"type", "type"},
	    {"flags", "flags"},
	    {"priority", "priority"},
	    {"length", "payload bytes"},
	};
	const char *word = vectors_text(n, "error");
	struct vectors_bytes raw;
	struct rs_err why = {0};
	struct frame f;

	if (vectors_hex(&raw, vectors_text(n, "hex"), e))
		return e->code;
	if (raw.len != FRAME_HEADER || frame_decode(raw.at, &f, &why) == RS_OK)
		return rs_fail(e, RS_EPROTO, "a bad frame is accepted");
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (strcmp(word, errors[i].word) == 0 && strstr(why.msg, errors[i].sentence))
			return RS_OK;
	return rs_fail(e, RS_EPROTO, "found \"%s\", the file has %s", why.msg, word);
}

/* Checks one proof, against the file and against the mac in the frame that carries it. */
static int check_proof(const struct ydoc_node *n, const char *key, enum auth_side side,
		       const struct auth_secret *secret, const struct auth_transcript *t, const uint8_t *carried,
		       struct rs_err *e)
{
	struct vectors_bytes want;
	uint8_t mac[AUTH_MAC];
	int rc = vectors_hex(&want, vectors_text(n, key), e);

	if (!rc)
		rc = auth_mac(mac, secret, side, t, e);
	if (rc)
		return rc;
	if (want.len != AUTH_MAC || memcmp(mac, want.at, AUTH_MAC) != 0)
		return rs_fail(e, RS_EPROTO, "%s differs", key);
	if (memcmp(mac, carried, AUTH_MAC) != 0)
		return rs_fail(e, RS_EPROTO, "the frame has another %s", key);
	return RS_OK;
}

/* Checks that `secret` is the content of `secret_file` without a newline at its end. */
static int check_secret(const struct ydoc_node *n, struct auth_secret *ret, struct rs_err *e)
{
	struct vectors_bytes file, secret;
	int rc = vectors_hex(&file, vectors_text(n, "secret_file"), e);

	if (!rc)
		rc = vectors_hex(&secret, vectors_text(n, "secret"), e);
	if (!rc)
		rc = vectors_load_secret(ret, &file, e);
	if (rc)
		return rc;
	if (ret->len != secret.len || memcmp(ret->bytes, secret.at, secret.len) != 0)
		return rs_fail(e, RS_EPROTO, "secret differs");
	return RS_OK;
}

static int check_handshake(const struct ydoc_node *n, struct rs_err *e)
{
	static const unsigned types[] = {FRAME_HELLO, FRAME_CHALLENGE, FRAME_PROOF, FRAME_WELCOME};
	const struct ydoc_node *frames = vectors_get(n, "frames"), *at = frames ? frames->child : NULL;
	struct vectors_bytes raw[4], binding;
	struct auth_secret secret;
	uint8_t proof[AUTH_MAC];
	struct control_welcome w;
	int rc = check_secret(n, &secret, e);

	for (unsigned i = 0; !rc && i < 4; i++, at = at->next) {
		if (!at)
			return rs_fail(e, RS_EPROTO, "frame %u is missing", i);
		rc = vectors_check_frame(at, &raw[i], e);
		if (!rc && raw[i].at[3] != types[i])
			return rs_fail(e, RS_EPROTO, "frame %u has type %u", i, raw[i].at[3]);
	}
	if (!rc)
		rc = vectors_hex(&binding, vectors_text(n, "binding"), e);
	if (!rc)
		rc = control_unpack_proof(raw[2].at + FRAME_HEADER, raw[2].len - FRAME_HEADER, proof, e);
	if (!rc)
		rc = control_unpack_welcome(raw[3].at + FRAME_HEADER, raw[3].len - FRAME_HEADER, &w, e);
	if (rc)
		return rc;

	const struct auth_transcript t = {
	    .binding = binding.at,
	    .binding_len = binding.len,
	    .hello = raw[0].at + FRAME_HEADER,
	    .hello_len = raw[0].len - FRAME_HEADER,
	    .challenge = raw[1].at + FRAME_HEADER,
	    .challenge_len = raw[1].len - FRAME_HEADER,
	};
	rc = check_proof(n, "worker_mac", AUTH_WORKER, &secret, &t, proof, e);
	return rc ? rc : check_proof(n, "reducer_mac", AUTH_REDUCER, &secret, &t, w.mac, e);
}

/* A configuration that the entries of digests.json and placements.json are read into. */
struct setup {
	struct rs_config cfg;
	struct rs_reducer reducers[RS_REDUCERS_MAX];
	struct rs_group groups[RS_GROUPS_MAX];
	uint16_t owner[RS_SHARDS_MAX];
	uint16_t relays[RS_GROUPS_MAX * RS_SHARDS_MAX];
};

static void setup_init(struct setup *s)
{
	memset(s, 0, sizeof *s);
	s->cfg.reducers = s->reducers;
	s->cfg.sharding.owner = s->owner;
	s->cfg.groups = s->groups;
	s->cfg.relays = s->relays;
}

static int take_owner(struct setup *s, const struct ydoc_node *n, struct rs_err *e)
{
	uint64_t owner[RS_SHARDS_MAX];
	int rc = vectors_numbers(n, "owner", owner, RS_SHARDS_MAX, &s->cfg.sharding.shards, e);

	for (unsigned i = 0; !rc && i < s->cfg.sharding.shards; i++) {
		if (owner[i] >= s->cfg.reducers_n)
			return rs_fail(e, RS_EPROTO, "shard %u has no reducer", i);
		s->owner[i] = (uint16_t)owner[i];
	}
	return rc;
}

static int take_lanes(struct setup *s, const struct ydoc_node *n, struct rs_err *e)
{
	uint64_t lanes[RS_REDUCERS_MAX];
	int rc = vectors_numbers(n, "lanes", lanes, RS_REDUCERS_MAX, &s->cfg.reducers_n, e);

	for (unsigned i = 0; !rc && i < s->cfg.reducers_n; i++) {
		if (lanes[i] < 1 || lanes[i] > RS_LANES_MAX)
			return rs_fail(e, RS_EPROTO, "reducer %u has no lanes", i);
		s->reducers[i].lanes = (unsigned)lanes[i];
	}
	return rc;
}

/* Reads the groups, after the shards. */
static int take_groups(struct setup *s, const struct ydoc_node *n, struct rs_err *e)
{
	const struct ydoc_node *list = vectors_get(n, "groups");
	uint64_t relays[RS_SHARDS_MAX];
	unsigned shards;

	for (const struct ydoc_node *g = list ? list->child : NULL; g; g = g->next) {
		uint16_t *to = s->relays + s->cfg.groups_n * s->cfg.sharding.shards;

		if (vectors_numbers(g, "relays", relays, RS_SHARDS_MAX, &shards, e))
			return e->code;
		if (shards != s->cfg.sharding.shards || s->cfg.groups_n == RS_GROUPS_MAX)
			return rs_fail(e, RS_EPROTO, "group %u has not one relay for each shard, or is one too many",
				       s->cfg.groups_n);
		for (unsigned i = 0; i < shards; i++)
			to[i] = (uint16_t)relays[i];
		snprintf(s->groups[s->cfg.groups_n++].name, RS_NAME_MAX, "%s", vectors_text(g, "name"));
	}
	return RS_OK;
}

static int check_digest(const struct ydoc_node *n, struct rs_err *e)
{
	static struct setup s;
	const struct ydoc_node *list = vectors_get(n, "reducers");
	uint64_t chunk_bytes, window, priorities, lanes, want, decoupled = 0;
	int rc;

	setup_init(&s);
	if (vectors_bool(n, "deterministic", &s.cfg.job.deterministic, e) ||
	    vectors_bool(n, "checksum", &s.cfg.job.checksum, e) || vectors_number(n, "chunk_bytes", &chunk_bytes, e) ||
	    vectors_number(n, "window", &window, e) || vectors_number(n, "priorities", &priorities, e) ||
	    vectors_number(n, "digest", &want, e) ||
	    (vectors_get(n, "decoupled") && vectors_number(n, "decoupled", &decoupled, e)))
		return e->code;
	s.cfg.sharding.decoupled = decoupled;
	s.cfg.sharding.chunk_bytes = (uint32_t)chunk_bytes;
	s.cfg.sharding.window = (unsigned)window;
	s.cfg.sharding.priorities = (unsigned)priorities;
	for (const struct ydoc_node *r = list ? list->child : NULL; r; r = r->next) {
		struct rs_reducer *to = &s.reducers[s.cfg.reducers_n++];

		if (vectors_number(r, "lanes", &lanes, e))
			return e->code;
		to->lanes = (unsigned)lanes;
		snprintf(to->id, sizeof to->id, "%s", vectors_text(r, "id"));
	}
	rc = take_owner(&s, n, e);
	if (!rc)
		rc = take_groups(&s, n, e);
	if (!rc && rs_config_digest(&s.cfg) != want)
		rc = rs_fail(e, RS_EPROTO, "computed %" PRIu64, rs_config_digest(&s.cfg));
	if (!rc)
		rc = vectors_number(n, "reducers_digest", &want, e);
	if (!rc && rs_config_reducers_digest(&s.cfg) != want)
		rc = rs_fail(e, RS_EPROTO, "computed %" PRIu64 " of the reducers", rs_config_reducers_digest(&s.cfg));
	return rc;
}

static int check_map(const struct ydoc_node *n, struct rs_err *e)
{
	static struct setup s;
	const struct ydoc_node *weights = vectors_get(n, "weights"), *w = weights ? weights->child : NULL;
	uint16_t owner[RS_SHARDS_MAX];
	uint64_t shards;
	int rc;

	setup_init(&s);
	rc = take_lanes(&s, n, e);
	for (unsigned i = 0; !rc && i < s.cfg.reducers_n; i++, w = w->next) {
		if (!w || w->kind != YDOC_TEXT)
			return rs_fail(e, RS_EPROTO, "reducer %u has no weight", i);
		s.reducers[i].weight = strtod(w->text, NULL);
	}
	if (!rc && w)
		return rs_fail(e, RS_EPROTO, "there are too many weights");
	if (!rc)
		rc = take_owner(&s, n, e);
	if (rc)
		return rc;
	shards = shardmap_default_shards(s.reducers, s.cfg.reducers_n, false);
	if (vectors_get(n, "shards") && vectors_number(n, "shards", &shards, e))
		return e->code;
	if (shards != s.cfg.sharding.shards || shards < s.cfg.reducers_n)
		return rs_fail(e, RS_EPROTO, "there are %u shards instead of %" PRIu64, s.cfg.sharding.shards, shards);
	rc = shardmap_deal(owner, s.cfg.sharding.shards, s.reducers, s.cfg.reducers_n, e);
	for (unsigned i = 0; !rc && i < shards; i++)
		if (owner[i] != s.owner[i])
			rc = rs_fail(e, RS_EPROTO, "shard %u belongs to %u", i, owner[i]);
	return rc;
}

/* slots: by the rule of jobs with FEATURE_SLOTS. */
static int check_places(const struct ydoc_node *n, bool slots, struct rs_err *e)
{
	struct exchange_params params;
	static struct setup s;
	uint64_t numbers[RS_REDUCERS_MAX];
	uint32_t lives[RS_REDUCERS_MAX], shares[RS_REDUCERS_MAX];
	uint16_t owner[RS_SHARDS_MAX], lane[RS_SHARDS_MAX];
	bool shared = vectors_get(n, "shares");
	const struct ydoc_node *list = vectors_get(n, "places"), *place = list ? list->child : NULL;
	unsigned count;
	bool living = false;
	int rc;

	setup_init(&s);
	rc = take_lanes(&s, n, e);
	if (!rc)
		rc = take_owner(&s, n, e);
	if (!rc)
		rc = vectors_numbers(n, "lives", numbers, RS_REDUCERS_MAX, &count, e);
	if (rc)
		return rc;
	for (unsigned i = 0; i < count; i++) {
		lives[i] = (uint32_t)numbers[i];
		living |= lives[i] % 2 == 0;
	}
	if (count != s.cfg.reducers_n || !living)
		return rs_fail(e, RS_EPROTO, "no reducer lives, or their number is wrong");
	if (shared && vectors_numbers(n, "shares", numbers, RS_REDUCERS_MAX, &count, e))
		return e->code;
	if (count != s.cfg.reducers_n)
		return rs_fail(e, RS_EPROTO, "there is not one share for each reducer");
	for (unsigned i = 0; shared && i < count; i++)
		shares[i] = (uint32_t)numbers[i];
	params = rs_config_exchange(&s.cfg);
	(slots ? exchange_params_place_slots : exchange_params_place)(&params, lives, shared ? shares : NULL, owner,
								      lane);
	for (unsigned i = 0; i < s.cfg.sharding.shards; i++, place = place->next) {
		if (!place || vectors_row(place, numbers, 2, e))
			return rs_fail(e, RS_EPROTO, "shard %u has no place", i);
		if (numbers[0] != owner[i] || numbers[1] != lane[i])
			return rs_fail(e, RS_EPROTO, "shard %u is at %u, lane %u", i, owner[i], lane[i]);
	}
	return place ? rs_fail(e, RS_EPROTO, "there are too many places") : RS_OK;
}

static int check_placement(const struct ydoc_node *n, struct rs_err *e)
{
	return check_places(n, false, e);
}

static int check_slots(const struct ydoc_node *n, struct rs_err *e)
{
	return check_places(n, true, e);
}

/* Places of the relays of one group. [65535, 0]: the shard goes home. */
static int check_relays(const struct ydoc_node *n, struct rs_err *e)
{
	static struct setup s;
	uint64_t numbers[RS_SHARDS_MAX];
	uint32_t lives[RS_REDUCERS_MAX];
	uint16_t owner[RS_SHARDS_MAX], lane[RS_SHARDS_MAX], relay[RS_SHARDS_MAX], relay_lane[RS_SHARDS_MAX];
	const struct ydoc_node *list = vectors_get(n, "places"), *place = list ? list->child : NULL;
	struct exchange_params params;
	unsigned count;
	int rc;

	setup_init(&s);
	rc = take_lanes(&s, n, e);
	if (!rc)
		rc = take_owner(&s, n, e);
	if (!rc)
		rc = vectors_numbers(n, "relays", numbers, RS_SHARDS_MAX, &count, e);
	if (rc)
		return rc;
	for (unsigned i = 0; i < count; i++) {
		if (numbers[i] != RS_NO_RELAY && numbers[i] >= s.cfg.reducers_n)
			return rs_fail(e, RS_EPROTO, "shard %u has an unknown relay", i);
		s.relays[i] = (uint16_t)numbers[i];
	}
	if (count != s.cfg.sharding.shards)
		return rs_fail(e, RS_EPROTO, "there is not one relay for each shard");
	if (vectors_numbers(n, "lives", numbers, RS_REDUCERS_MAX, &count, e))
		return e->code;
	if (count != s.cfg.reducers_n)
		return rs_fail(e, RS_EPROTO, "there is not one life for each reducer");
	for (unsigned i = 0; i < count; i++)
		lives[i] = (uint32_t)numbers[i];
	s.cfg.groups_n = 1;
	params = rs_config_exchange(&s.cfg);
	exchange_params_place_slots(&params, lives, NULL, owner, lane);
	exchange_params_place_relays(&params, lives, owner, relay, relay_lane);
	for (unsigned i = 0; i < s.cfg.sharding.shards; i++, place = place->next) {
		if (!place || vectors_row(place, numbers, 2, e))
			return rs_fail(e, RS_EPROTO, "shard %u has no place", i);
		if (relay[i] == RS_NO_RELAY)
			relay_lane[i] = 0;
		if (numbers[0] != relay[i] || numbers[1] != relay_lane[i])
			return rs_fail(e, RS_EPROTO, "the relay of shard %u is %u, lane %u", i, relay[i],
				       relay_lane[i]);
	}
	return place ? rs_fail(e, RS_EPROTO, "there are too many places") : RS_OK;
}

static int check_sharded(const struct ydoc_node *n, struct rs_err *e)
{
	const struct ydoc_node *list = vectors_get(n, "places"), *place = list ? list->child : NULL;
	struct operation o = {.sharded = 1};
	uint64_t parts, elems, numbers[3];

	if (vectors_number(n, "count", &o.count, e) || vectors_number(n, "parts", &parts, e) ||
	    vectors_number(n, "chunk_elems", &elems, e))
		return e->code;
	o.parts = (uint32_t)parts;
	if (!parts || !elems || o.count % parts)
		return rs_fail(e, RS_EPROTO, "the parts are not equal");
	for (uint32_t i = 0; i < operation_chunks(&o, (uint32_t)elems); i++, place = place->next) {
		const struct operation_place at = operation_place(&o, (uint32_t)elems, i);

		if (!place || vectors_row(place, numbers, 3, e))
			return rs_fail(e, RS_EPROTO, "chunk %u has no place", i);
		if (numbers[0] != at.part || numbers[1] != at.first || numbers[2] != at.elems)
			return rs_fail(e, RS_EPROTO, "chunk %u is in part %u, from %" PRIu64 " on, %u elements", i,
				       at.part, at.first, at.elems);
	}
	return place ? rs_fail(e, RS_EPROTO, "there are too many places") : RS_OK;
}

static int check_sharded_bytes(const struct ydoc_node *n, struct rs_err *e)
{
	struct operation o = {.sharded = 1};
	uint64_t parts, chunk_bytes, bytes;

	if (vectors_number(n, "parts", &parts, e) || vectors_number(n, "chunk_bytes", &chunk_bytes, e) ||
	    vectors_number(n, "bytes", &bytes, e))
		return e->code;
	o.parts = (uint32_t)parts;
	if (operation_chunk_limit(&o, (uint32_t)chunk_bytes) != bytes)
		return rs_fail(e, RS_EPROTO, "computed %u", operation_chunk_limit(&o, (uint32_t)chunk_bytes));
	return RS_OK;
}

static int check_hash(const struct ydoc_node *n, uint32_t hash, struct rs_err *e)
{
	uint64_t want;
	int rc = vectors_number(n, "hash", &want, e);

	return rc || want == hash ? rc : rs_fail(e, RS_EPROTO, "computed %u", hash);
}

static int check_name(const struct ydoc_node *n, struct rs_err *e)
{
	if (!vectors_get(n, "name"))
		return rs_fail(e, RS_EPROTO, "there is no name");
	return check_hash(n, frame_name_hash(vectors_text(n, "name")), e);
}

static int check_run(const struct ydoc_node *n, struct rs_err *e)
{
	char job[RS_NAME_MAX];

	rs_run_job_name(job, vectors_text(n, "run"));
	return strcmp(job, vectors_text(n, "job")) == 0 ? RS_OK : rs_fail(e, RS_EPROTO, "computed %s", job);
}

/* Follows the rule of the specification, since the C code computes this where it builds a
 * group. */
static int check_group(const struct ydoc_node *n, struct rs_err *e)
{
	const struct ydoc_node *list = vectors_get(n, "tensors");
	uint32_t hash = 0;

	for (const struct ydoc_node *t = list ? list->child : NULL; t; t = t->next) {
		uint64_t count;
		uint8_t bytes[16];

		if (!vectors_get(t, "name"))
			return rs_fail(e, RS_EPROTO, "there is no name");
		if (vectors_number(t, "count", &count, e))
			return e->code;
		vectors_put(bytes, count, 8);
		vectors_put(bytes + 8, hash, 4);
		vectors_put(bytes + 12, frame_name_hash(vectors_text(t, "name")), 4);
		hash = frame_checksum(bytes, sizeof bytes);
	}
	return check_hash(n, hash ? hash : 1, e);
}

static int take_wire(const struct ydoc_node *n, const char *key, unsigned *ret, struct rs_err *e)
{
	for (*ret = 0; *ret < RS_WIRE_NR; ++*ret)
		if (strcmp(vectors_text(n, key), rs_wire_name(*ret)) == 0)
			return RS_OK;
	return rs_fail(e, RS_EPROTO, "%s is not an encoding", key);
}

/* Reads the bytes of a key, and compares them with those that were computed. */
static int check_bytes(const struct ydoc_node *n, const char *key, const void *found, size_t len, struct rs_err *e)
{
	struct vectors_bytes want;

	if (vectors_hex(&want, vectors_text(n, key), e))
		return e->code;
	if (want.len != len || memcmp(want.at, found, len) != 0)
		return rs_fail(e, RS_EPROTO, "%s differs", key);
	return RS_OK;
}

/* Decodes `encoded` to n elements with each table of kernels. */
static int check_decoded(const struct ydoc_node *node, unsigned wire, size_t n, struct rs_err *e)
{
	uint8_t out[sizeof((struct vectors_bytes *)0)->at];
	const struct rs_kernels *k;
	struct vectors_bytes raw;
	int rc = vectors_hex(&raw, vectors_text(node, "encoded"), e);

	if (rc)
		return rc;
	if (n * sizeof(float) > sizeof out || raw.len != rs_wire_bytes(wire, sizeof(float), n))
		return rs_fail(e, RS_EPROTO, "encoded has another length");
	for (unsigned i = 0; !rc && (k = rs_kernels_usable(i)); i++) {
		k->decode[wire](out, raw.at, n);
		rc = check_bytes(node, "decoded", out, n * sizeof(float), e);
	}
	return rc;
}

static int check_block(const struct ydoc_node *node, struct rs_err *e)
{
	uint8_t out[sizeof((struct vectors_bytes *)0)->at];
	uint64_t seq, rank, first;
	const struct rs_kernels *k;
	struct vectors_bytes in;
	bool random = vectors_get(node, "seq");
	unsigned wire;
	size_t n;
	int rc;

	if (take_wire(node, "wire", &wire, e) || vectors_hex(&in, vectors_text(node, "values"), e))
		return e->code;
	if (random && (vectors_number(node, "seq", &seq, e) || vectors_number(node, "rank", &rank, e) ||
		       vectors_number(node, "first", &first, e)))
		return e->code;
	n = in.len / sizeof(float);
	rc = check_decoded(node, wire, n, e);
	for (unsigned i = 0; !rc && (k = rs_kernels_usable(i)); i++) {
		if (random)
			k->encode_random[wire](out, in.at, n, seq * UINT64_C(0x9e3779b97f4a7c15) + rank, first);
		else
			k->encode[wire](out, in.at, n);
		rc = check_bytes(node, "encoded", out, rs_wire_bytes(wire, sizeof(float), n), e);
	}
	return rc;
}

static int check_code(const struct ydoc_node *node, struct rs_err *e)
{
	struct vectors_bytes out;
	unsigned wire;

	if (take_wire(node, "wire", &wire, e) || vectors_hex(&out, vectors_text(node, "decoded"), e))
		return e->code;
	return check_decoded(node, wire, out.len / sizeof(float), e);
}

static int check_chunk(const struct ydoc_node *node, struct rs_err *e)
{
	uint64_t size, chunk_bytes, decoded_bytes, want;
	unsigned up, down, found;

	if (take_wire(node, "up", &up, e) || take_wire(node, "down", &down, e) ||
	    vectors_number(node, "size", &size, e) || vectors_number(node, "chunk_bytes", &chunk_bytes, e) ||
	    vectors_number(node, "decoded_bytes", &decoded_bytes, e) || vectors_number(node, "chunk_elems", &want, e))
		return e->code;
	if (decoded_bytes < 2 * chunk_bytes)
		decoded_bytes = 2 * chunk_bytes;
	found =
	    operation_chunk_elems(&(struct operation){.size = size & OPERATION_SIZE, .up = up & 15, .down = down & 7},
				  (uint32_t)chunk_bytes, (uint32_t)decoded_bytes);
	return found == want ? RS_OK : rs_fail(e, RS_EPROTO, "computed %u", found);
}

static int check_frame(const struct ydoc_node *n, struct rs_err *e)
{
	struct vectors_bytes raw;

	return vectors_check_frame(n, &raw, e);
}

/* The state of a recorded job while its entries are checked: the view of each rank, and
 * its connection to each lane of each reducer. */
static struct {
	struct setup setup;
	bool guarded;
	struct auth_secret secret;
	struct control_view views[2];
	struct vectors_connection connections[2][2][2];
} trace;

static int check_setup(const struct ydoc_node *n, struct rs_err *e)
{
	struct vectors_bytes secret;
	uint64_t ranks;
	int rc;

	memset(&trace, 0, sizeof trace);
	setup_init(&trace.setup);
	rc = take_lanes(&trace.setup, n, e);
	if (!rc)
		rc = take_owner(&trace.setup, n, e);
	if (!rc)
		rc = vectors_number(n, "ranks", &ranks, e);
	trace.guarded = vectors_get(n, "secret");
	if (!rc && trace.guarded)
		rc = vectors_hex(&secret, vectors_text(n, "secret"), e);
	if (!rc && trace.guarded)
		rc = vectors_load_secret(&trace.secret, &secret, e);
	return rc || ranks == 2 ? rc : rs_fail(e, RS_EPROTO, "expected 2 ranks");
}

/* Checks that a chunk is sent to the lane where its shard lives in the rank's view. */
static int check_lane(const struct frame *f, uint64_t rank, uint64_t reducer, uint64_t lane, struct rs_err *e)
{
	const struct rs_config *cfg = &trace.setup.cfg;
	const struct control_view *view = &trace.views[rank];
	const struct exchange_params params = rs_config_exchange(cfg);
	uint16_t owner[RS_SHARDS_MAX], lanes[RS_SHARDS_MAX];
	unsigned shard = (unsigned)((f->of.seq + f->chunk) % cfg->sharding.shards);

	exchange_params_place(&params, view->lives, view->epoch ? view->shares : NULL, owner, lanes);
	if (owner[shard] != reducer || lanes[shard] != lane)
		return rs_fail(e, RS_EPROTO, "its shard lives on reducer %u, lane %u", owner[shard], lanes[shard]);
	return RS_OK;
}

static int check_trace(const struct ydoc_node *n, struct rs_err *e)
{
	struct vectors_bytes raw;
	struct control_view v;
	uint64_t rank, reducer, lane;
	bool from_worker = strcmp(vectors_text(n, "from"), "worker") == 0, taken;
	struct frame f;

	if (vectors_check_frame(n, &raw, e) || vectors_number(n, "rank", &rank, e) ||
	    vectors_number(n, "reducer", &reducer, e) || vectors_number(n, "lane", &lane, e) ||
	    frame_decode(raw.at, &f, e))
		return e->code;
	if (rank > 1 || reducer > 1 || lane > 1 || !trace.setup.cfg.sharding.shards)
		return rs_fail(e, RS_EPROTO, "expected rank, reducer and lane 0 or 1, after the setup");
	if (vectors_follow(&trace.connections[rank][reducer][lane], trace.guarded ? &trace.secret : NULL, from_worker,
			   &raw, &taken, e))
		return e->code;
	if (f.type == FRAME_DATA || f.type == FRAME_HAVE)
		return check_lane(&f, rank, reducer, lane, e);
	if (f.type != FRAME_VIEW || !from_worker)
		return RS_OK;
	if (control_unpack_view(raw.at + FRAME_HEADER, f.payload_len, &v, e))
		return e->code;
	for (unsigned i = 0; i < 2; i++)
		if (control_view_conflicts(&trace.views[i], &v) || (rank && v.epoch > trace.views[0].epoch))
			return rs_fail(e, RS_EPROTO, "its shares are not those of rank 0");
	trace.views[rank] = v;
	return v.n == trace.setup.cfg.reducers_n ? RS_OK : rs_fail(e, RS_EPROTO, "the view has %u reducers", v.n);
}

static const struct vectors_section sections[] = {
    {"setup", check_setup},
    {"trace", check_trace},
    {"frames", check_frame},
    {"bad", check_bad},
    {"handshakes", check_handshake},
    {"digests", check_digest},
    {"maps", check_map},
    {"placements", check_placement},
    {"slots", check_slots},
    {"relays", check_relays},
    {"sharded", check_sharded},
    {"sharded_bytes", check_sharded_bytes},
    {"names", check_name},
    {"groups", check_group},
    {"runs", check_run},
    {"blocks", check_block},
    {"codes", check_code},
    {"chunks", check_chunk},
    {NULL, NULL},
};

static const struct {
	const char *name;
	unsigned entries; /* at least */
	bool exact;       /* no other input has the same output, except for bad frames */
} files[] = {
    {"frames", 85, true},       {"handshakes", 4, true},  {"digests", 18, true},    {"placements", 81, false},
    {"names", 15, true},        {"failover", 100, false}, {"encodings", 80, false}, {"encoded_failover", 100, false},
    {"reconfigure", 79, false}, {"shares", 200, false},
};

START_TEST(all_vectors_are_right)
{
	struct vectors_file f;
	struct rs_err e = {0};
	unsigned n = 0;

	vectors_open(&f, files[_i].name);
	ck_assert_uint_eq(frame_checksum(f.text, f.len), vectors_checksum(files[_i].name));
	ck_assert_msg(vectors_check(&f, sections, &n, &e) == RS_OK, "%s.json: %s", files[_i].name, e.msg);
	ck_assert_uint_ge(n, files[_i].entries);
	vectors_close(&f);
}
END_TEST

/* Returns whether the checks of the entries find a change of this byte. A checksum finds
 * a change of any byte. */
static bool is_checked(const struct vectors_file *f, size_t at)
{
	const char *bad = strstr(f->text, "\"bad\": [");

	return !vectors_is_comment(f, at) && (!bad || f->text + at < bad);
}

START_TEST(one_changed_byte_is_found)
{
	enum { STEP = 53 };
	struct vectors_file f;
	struct rs_err e;
	unsigned n;

	vectors_open(&f, files[_i].name);
	for (size_t i = 0; i < f.len; i += STEP) {
		bool checked = files[_i].exact && is_checked(&f, i);

		f.text[i] ^= 1;
		ck_assert_uint_ne(frame_checksum(f.text, f.len), vectors_checksum(files[_i].name));
		ck_assert_msg(!checked || vectors_check(&f, sections, &n, &e) != RS_OK, "%s.json, byte %zu: %.40s",
			      files[_i].name, i, f.text + i);
		f.text[i] ^= 1;
	}
	vectors_close(&f);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *s = suite_create("vectors");
	TCase *t = tcase_create("vectors");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, all_vectors_are_right, 0, COUNT(files));
	tcase_add_loop_test(t, one_changed_byte_is_found, 0, COUNT(files));
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
