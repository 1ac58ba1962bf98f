/* SPDX-License-Identifier: Apache-2.0 */
#include "config/shardmap.h"

#include "config/schema.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS_LEAST = 64, SHARDS_FINE = 256, SHARDS_EACH = 16 };

/* A reducer's part while shards are assigned. Weights are in millionths, so all
 * arithmetic is exact. */
struct share {
	uint64_t weight;
	unsigned shards;
	int64_t credit; /* how far it is behind its share */
};

static uint64_t millionths(double weight)
{
	return (uint64_t)(weight * 1e6 + 0.5);
}

static unsigned least_shards(const struct rs_reducer *reducers, unsigned n)
{
	bool weights_equal = true, lanes_equal = true;
	unsigned unit;

	for (unsigned i = 1; i < n; i++) {
		weights_equal = weights_equal && millionths(reducers[i].weight) == millionths(reducers[0].weight);
		lanes_equal = lanes_equal && reducers[i].lanes == reducers[0].lanes;
	}
	if (!weights_equal)
		return n * SHARDS_EACH > SHARDS_LEAST ? n * SHARDS_EACH : SHARDS_LEAST;
	unit = lanes_equal && n * reducers[0].lanes <= RS_SHARDS_MAX ? n * reducers[0].lanes : n;
	return (SHARDS_LEAST + unit - 1) / unit * unit;
}

unsigned shardmap_default_shards(const struct rs_reducer *reducers, unsigned n, bool fine)
{
	unsigned least = least_shards(reducers, n), times = (SHARDS_FINE + least - 1) / least;

	return fine ? least * times : least;
}

/* Apportions shards by largest remainder, with at least one for each reducer. */
static void apportion(struct share *share, unsigned n, unsigned shards)
{
	uint64_t sum = 0;
	unsigned given = 0;

	for (unsigned i = 0; i < n; i++)
		sum += share[i].weight;
	for (unsigned i = 0; i < n; i++) {
		share[i].shards = (unsigned)(shards * share[i].weight / sum);
		if (share[i].shards == 0)
			share[i].shards = 1;
		given += share[i].shards;
		share[i].credit = (int64_t)(shards * share[i].weight) - (int64_t)(share[i].shards * sum);
	}
	for (; given < shards; given++) {
		struct share *most = &share[0];

		for (unsigned i = 1; i < n; i++)
			if (share[i].credit > most->credit)
				most = &share[i];
		most->shards++;
		most->credit -= (int64_t)sum;
	}
	for (; given > shards; given--) {
		struct share *least = &share[0];

		for (unsigned i = 1; i < n; i++)
			if (share[i].shards > 1 && (least->shards == 1 || share[i].credit <= least->credit))
				least = &share[i];
		least->shards--;
		least->credit += (int64_t)sum;
	}
}

/* Chooses owners by smooth weighted round-robin: after all shards each reducer was chosen
 * exactly as often as it has shards. */
static void interleave(uint16_t *owner, unsigned shards, struct share *share, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		share[i].credit = 0;
	for (unsigned s = 0; s < shards; s++) {
		unsigned best = 0;

		for (unsigned i = 0; i < n; i++) {
			share[i].credit += share[i].shards;
			if (share[i].credit > share[best].credit)
				best = i;
		}
		share[best].credit -= shards;
		owner[s] = (uint16_t)best;
	}
}

int shardmap_deal(uint16_t *owner, unsigned shards, const struct rs_reducer *reducers, unsigned n, struct rs_err *e)
{
	struct share *share = calloc(n, sizeof *share);

	if (!share)
		return rs_oom(e, n * sizeof *share, "the shard map");
	for (unsigned i = 0; i < n; i++)
		share[i].weight = millionths(reducers[i].weight);
	apportion(share, n, shards);
	interleave(owner, shards, share, n);
	free(share);
	return RS_OK;
}

void shardmap_deal_shares(uint16_t *owner, unsigned shards, const uint32_t *weights, unsigned n)
{
	struct share share[RS_REDUCERS_MAX];

	for (unsigned i = 0; i < n; i++)
		share[i] = (struct share){.weight = weights[i]};
	apportion(share, n, shards);
	interleave(owner, shards, share, n);
}

int shardmap_interleave(uint16_t *owner, unsigned shards, const unsigned *counts, unsigned n, struct rs_err *e)
{
	struct share *share = calloc(n, sizeof *share);

	if (!share)
		return rs_oom(e, n * sizeof *share, "the shard map");
	for (unsigned i = 0; i < n; i++)
		share[i].shards = counts[i];
	interleave(owner, shards, share, n);
	free(share);
	return RS_OK;
}

/* Reads a number of at most nine digits, which is enough to report that it is too
 * large. */
static bool scan_shard(const char **text, unsigned *ret)
{
	unsigned v = 0, digits = 0;

	for (; **text >= '0' && **text <= '9'; ++*text, digits++) {
		if (digits == 9)
			return false;
		v = v * 10 + (unsigned)(**text - '0');
	}
	*ret = v;
	return digits > 0;
}

/* Reads "7" or "0-15" and the comma after it, if any. 1 for a range, 0 at the end, -1 for
 * anything else. */
static int scan_range(const char **text, unsigned *ret_first, unsigned *ret_last)
{
	if (**text == '\0')
		return 0;
	if (!scan_shard(text, ret_first))
		return -1;
	*ret_last = *ret_first;
	if (**text == '-') {
		++*text;
		if (!scan_shard(text, ret_last) || *ret_last < *ret_first)
			return -1;
	}
	if (**text == '\0')
		return 1;
	if (**text != ',')
		return -1;
	++*text;
	if (**text == ' ')
		++*text;
	return **text ? 1 : -1;
}

/* The map while it is read. by[s] is the node that assigned shard s. */
struct reading {
	const struct rs_config *cfg;
	const struct ydoc *doc;
	const char *path; /* of the map's key */
	struct rs_err *e;
	unsigned shards; /* names that may be used */
	unsigned highest;
	uint16_t owner[RS_SHARDS_MAX];
	const struct ydoc_node *by[RS_SHARDS_MAX];
};

static int fail_reducer(const struct rs_config *cfg, const struct ydoc *doc, const struct ydoc_node *value,
			const char *path, struct rs_err *e)
{
	char found[80], known[256] = "";
	const char *nearest = NULL;
	unsigned least = UINT_MAX;
	size_t len = 0;

	ydoc_describe(value, found, sizeof found);
	for (unsigned i = 0; i < cfg->reducers_n && value->kind == YDOC_TEXT; i++) {
		unsigned d = schema_distance(value->text, cfg->reducers[i].id);

		if (d < least && schema_is_near(value->text, cfg->reducers[i].id, d)) {
			least = d;
			nearest = cfg->reducers[i].id;
		}
	}
	if (nearest)
		return ydoc_fail(doc, value, path, e, "found %s, expected a reducer; did you mean %s?", found, nearest);
	for (unsigned i = 0; i < cfg->reducers_n && len < sizeof known; i++)
		len += (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", cfg->reducers[i].id);
	return ydoc_fail(doc, value, path, e, "found %s, expected a reducer, one of %s", found, known);
}

int shardmap_reducer(uint16_t *ret, const struct rs_config *cfg, const struct ydoc *doc, const struct ydoc_node *value,
		     const char *path, struct rs_err *e)
{
	for (unsigned i = 0; i < cfg->reducers_n && value->kind == YDOC_TEXT; i++)
		if (strcmp(cfg->reducers[i].id, value->text) == 0) {
			*ret = (uint16_t)i;
			return RS_OK;
		}
	return fail_reducer(cfg, doc, value, path, e);
}

static int take_range(struct reading *r, const struct ydoc_node *key, unsigned first, unsigned last, uint16_t owner)
{
	if (last >= r->shards) {
		if (r->cfg->sharding.shards)
			return ydoc_fail(r->doc, key, r->path, r->e,
					 "found shard %u, expected 0 to %u since there are %u shards", last,
					 r->shards - 1, r->shards);
		return ydoc_fail(r->doc, key, r->path, r->e, "found shard %u, expected 0 to %u", last, r->shards - 1);
	}
	for (unsigned s = first; s <= last; s++) {
		if (r->by[s])
			return ydoc_fail(r->doc, key, r->path, r->e,
					 "shard %u belongs to %s (line %u) and %s (line %u), expected one reducer", s,
					 r->cfg->reducers[r->owner[s]].id, r->by[s]->line, r->cfg->reducers[owner].id,
					 key->line);
		r->by[s] = key;
		r->owner[s] = owner;
	}
	if (last > r->highest)
		r->highest = last;
	return RS_OK;
}

/* Reads one entry of the map: ranges and the reducer that owns them. */
static int take_entry(struct reading *r, const struct ydoc_node *key, const struct ydoc_node *value)
{
	const char *at = key->text;
	unsigned first, last;
	uint16_t owner;
	char found[80];
	int more, rc = shardmap_reducer(&owner, r->cfg, r->doc, value, r->path, r->e);

	if (rc)
		return rc;
	if (key->kind != YDOC_TEXT || key->nothing || !*at)
		more = -1;
	else
		more = 1;
	while (more > 0) {
		more = scan_range(&at, &first, &last);
		if (more > 0) {
			rc = take_range(r, key, first, last, owner);
			if (rc)
				return rc;
		}
	}
	if (more == 0)
		return RS_OK;
	ydoc_describe(key, found, sizeof found);
	return ydoc_fail(r->doc, key, r->path, r->e, "found %s, expected shards as 7, 0-15 or \"0-3,8\"", found);
}

static int check_complete(const struct reading *r, const struct ydoc_node *map)
{
	char missing[160] = "";
	size_t len = 0;
	unsigned count = 0;

	for (unsigned s = 0, end; s < r->shards; s = end + 1) {
		end = s;
		if (r->by[s])
			continue;
		while (end + 1 < r->shards && !r->by[end + 1])
			end++;
		count += end - s + 1;
		if (len >= sizeof missing)
			continue;
		len += (size_t)snprintf(missing + len, sizeof missing - len, s == end ? "%s%u" : "%s%u-%u",
					len ? ", " : "", s, end);
	}
	if (count == 0)
		return RS_OK;
	return ydoc_fail(r->doc, map, r->path, r->e,
			 count == 1 ? "shard %s%s belongs to no reducer, expected an owner for all %u"
				    : "shards %s%s belong to no reducer, expected an owner for all %u",
			 missing, len >= sizeof missing ? "..." : "", r->shards);
}

static int read_entries(struct reading *r, const struct ydoc_node *map)
{
	for (const struct ydoc_node *key = map->child; key; key = key->next->next) {
		int rc = take_entry(r, key, key->next);

		if (rc)
			return rc;
	}
	return RS_OK;
}

int shardmap_read(struct rs_config *cfg, const struct ydoc *doc, const struct ydoc_node *map, struct rs_err *e)
{
	struct reading *r = calloc(1, sizeof *r); /* too large for the stack of a thread */
	int rc;

	if (!r)
		return rs_oom(e, 0, "the shard map");
	r->cfg = cfg;
	r->doc = doc;
	r->path = "sharding.map";
	r->e = e;
	r->shards = cfg->sharding.shards ? cfg->sharding.shards : RS_SHARDS_MAX;
	rc = read_entries(r, map);
	if (!rc && !cfg->sharding.shards)
		r->shards = r->highest + 1;
	if (!rc)
		rc = check_complete(r, map);
	if (rc)
		goto free_reading;
	cfg->sharding.owner = malloc(r->shards * sizeof *cfg->sharding.owner);
	if (!cfg->sharding.owner) {
		rc = rs_oom(e, r->shards * sizeof *cfg->sharding.owner, "the shard map");
		goto free_reading;
	}
	memcpy(cfg->sharding.owner, r->owner, r->shards * sizeof *cfg->sharding.owner);
	cfg->sharding.shards = r->shards;
free_reading:
	free(r);
	return rc;
}

int shardmap_read_relays(uint16_t *ret, const struct rs_config *cfg, const struct ydoc *doc,
			 const struct ydoc_node *map, const char *path, struct rs_err *e)
{
	struct reading *r = calloc(1, sizeof *r);
	int rc;

	if (!r)
		return rs_oom(e, 0, "the map of relays");
	r->cfg = cfg;
	r->doc = doc;
	r->path = path;
	r->e = e;
	r->shards = cfg->sharding.shards;
	rc = read_entries(r, map);
	for (unsigned s = 0; !rc && s < r->shards; s++)
		ret[s] = r->by[s] ? r->owner[s] : RS_NO_RELAY;
	free(r);
	return rc;
}
