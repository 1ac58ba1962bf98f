/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check/check.h"
#include "config/schema.h"
#include "config/value.h"
#include "proto/frame.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void check_init(struct check *c)
{
	*c = (struct check){.cfg = NULL};
}

void check_close(struct check *c)
{
	ydoc_close(&c->doc);
	free(c->lines);
}

/* Adds a line, unless an equal one is there. */
static void add_line(struct check *c, const struct check_line *l)
{
	struct check_line *more;

	for (unsigned i = 0; i < c->lines_n; i++)
		if (c->lines[i].severity == l->severity && c->lines[i].line == l->line &&
		    strcmp(c->lines[i].what.msg, l->what.msg) == 0)
			return;
	c->errors += l->severity == CHECK_ERROR;
	more = reallocarray(c->lines, c->lines_n + 1, sizeof *more);
	if (!more) {
		c->no_memory = true;
		return;
	}
	c->lines = more;
	c->lines[c->lines_n++] = *l;
}

/* Finds the value of a key in a mapping. */
static const struct ydoc_node *find_value(const struct ydoc_node *mapping, const char *key)
{
	if (!mapping || mapping->kind != YDOC_MAPPING)
		return NULL;
	for (const struct ydoc_node *name = mapping->child; name; name = name->next->next)
		if (name->kind == YDOC_TEXT && strcmp(name->text, key) == 0)
			return name->next;
	return NULL;
}

static const struct ydoc_node *find_item(const struct ydoc_node *list, int index)
{
	const struct ydoc_node *item = list && list->kind == YDOC_LIST ? list->child : NULL;

	while (item && index-- > 0)
		item = item->next;
	return item;
}

static const struct ydoc_node *find_key(const struct check *c, const char *section, int index, const char *key)
{
	const struct ydoc_node *at = find_value(c->doc.root, section);

	if (index >= 0)
		at = find_item(at, index);
	return key ? find_value(at, key) : at;
}

bool check_has(const struct check *c, const char *section, const char *key)
{
	return find_key(c, section, -1, key) != NULL;
}

/* Returns whether the command line has changed a value. */
static bool is_overridden(const struct check *c, const char *section, int index, const char *key)
{
	const struct schema_key *k = index < 0 && key ? schema_find(section, key) : NULL;

	return k && c->as_read && k->size &&
	       memcmp((const char *)c->cfg + k->offset, (const char *)c->as_read + k->offset, k->size) != 0;
}

void check_add(struct check *c, enum check_severity severity, const char *section, int index, const char *key,
	       const struct rs_err *e)
{
	struct check_line l = {.severity = severity, .what = *e};
	const struct ydoc_node *at = NULL;

	if (index < 0)
		snprintf(l.key, sizeof l.key, "%s%s%s", section, key ? "." : "", key ? key : "");
	else
		snprintf(l.key, sizeof l.key, "%s[%d].%s", section, index, key);
	l.of_file = !is_overridden(c, section, index, key);
	if (l.of_file)
		at = find_key(c, section, index, key);
	if (at) {
		l.line = at->line;
		l.column = at->column;
	}
	if (strncmp(l.what.msg, l.key, strlen(l.key)) != 0)
		rs_wrap(&l.what, "%s", l.key);
	add_line(c, &l);
}

void check_add_other(struct check *c, const char *key, const struct rs_err *e)
{
	struct check_line l = {.severity = CHECK_ERROR, .what = *e};

	snprintf(l.key, sizeof l.key, "%s", key);
	add_line(c, &l);
}

void check_fact(struct check *c, const char *fmt, ...)
{
	struct check_line l = {.severity = CHECK_FACT};
	char text[sizeof l.what.msg];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	rs_fail(&l.what, RS_OK, "%s", text);
	add_line(c, &l);
}

/* Adds an error of the parser, which begins with "name:line:column: key: " if it has a
 * position. */
static void on_parse_error(void *user, const struct rs_err *e)
{
	struct check *c = user;
	struct check_line l = {.severity = CHECK_ERROR, .of_file = true, .what = *e};
	size_t n = strlen(c->name), key;
	int used = 0;

	if (strncmp(e->msg, c->name, n) == 0 && sscanf(e->msg + n, ":%u:%u: %n", &l.line, &l.column, &used) == 2 &&
	    used) {
		const char *text = e->msg + n + used;

		key = strspn(text, "abcdefghijklmnopqrstuvwxyz_.[]0123456789");
		if (key < sizeof l.key && strncmp(text + key, ": ", 2) == 0)
			memcpy(l.key, text, key);
		rs_fail(&l.what, e->code, "%s", text);
	} else {
		l.of_file = false; /* the sentence has the name */
	}
	add_line(c, &l);
}

static void set_name(struct check *c, const char *name)
{
	size_t n = strlen(name);

	if (n < sizeof c->name)
		memcpy(c->name, name, n + 1);
	else /* as ydoc_parse */
		snprintf(c->name, sizeof c->name, "...%s", name + n - (sizeof c->name - 4));
}

bool check_load(struct check *c, struct rs_config *ret, const char *file, bool standard_input)
{
	bool is_input = file && standard_input && strcmp(file, "-") == 0;
	struct rs_config_source source = {.file = ""};
	struct rs_err e;
	char *text;
	size_t len;
	bool good;

	if (!file) {
		if (rs_config_load(ret, NULL, &e)) {
			check_add_other(c, "", &e);
			return false;
		}
		c->cfg = ret;
		return true;
	}
	set_name(c, is_input ? "<stdin>" : file);
	if (!is_input)
		rs_config_source(&source, file);
	if (rs_config_read(&text, &len, is_input ? NULL : file, &e)) {
		check_add_other(c, "", &e);
		return false;
	}
	good = rs_config_parse_all(ret, c->name, text, len, on_parse_error, c, &e) == RS_OK;
	if (good && ydoc_parse(&c->doc, c->name, "YAML", text, len, &e))
		c->doc = (struct ydoc){.root = NULL}; /* no memory: positions are missing */
	free(text);
	if (good) {
		ret->source = source;
		c->cfg = ret;
	} else if (!c->errors)
		on_parse_error(c, &e);
	return good;
}

bool check_load_cluster(struct check *c, struct rs_config *ret, enum rs_cluster_role role, struct rs_cluster *cluster)
{
	struct rs_err e;

	if (rs_cluster_load(cluster, ret, role, NULL, NULL, &e)) {
		check_add_other(c, "", &e);
		return false;
	}
	if (!cluster->variable)
		return check_load(c, ret, NULL, false);
	set_name(c, cluster->variable);
	c->cfg = ret;
	return true;
}

const char *check_text(const struct check *c, const struct check_line *l, char *buf, size_t size)
{
	char at[sizeof c->name + 32] = "";

	if (l->line)
		snprintf(at, sizeof at, "%s:%u:%u: ", c->name, l->line, l->column);
	else if (l->of_file && c->name[0])
		snprintf(at, sizeof at, "%s: ", c->name);
	snprintf(buf, size, "%s%s%s", at, l->severity == CHECK_WARNING ? "warning: " : "", l->what.msg);
	return buf;
}

/* Writes a set of roles as words: "server, agent and worker". Returns buf. */
static const char *check_roles_text(unsigned roles, char *buf, size_t size)
{
	static const char *const words[] = {"server", "agent", "worker"}; /* by bit */
	unsigned left = (unsigned)__builtin_popcount(roles);
	size_t len = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < sizeof words / sizeof words[0] && len < size; i++)
		if (roles >> i & 1)
			len += (size_t)snprintf(buf + len, size - len, "%s%s", words[i],
						--left > 1  ? ", "
						: left == 1 ? " and "
							    : "");
	return buf;
}

/* "2 lanes" */
static const char *plural(unsigned n)
{
	return n == 1 ? "" : "s";
}

static void print_workers(const struct rs_config *cfg, const char *name, FILE *out)
{
	unsigned lanes = 0, chunks;
	char chunk[32], flight[32];

	for (unsigned i = 0; i < cfg->reducers_n; i++)
		lanes += cfg->reducers[i].lanes;
	value_format_bytes(cfg->sharding.chunk_bytes, chunk, sizeof chunk);
	chunks = cfg->sharding.window + (cfg->sharding.priorities - 1) * frame_reserve(cfg->sharding.window);
	value_format_bytes((uint64_t)lanes * chunks * cfg->sharding.chunk_bytes, flight, sizeof flight);
	fprintf(
	    out,
	    "%s: ok: %u reducer%s with %u lane%s, %u shard%s, chunks of %s, window %u, at most %s in flight a worker\n",
	    name, cfg->reducers_n, plural(cfg->reducers_n), lanes, plural(lanes), cfg->sharding.shards,
	    plural(cfg->sharding.shards), chunk, cfg->sharding.window, flight);
}

/* What relays for whom. */
static void print_group(const struct rs_config *cfg, unsigned group, const char *name, FILE *out)
{
	const uint16_t *relays = cfg->relays + (size_t)group * cfg->sharding.shards;
	bool relay[RS_REDUCERS_MAX] = {false};
	unsigned shards = 0, n = 0;

	for (unsigned s = 0; s < cfg->sharding.shards; s++)
		if (relays[s] != RS_NO_RELAY) {
			n += !relay[relays[s]];
			relay[relays[s]] = true;
			shards++;
		}
	fprintf(out, "%s: ok: group %s: %u of %u shard%s %s relayed%s", name, cfg->groups[group].name, shards,
		cfg->sharding.shards, plural(cfg->sharding.shards), shards == 1 ? "is" : "are", n ? " by " : "");
	for (unsigned i = 0; i < cfg->reducers_n; i++)
		if (relay[i]) {
			n--;
			fprintf(out, "%s%s", cfg->reducers[i].id, n > 1 ? ", " : n ? " and " : "");
		}
	fputc('\n', out);
}

/* What a decoupled job needs in a reducer, as server/core/stripe.c counts it. */
static void print_decoupled(const struct rs_config *cfg, const char *name, FILE *out)
{
	struct exchange_params p = rs_config_exchange(cfg);
	uint64_t slots = 2ull * p.ahead * p.priorities, stash = 2ull * p.chunk_bytes;
	uint64_t decoded = p.decoded_bytes > stash ? p.decoded_bytes : stash;
	char sums[32], each[32];

	if (!cfg->sharding.decoupled)
		return;
	value_format_bytes(slots * decoded, sums, sizeof sums);
	value_format_bytes(slots * stash, each, sizeof each);
	fprintf(out, "%s: ok: decoupled, up to %u chunks without a result on a lane: a reducer needs %s for each lane",
		name, p.ahead, sums);
	if (p.deterministic)
		fprintf(out, ", and %s for each rank but one", each);
	fputc('\n', out);
}

static void print_server(const struct rs_config *cfg, const char *name, FILE *out)
{
	char memory[32];

	value_format_bytes(cfg->server.memory_bytes, memory, sizeof memory);
	fprintf(out, "%s: ok: a reducer on %s%s%s, at most %s for %u job%s\n", name, cfg->server.listen,
		cfg->server.grpc[0] ? " and for gRPC on " : "", cfg->server.grpc, memory, cfg->server.max_jobs,
		plural(cfg->server.max_jobs));
}

void check_print_good(const struct check *c, unsigned roles, FILE *out)
{
	const char *name = c->name[0] ? c->name : "defaults";
	char words[64];

	check_roles_text(roles, words, sizeof words);
	if (roles & CHECK_SERVER)
		print_server(c->cfg, name, out);
	if (roles & (CHECK_AGENT | CHECK_WORKER))
		print_workers(c->cfg, name, out);
	if (roles & (CHECK_AGENT | CHECK_WORKER))
		print_decoupled(c->cfg, name, out);
	for (unsigned g = 0; roles & (CHECK_AGENT | CHECK_WORKER) && g < c->cfg->groups_n; g++)
		print_group(c->cfg, g, name, out);
	if (c->elsewhere)
		fprintf(out, "%s: checked for %s, without what depends on the machine; there use --role\n", name,
			words);
	else if (roles & CHECK_SERVER)
		fprintf(out, "%s: checked for %s on this machine; ports were not bound, they may be in use\n", name,
			words);
	else
		fprintf(out, "%s: checked for %s on this machine\n", name, words);
}
