/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "common/group_limits.h"
#include "common/log.h"
#include "common/tls.h"
#include "config/groups.h"
#include "config/schema.h"
#include "config/shardmap.h"
#include "config/slots.h"
#include "config/value.h"
#include "config/ydoc.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
	SERVER_LANES_AUTO_MAX = 8,
	REDUCER_LANES_AUTO_MAX = 16,
	CHUNK_AUTO_MAX = 32 << 10,
	CHUNK_AUTO_MIN = 8 << 10,
	CHUNK_US = 600,
	CHUNK_RELAYED_US = 300, /* with relays */
	RESOLVE_AUTO_MS = 10000,
};

/* Bandwidth for which a lane is added, bits a second. A lane is a thread of the reducer
 * and a TCP connection of each worker. The thread was measured at 0.8 to 0.9 CPU seconds
 * for each GiB that workers send, about 10 Gbit/s. */
static const uint64_t REDUCER_LANE_RATE = 10000000000;

/* A file while it is read. seen[i] is the node in which schema_keys[i] was found, for
 * keys of a reducer in the current reducer; NULL: not found yet. */
struct reading {
	struct rs_config *cfg;
	const struct ydoc *doc;
	struct rs_err *e;
	const struct ydoc_node *seen[SCHEMA_KEYS_MAX];
	void (*report)(void *user, const struct rs_err *e); /* reading goes on after an error; NULL: it does not */
	void *user;
	bool failed; /* an error was reported */
};

/* Reports an error, so that the rest of the file is read as well. Returns RS_OK, or the
 * error if reading ends. */
static int go_on(struct reading *r, int rc)
{
	if (rc != RS_ECONFIG || !r->report)
		return rc;
	r->failed = true;
	r->report(r->user, r->e);
	return RS_OK;
}

static const struct ydoc_node *seen(const struct reading *r, const char *section, const char *key)
{
	return r->seen[schema_find(section, key) - schema_keys];
}

/* Sets all fields of a section to their defaults. "auto" becomes 0; required fields
 * become empty. */
static void set_defaults(const char *section, void *base)
{
	for (unsigned i = 0; i < schema_keys_n; i++) {
		const struct schema_key *key = &schema_keys[i];

		if (strcmp(key->section, section) == 0 && key->def && key->def[0])
			value_parse(key, key->def, base);
	}
}

/* Writes the path of a key for messages: "reducers[2].address". */
static void key_path(const struct schema_key *key, int index, char *buf, size_t size)
{
	if (index < 0)
		snprintf(buf, size, "%s.%s", key->section, key->key);
	else
		snprintf(buf, size, "%s[%d].%s", key->section, index, key->key);
}

static int fail_value(const struct reading *r, const struct schema_key *key, const char *path,
		      const struct ydoc_node *value)
{
	bool zero = value->kind == YDOC_TEXT && value->text[0] == '0' && strspn(value->text, "0123456789") > 1;
	char found[80], expected[160];

	if (key->secret)
		snprintf(found, sizeof found, "a value that is not shown");
	else
		ydoc_describe(value, found, sizeof found);
	value_expected(key, expected, sizeof expected);
	return ydoc_fail(r->doc, value, path, r->e, "found %s, expected %s%s", found, expected,
			 zero ? ", without 0 in front" : "");
}

static int fail_unknown(const struct reading *r, const char *section, const struct ydoc_node *key)
{
	char found[80], advice[256];

	ydoc_describe(key, found, sizeof found);
	if (key->kind != YDOC_TEXT || key->nothing)
		return ydoc_fail(r->doc, key, section, r->e, "found %s, expected the name of a %s", found,
				 section ? "key" : "section");
	schema_advise(section, key->text, advice, sizeof advice);
	return ydoc_fail(r->doc, key, section, r->e, "found unknown %s %s, %s", section ? "key" : "section", found,
			 advice);
}

static int read_keys(struct reading *r, const struct schema_section *section, int index, void *base,
		     const struct ydoc_node *mapping);

/* Returns the kinds, as bits, of a value that is read when all other keys are known; 0:
 * the key's value is read at once. */
static unsigned later_kinds(const struct schema_key *key)
{
	switch (key->type) {
	case SCHEMA_MAP:
		return 1U << YDOC_MAPPING;
	case SCHEMA_NODES:
		return 1U << YDOC_TEXT;
	case SCHEMA_NETWORKS:
		return 1U << YDOC_LIST;
	case SCHEMA_RELAYS:
		return 1U << YDOC_LIST | 1U << YDOC_MAPPING;
	default:
		return 0;
	}
}

/* Reads one key and its value; index is that of a reducer, -1 elsewhere. */
static int read_key(struct reading *r, const struct schema_section *section, int index, void *base,
		    const struct ydoc_node *name)
{
	const struct ydoc_node *value = name->next;
	const struct schema_key *key;
	unsigned later;
	char path[64];

	key = name->kind == YDOC_TEXT ? schema_find(section->name, name->text) : NULL;
	if (!key)
		return fail_unknown(r, section->name, name);
	key_path(key, index, path, sizeof path);
	if (r->seen[key - schema_keys])
		return ydoc_fail(r->doc, name, path, r->e, "found a second time, expected once (first in line %u)",
				 r->seen[key - schema_keys]->line);
	r->seen[key - schema_keys] = value;
	later = later_kinds(key);
	if (later)
		return later >> value->kind & 1 && !value->nothing ? RS_OK : fail_value(r, key, path, value);
	if (key->type == SCHEMA_WIRE && value->kind == YDOC_MAPPING)
		return read_keys(r, &(struct schema_section){.name = "job.wire"}, -1, base, value);
	if (value->kind != YDOC_TEXT || value->nothing || !value_parse(key, value->text, base))
		return fail_value(r, key, path, value);
	return RS_OK;
}

static int read_keys(struct reading *r, const struct schema_section *section, int index, void *base,
		     const struct ydoc_node *mapping)
{
	for (const struct ydoc_node *name = mapping->child; name; name = name->next->next) {
		int rc = go_on(r, read_key(r, section, index, base, name));

		if (rc)
			return rc;
	}
	return RS_OK;
}

/* Checks what must be unique among the reducers read so far. */
static int check_reducer(const struct reading *r, unsigned index, const char *path)
{
	const struct rs_reducer *reducers = r->cfg->reducers, *reducer = &reducers[index];

	for (unsigned i = 0; i < index; i++) {
		if (strcmp(reducers[i].id, reducer->id) == 0)
			return ydoc_fail(r->doc, seen(r, "reducers", "id"), path, r->e,
					 "found id %s, which reducers[%u] has too, expected different ones",
					 reducer->id, i);
	}
	return RS_OK;
}

/* Writes the required keys: "id and address" for the reducers; "" if no key is
 * required. */
static void list_required(const struct schema_section *section, char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < schema_keys_n && len < size; i++)
		if (strcmp(schema_keys[i].section, section->name) == 0 && !schema_keys[i].def)
			len += (size_t)snprintf(buf + len, size - len, "%s%s", len ? " and " : "", schema_keys[i].key);
}

/* Reads one element of a list; base is its struct. */
static int read_item(struct reading *r, const struct schema_section *section, unsigned index, void *base,
		     const struct ydoc_node *item)
{
	char path[64], found[80], required[80];
	int rc;

	snprintf(path, sizeof path, "%s[%u]", section->name, index);
	if (item->kind != YDOC_MAPPING) {
		ydoc_describe(item, found, sizeof found);
		list_required(section, required, sizeof required);
		return ydoc_fail(r->doc, item, path, r->e, "found %s, expected a mapping %s %s", found,
				 required[0] ? "with" : "of", required[0] ? required : "keys");
	}
	for (unsigned i = 0; i < schema_keys_n; i++)
		if (strcmp(schema_keys[i].section, section->name) == 0)
			r->seen[i] = NULL;
	set_defaults(section->name, base);
	rc = read_keys(r, section, (int)index, base, item);
	if (rc)
		return rc;
	for (unsigned i = 0; i < schema_keys_n; i++)
		if (strcmp(schema_keys[i].section, section->name) == 0 && !schema_keys[i].def && !r->seen[i])
			return ydoc_fail(r->doc, item, path, r->e, "found no %s, expected one", schema_keys[i].key);
	return strcmp(section->name, "reducers") == 0 && !r->failed ? check_reducer(r, index, path) : RS_OK;
}

static int read_list(struct reading *r, const struct schema_section *section, const struct ydoc_node *list)
{
	char found[80], *items;
	unsigned n = 0;

	for (const struct ydoc_node *item = list->child; list->kind == YDOC_LIST && item; item = item->next)
		n++;
	if (n < section->min || n > section->max) {
		ydoc_describe(list, found, sizeof found);
		if (list->kind == YDOC_LIST)
			snprintf(found, sizeof found, "a list of %u", n);
		return ydoc_fail(r->doc, list, section->name, r->e, "found %s, expected a list of %u to %u %s", found,
				 section->min, section->max, section->name);
	}
	items = calloc(n, section->item_size);
	if (!items)
		return rs_oom(r->e, n * section->item_size, "%u %s", n, section->name);
	memcpy((char *)r->cfg + section->items, &items, sizeof items);
	memcpy((char *)r->cfg + section->count, &n, sizeof n);
	n = 0;
	for (const struct ydoc_node *item = list->child; item; item = item->next, n++) {
		int rc = go_on(r, read_item(r, section, n, items + (size_t)n * section->item_size, item));

		if (rc)
			return rc;
	}
	return RS_OK;
}

static int read_section(struct reading *r, const struct schema_section *section, const struct ydoc_node *value)
{
	char found[80];

	if (section->item_size)
		return read_list(r, section, value);
	if (value->kind == YDOC_TEXT && value->nothing) /* a section whose keys are all commented out */
		return RS_OK;
	if (value->kind != YDOC_MAPPING) {
		ydoc_describe(value, found, sizeof found);
		return ydoc_fail(r->doc, value, section->name, r->e, "found %s, expected a mapping of keys", found);
	}
	return read_keys(r, section, -1, r->cfg, value);
}

/* names[i]: where schema_sections[i] was found. */
static int read_named_section(struct reading *r, const struct ydoc_node *name, const struct ydoc_node **names)
{
	const struct schema_section *section = name->kind == YDOC_TEXT ? schema_find_section(name->text) : NULL;

	if (!section)
		return fail_unknown(r, NULL, name);
	if (names[section - schema_sections])
		return ydoc_fail(r->doc, name, section->name, r->e,
				 "found a second time, expected once (first in line %u)",
				 names[section - schema_sections]->line);
	names[section - schema_sections] = name;
	return read_section(r, section, name->next);
}

static int read_sections(struct reading *r)
{
	const struct ydoc_node *root = r->doc->root, *names[SCHEMA_SECTIONS_MAX] = {NULL};
	char found[80];

	if (!root || (root->kind == YDOC_TEXT && root->nothing))
		return RS_OK;
	if (root->kind != YDOC_MAPPING) {
		ydoc_describe(root, found, sizeof found);
		return ydoc_fail(r->doc, root, NULL, r->e, "found %s, expected a mapping of sections", found);
	}
	for (const struct ydoc_node *name = root->child; name; name = name->next->next) {
		int rc = go_on(r, read_named_section(r, name, names));

		if (rc)
			return rc;
	}
	return r->failed ? RS_ECONFIG : RS_OK;
}

/* Makes the only reducer of a file without a list of reducers. */
static int add_local_reducer(struct reading *r)
{
	struct rs_reducer *reducer = calloc(1, sizeof *reducer);

	if (!reducer)
		return rs_oom(r->e, 0, "a reducer");
	set_defaults("reducers", reducer);
	memcpy(reducer->id, "r0", sizeof "r0");
	memcpy(reducer->address, "127.0.0.1:7600", sizeof "127.0.0.1:7600");
	r->cfg->reducers = reducer;
	r->cfg->reducers_n = 1;
	return RS_OK;
}

/* Fills in machines and gRPC ports that the file does not name. */
static void name_hosts(struct rs_config *cfg)
{
	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		struct rs_reducer *r = &cfg->reducers[i];
		const char *host = r->address;
		size_t n = host[0] ? (size_t)(strrchr(host, ':') - host) : 0;

		/* each empty slot, and each of a name, will be a machine of its own */
		if (!r->host[0] && (!host[0] || r->shared))
			snprintf(r->host, sizeof r->host, "%s", r->id);
		if (!host[0])
			continue;
		if (!r->grpc[0])
			snprintf(r->grpc, sizeof r->grpc, "%.*s:7601", (int)n, host);
		if (host[0] == '[') {
			host++;
			n -= 2;
		}
		if (!r->host[0])
			snprintf(r->host, sizeof r->host, "%.*s", (int)n, host);
	}
	for (unsigned i = 0; i < cfg->workers_n; i++)
		if (!cfg->workers[i].host[0])
			snprintf(cfg->workers[i].host, sizeof cfg->workers[i].host, "worker-%u", i);
}

/* Returns the number of threads for the CPUs that this process can use. */
static unsigned server_lanes(void)
{
	unsigned cpus = rs_usable_cpus("");

	return cpus > SERVER_LANES_AUTO_MAX ? SERVER_LANES_AUTO_MAX : cpus;
}

/* Chooses the lanes of the reducers for which the file gives none. They depend on the
 * file only, since all ranks must agree. */
static void choose_lanes(struct rs_config *cfg)
{
	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		struct rs_reducer *r = &cfg->reducers[i];
		uint64_t rate = r->bandwidth ? r->bandwidth : cfg->plan.bandwidth;
		uint64_t lanes = rate / REDUCER_LANE_RATE + (rate % REDUCER_LANE_RATE > 0);

		if (r->lanes_auto)
			r->lanes = lanes < 1                        ? 1
				   : lanes > REDUCER_LANES_AUTO_MAX ? REDUCER_LANES_AUTO_MAX
								    : (unsigned)lanes;
	}
}

bool rs_config_has_relays(const struct rs_config *cfg)
{
	size_t n = (size_t)cfg->groups_n * cfg->sharding.shards;

	for (size_t i = 0; i < n; i++)
		if (cfg->relays[i] != RS_NO_RELAY)
			return true;
	return false;
}

/* A chunk should pass the slowest link that the file names in CHUNK_US. The chunks of n
 * workers meet at a reducer's port. Its queue is short in time, and so shorter in bytes
 * on slow links. Measured at 1 Gbit/s, where 32 KiB was best, and at 250 Mbit/s, where
 * 16 KiB was. Through a relay a chunk waits as a whole on four links instead of two, and
 * in the queues of workers, uplinks and other relays: it is smaller. 8 workers in two
 * racks at 250 Mbit/s, 16 MiB, MB/s with 16 KiB and with 8 KiB: 22.1 and 23.4 of 23.9
 * that the links allow; 27.5 and 29.1 of 29.9; where some shards go straight home, 18.4
 * and 25.1 of 26.1. */
uint32_t rs_config_chunk(const struct rs_config *cfg, bool relays)
{
	uint64_t rate = cfg->plan.bandwidth, us = relays ? CHUNK_RELAYED_US : CHUNK_US;
	uint32_t chunk = CHUNK_AUTO_MAX;

	if (!cfg->sharding.chunk_auto)
		return cfg->sharding.chunk_bytes;
	for (unsigned i = 0; i < cfg->reducers_n; i++)
		if (cfg->reducers[i].bandwidth && (!rate || cfg->reducers[i].bandwidth < rate))
			rate = cfg->reducers[i].bandwidth;
	for (unsigned i = 0; i < cfg->workers_n; i++)
		if (cfg->workers[i].bandwidth && (!rate || cfg->workers[i].bandwidth < rate))
			rate = cfg->workers[i].bandwidth;
	while (rate && chunk > CHUNK_AUTO_MIN && chunk > rate / 8 * us / 1000000)
		chunk /= 2;
	return chunk;
}

void rs_config_choose(struct rs_config *cfg)
{
	choose_lanes(cfg);
	cfg->sharding.chunk_bytes = rs_config_chunk(cfg, rs_config_has_relays(cfg));
}

/* Makes the shard map. */
static int finish_map(struct reading *r)
{
	struct rs_config *cfg = r->cfg;
	const struct ydoc_node *map = seen(r, "sharding", "map");

	if (map)
		return shardmap_read(cfg, r->doc, map, r->e);
	if (cfg->sharding.shards == 0)
		cfg->sharding.shards =
		    shardmap_default_shards(cfg->reducers, cfg->reducers_n,
					    cfg->sharding.rebalance == RS_REBALANCE_ON || rs_config_has_slots(cfg));
	if (cfg->sharding.shards < cfg->reducers_n)
		return ydoc_fail(r->doc, seen(r, "sharding", "shards"), "sharding.shards", r->e,
				 "found %u, expected at least %u, one for each reducer", cfg->sharding.shards,
				 cfg->reducers_n);

	cfg->sharding.owner = calloc(cfg->sharding.shards, sizeof *cfg->sharding.owner);
	if (!cfg->sharding.owner)
		return rs_oom(r->e, cfg->sharding.shards * sizeof *cfg->sharding.owner, "the shard map");
	return shardmap_deal(cfg->sharding.owner, cfg->sharding.shards, cfg->reducers, cfg->reducers_n, r->e);
}

/* Checks that the protocol has room for `decoupled`. */
static int check_decoupled(struct reading *r)
{
	const struct rs_config *cfg = r->cfg;
	const struct ydoc_node *at = seen(r, "sharding", "decoupled");
	uint64_t most = cfg->sharding.decoupled / rs_config_ahead(cfg) * RS_WINDOW_MAX;
	char found[32], chunk[32], expected[32];

	if (!cfg->sharding.decoupled)
		return RS_OK;
	value_format_bytes(cfg->sharding.decoupled, found, sizeof found);
	value_format_bytes(cfg->sharding.chunk_bytes, chunk, sizeof chunk);
	value_format_bytes(most >> 10 ? most >> 10 << 10 : most, expected, sizeof expected);
	if (cfg->job.baseline)
		return ydoc_fail(r->doc, at, "sharding.decoupled", r->e,
				 "found %s, expected off with job.features: baseline, which has no CREDIT", found);
	if (rs_config_ahead(cfg) > RS_WINDOW_MAX)
		return ydoc_fail(r->doc, at, "sharding.decoupled", r->e,
				 "found %s, expected at most about %s, %u chunks of %s on each lane: use more lanes",
				 found, expected, RS_WINDOW_MAX, chunk);
	return RS_OK;
}

/* Completes what depends on more than one key: the shard map, and the numbers for
 * "auto". */
static int finish(struct reading *r)
{
	struct rs_config *cfg = r->cfg;
	int rc;

	if (!cfg->reducers && add_local_reducer(r))
		return RS_ENOMEM;
	if (cfg->access && cfg->security.tls != TLS_MUTUAL)
		return ydoc_fail(
		    r->doc, seen(r, "access", "certificate"), "access", r->e,
		    "found rules for certificates, expected none unless security.tls is mutual: without it "
		    "workers show none");
	if (cfg->job.min_reducers > cfg->reducers_n)
		return ydoc_fail(r->doc, seen(r, "job", "min_reducers"), "job.min_reducers", r->e,
				 "found %u, expected at most %u, the number of reducers", cfg->job.min_reducers,
				 cfg->reducers_n);

	rc = slots_check(cfg, r->doc, r->e);
	if (rc)
		return rc;

	cfg->server.lanes_auto = cfg->server.lanes == 0;
	if (cfg->server.lanes_auto)
		cfg->server.lanes = server_lanes();
	for (unsigned i = 0; i < cfg->reducers_n; i++)
		cfg->reducers[i].lanes_auto = cfg->reducers[i].lanes == 0;

	choose_lanes(cfg);
	name_hosts(cfg);
	rc = finish_map(r);
	if (!rc)
		rc = groups_read(cfg, r->doc, r->e);
	if (rc)
		return rc;
	cfg->sharding.chunk_auto = cfg->sharding.chunk_bytes == 0;
	rs_config_choose(cfg);
	return check_decoupled(r);
}

int rs_config_parse_all(struct rs_config *ret_cfg, const char *name, const void *text, size_t len,
			void (*report)(void *user, const struct rs_err *e), void *user, struct rs_err *e)
{
	struct rs_config cfg;
	struct ydoc doc;
	struct reading r = {.cfg = &cfg, .doc = &doc, .e = e, .report = report, .user = user};
	int rc;

	rc = ydoc_parse(&doc, name, "YAML", text, len, e);
	if (rc)
		return rc;
	memset(&cfg, 0, sizeof cfg);
	for (unsigned i = 0; i < schema_sections_n; i++)
		if (!schema_sections[i].item_size)
			set_defaults(schema_sections[i].name, &cfg);
	rc = read_sections(&r);
	if (rc == RS_OK)
		rc = finish(&r);
	ydoc_close(&doc);
	if (rc)
		rs_config_close(&cfg);
	else
		*ret_cfg = cfg;
	return rc;
}

int rs_config_parse(struct rs_config *ret_cfg, const char *name, const void *text, size_t len, struct rs_err *e)
{
	return rs_config_parse_all(ret_cfg, name, text, len, NULL, NULL, e);
}

int rs_config_take_log_level(struct rs_config *cfg, struct rs_err *e)
{
	const char *word = getenv("REDUCTION_LOG");
	int level;

	if (!word || !*word)
		return RS_OK;
	level = rs_log_level_parse(word);
	if (level < 0)
		return rs_fail(e, RS_ECONFIG,
			       "REDUCTION_LOG: found \"%.40s\", expected error, warn, info, debug or trace", word);
	cfg->logging.level = level;
	return RS_OK;
}

void rs_config_close(struct rs_config *cfg)
{
	free(cfg->reducers);
	free(cfg->workers);
	free(cfg->access);
	free(cfg->sharding.owner);
	groups_close(cfg);
	cfg->reducers = NULL;
	cfg->reducers_n = 0;
	cfg->workers = NULL;
	cfg->workers_n = 0;
	cfg->access = NULL;
	cfg->access_n = 0;
	cfg->sharding.owner = NULL;
}

uint32_t rs_config_resolve_ms(const struct rs_config *cfg)
{
	if (cfg->timeouts.resolve_ms)
		return cfg->timeouts.resolve_ms;
	return getenv("KUBERNETES_SERVICE_HOST") ? UINT32_MAX : RESOLVE_AUTO_MS;
}

uint64_t rs_config_ahead(const struct rs_config *cfg)
{
	uint64_t chunks, most = 0; /* shards of a lane */

	if (!cfg->sharding.decoupled)
		return cfg->sharding.window;
	for (unsigned r = 0; r < cfg->reducers_n; r++) {
		unsigned own = 0, lanes = cfg->reducers[r].lanes;

		for (unsigned s = 0; s < cfg->sharding.shards; s++)
			own += cfg->sharding.owner[s] == r;
		most = (own + lanes - 1) / lanes > most ? (own + lanes - 1) / lanes : most;
	}
	chunks = (cfg->sharding.decoupled + cfg->sharding.chunk_bytes - 1) / cfg->sharding.chunk_bytes;
	chunks = (chunks * most + cfg->sharding.shards - 1) / cfg->sharding.shards;
	return chunks > cfg->sharding.window ? chunks : cfg->sharding.window;
}

unsigned rs_config_lane(const struct rs_config *cfg, unsigned shard)
{
	unsigned before = 0;

	for (unsigned s = 0; s < shard; s++)
		before += cfg->sharding.owner[s] == cfg->sharding.owner[shard];
	return before % cfg->reducers[cfg->sharding.owner[shard]].lanes;
}
