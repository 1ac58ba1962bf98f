/* SPDX-License-Identifier: Apache-2.0 */
/* JSON is read as YAML, which contains it, but for one way to write characters
 * (join_surrogates). Fields that nothing here needs may have any value. */
#include "config/cluster_spec.h"

#include "config/schema.h"
#include "config/value.h"
#include "config/ydoc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { POOLS_OF_WORKERS = 3, FIELD = 64 };

/* The names in one of the two formats. */
struct format {
	const char *variable;
	const char *workers[POOLS_OF_WORKERS]; /* pools of workers in the order of node ranks; NULL at the end */
	const char *reducers, *evaluators;
	const char *id; /* the field of `task` with an identifier of the job; NULL: there is none */
};

static const struct format formats[] = {
    {"CLUSTER_SPEC", {"workerpool0", "workerpool1"}, "workerpool2", "workerpool3", NULL},
    {"TF_CONFIG", {"chief", "master", "worker"}, "ps", "evaluator", "cloud"},
};

/* A text while it is read. */
struct reading {
	const struct format *format;
	struct ydoc doc;
	struct cluster_spec *spec;
	const struct ydoc_node *first; /* the address of the first worker */
	struct rs_err *e;
};

/* Returns the value of four hexadecimal digits; -1 if they are not. */
static long hex4(const char *text)
{
	char digits[5] = "";

	for (int i = 0; i < 4; i++) {
		if (!isxdigit((unsigned char)text[i]))
			return -1;
		digits[i] = text[i];
	}
	return strtol(digits, NULL, 16);
}

/* Rewrites \ud83d\ude00 to \U0001f600, which YAML knows: characters above U+FFFF are two
 * escapes in JSON. */
static void join_surrogates(char *text)
{
	char *to = text;

	for (const char *from = text; *from;) {
		long high, low;
		char joined[sizeof "\\U0010ffff"];

		if (*from != '\\' || !from[1]) {
			*to++ = *from++;
			continue;
		}
		high = from[1] == 'u' ? hex4(from + 2) : -1;
		low = high >= 0xd800 && high < 0xdc00 && from[6] == '\\' && from[7] == 'u' ? hex4(from + 8) : -1;
		if (low >= 0xdc00 && low < 0xe000) {
			unsigned code = 0x10000 + ((unsigned)(high - 0xd800) << 10) + (unsigned)(low - 0xdc00);

			snprintf(joined, sizeof joined, "\\U%08x", code);
			memcpy(to, joined, sizeof joined - 1);
			to += sizeof joined - 1;
			from += 12;
		} else {
			*to++ = *from++;
			*to++ = *from++;
		}
	}
	*to = '\0';
}

static int fail_found(const struct reading *r, const struct ydoc_node *n, const char *field, const char *expected)
{
	char found[80];

	ydoc_describe(n, found, sizeof found);
	return ydoc_fail(&r->doc, n, field, r->e, "found %s, expected %s", found, expected);
}

/* Finds a member of an object; *ret NULL: it is not there, or null. prefix and name make
 * the name of the field. */
static int find_member(const struct reading *r, const struct ydoc_node *object, const char *prefix, const char *name,
		       const struct ydoc_node **ret)
{
	char field[FIELD];

	*ret = NULL;
	for (const struct ydoc_node *key = object->child; key; key = key->next->next) {
		if (key->kind != YDOC_TEXT || strcmp(key->text, name) != 0)
			continue;
		snprintf(field, sizeof field, "%s%s", prefix, name);
		if (*ret)
			return ydoc_fail(&r->doc, key, field, r->e, "found a second time, expected once");
		*ret = key->next;
	}
	if (*ret && (*ret)->kind == YDOC_TEXT && (*ret)->nothing)
		*ret = NULL;
	return RS_OK;
}

/* Does the same with a member that must be an object. */
static int find_object(const struct reading *r, const char *name, const struct ydoc_node **ret)
{
	const struct ydoc_node *root = r->doc.root;
	int rc = find_member(r, root, "", name, ret);

	if (rc)
		return rc;
	if (!*ret)
		return ydoc_fail(&r->doc, root, name, r->e, "not found, expected an object");
	return (*ret)->kind == YDOC_MAPPING ? RS_OK : fail_found(r, *ret, name, "an object");
}

/* Reads a text, which need not be there (""). */
static int read_text(const struct reading *r, const struct ydoc_node *object, const char *prefix, const char *name,
		     const char **ret)
{
	const struct ydoc_node *n;
	char field[FIELD];
	int rc = find_member(r, object, prefix, name, &n);

	*ret = "";
	if (rc || !n)
		return rc;
	snprintf(field, sizeof field, "%s%s", prefix, name);
	if (n->kind != YDOC_TEXT)
		return fail_found(r, n, field, "a text");
	*ret = n->text;
	return RS_OK;
}

/* Finds a pool and counts its replicas; 0 if it is not there. */
static int find_pool(const struct reading *r, const struct ydoc_node *cluster, const char *name,
		     const struct ydoc_node **ret, unsigned *ret_n)
{
	char field[FIELD];
	int rc = find_member(r, cluster, "cluster.", name, ret);

	*ret_n = 0;
	if (rc || !*ret)
		return rc;
	snprintf(field, sizeof field, "cluster.%s", name);
	if ((*ret)->kind != YDOC_LIST)
		return fail_found(r, *ret, field, "a list of addresses");
	for (const struct ydoc_node *n = (*ret)->child; n; n = n->next, ++*ret_n) {
		snprintf(field, sizeof field, "cluster.%s[%u]", name, *ret_n);
		if (n->kind != YDOC_TEXT || !n->text[0])
			return fail_found(r, n, field, "an address");
	}
	return RS_OK;
}

/* Reads the address of a reducer. */
static int read_address(struct reading *r, const struct ydoc_node *n, unsigned i)
{
	const struct schema_key *key = schema_find("reducers", "address");
	struct rs_reducer reducer;
	char field[FIELD];

	snprintf(field, sizeof field, "cluster.%s[%u]", r->format->reducers, i);
	if (!value_parse(key, n->text, &reducer))
		return fail_found(r, n, field, "host, host:port or [IPv6]:port, with a port from 1 to 65535");
	memcpy(r->spec->address[i], reducer.address, sizeof reducer.address);
	for (unsigned k = 0; k < i; k++)
		if (strcmp(r->spec->address[k], reducer.address) == 0)
			return ydoc_fail(&r->doc, n, field, r->e,
					 "found %s, which cluster.%s[%u] is too, expected different ones",
					 reducer.address, r->format->reducers, k);
	return RS_OK;
}

static int read_reducers(struct reading *r, const struct ydoc_node *cluster)
{
	const struct ydoc_node *pool;
	char field[FIELD];
	unsigned n;
	int rc = find_pool(r, cluster, r->format->reducers, &pool, &n);

	if (rc || !n)
		return rc;
	snprintf(field, sizeof field, "cluster.%s", r->format->reducers);
	if (n > RS_REDUCERS_MAX)
		return ydoc_fail(&r->doc, pool, field, r->e, "found %u reducers, expected at most %d", n,
				 RS_REDUCERS_MAX);
	r->spec->address = calloc(n, sizeof *r->spec->address);
	if (!r->spec->address)
		return rs_oom(r->e, n * sizeof *r->spec->address, "%u reducers", n);
	r->spec->reducers = n;
	n = 0;
	for (const struct ydoc_node *item = pool->child; item && !rc; item = item->next)
		rc = read_address(r, item, n++);
	return rc;
}

/* Counts the workers, and finds the pool of this process. before: the replicas of its
 * role in pools before it; size: of its pool. */
static int read_pools(struct reading *r, const struct ydoc_node *cluster, unsigned *ret_before, unsigned *ret_size)
{
	struct cluster_spec *s = r->spec;
	const struct ydoc_node *pool;
	unsigned n;
	int rc;

	for (int i = 0; i < POOLS_OF_WORKERS && r->format->workers[i]; i++) {
		rc = find_pool(r, cluster, r->format->workers[i], &pool, &n);
		if (rc)
			return rc;
		if (n && !s->workers)
			r->first = pool->child;
		if (strcmp(s->type, r->format->workers[i]) == 0) {
			s->role = RS_CLUSTER_WORKER;
			*ret_before = s->workers;
			*ret_size = n;
		}
		s->workers += n;
	}
	if (!s->workers || s->workers > RS_WORLD_MAX)
		return ydoc_fail(
		    &r->doc, cluster, "cluster", r->e, "found %u workers in %s and %s, expected 1 to %d of them",
		    s->workers, r->format->workers[0], r->format->workers[r->format->workers[2] ? 2 : 1], RS_WORLD_MAX);

	rc = read_reducers(r, cluster);
	if (rc)
		return rc;
	if (strcmp(s->type, r->format->reducers) == 0) {
		s->role = RS_CLUSTER_REDUCER;
		*ret_before = 0;
		*ret_size = s->reducers;
	} else if (strcmp(s->type, r->format->evaluators) == 0) {
		s->role = RS_CLUSTER_EVALUATOR;
		*ret_before = 0;
		rc = find_pool(r, cluster, r->format->evaluators, &pool, ret_size);
	}
	return rc;
}

static int read_index(struct reading *r, const struct ydoc_node *task, unsigned before, unsigned size)
{
	const struct ydoc_node *n;
	char *end = NULL;
	unsigned long v;
	int rc = find_member(r, task, "task.", "index", &n);

	if (rc)
		return rc;
	if (!n)
		return ydoc_fail(&r->doc, task, "task.index", r->e, "not found, expected a whole number");
	v = n->kind == YDOC_TEXT && isdigit((unsigned char)n->text[0]) ? strtoul(n->text, &end, 10) : 0;
	if (!end || *end)
		return fail_found(r, n, "task.index", "a whole number");
	if (v >= size)
		return ydoc_fail(&r->doc, n, "task.index", r->e,
				 "found %.20s, expected less than %u, the length of cluster.%s", n->text, size,
				 r->spec->type);
	r->spec->index = before + (unsigned)v;
	return RS_OK;
}

/* Makes the run: the job's identifier, else the address of its first worker; and the
 * trial of a search. The identifier also tells the managed service from others that write
 * the same TF_CONFIG, such as Kubeflow. */
static int make_run(struct reading *r, const struct ydoc_node *task, const char *environment)
{
	const char *id = "", *trial;
	int rc = read_text(r, task, "task.", "trial", &trial);

	if (!rc && r->format->id)
		rc = read_text(r, task, "task.", r->format->id, &id);
	if (rc)
		return rc;
	r->spec->managed = strcmp(environment, "cloud") == 0 && (!r->format->id || id[0]);
	rs_run_make(r->spec->run, "cluster", id[0] ? id : r->first->text, trial[0] ? "." : "", trial);
	return RS_OK;
}

/* Kubeflow's jobs whose number of workers may change name no cluster. */
static int refuse_sparse(const struct reading *r)
{
	const struct ydoc_node *sparse;
	int rc = find_member(r, r->doc.root, "", "sparseCluster", &sparse);

	if (rc || !sparse)
		return rc;
	return ydoc_fail(&r->doc, sparse, "sparseCluster", r->e,
			 "found a job whose number of workers may change, which each process sees another part of; "
			 "expected cluster: set enableDynamicWorker to false in the TFJob, or name a configuration "
			 "file");
}

static int read_spec(struct reading *r)
{
	const struct ydoc_node *cluster, *task;
	const char *type, *environment;
	unsigned before = 0, size = 0;
	int rc = refuse_sparse(r);

	if (!rc)
		rc = find_object(r, "cluster", &cluster);
	if (!rc)
		rc = find_object(r, "task", &task);
	if (!rc)
		rc = read_text(r, task, "task.", "type", &type);
	if (!rc)
		rc = read_text(r, r->doc.root, "", "environment", &environment);
	if (rc)
		return rc;
	r->spec->role = RS_CLUSTER_EVALUATOR;
	r->spec->reducer_type = r->format->reducers;
	snprintf(r->spec->type, sizeof r->spec->type, "%s", type);
	rc = read_pools(r, cluster, &before, &size);
	/* Kubeflow leaves its evaluators out of the cluster */
	if (!rc && size == 0 && strcasecmp(type, r->format->evaluators) == 0)
		return RS_OK;
	if (!rc && size == 0)
		rc = ydoc_fail(&r->doc, task, "task.type", r->e,
			       "found \"%.40s\", expected the name of a pool in \"cluster\" that has replicas", type);
	if (!rc)
		rc = read_index(r, task, before, size);
	return rc ? rc : make_run(r, task, environment);
}

static int parse(struct reading *r, const char *text)
{
	char name[64], *copy = strdup(text);
	int rc;

	if (!copy)
		return rs_oom(r->e, 0, "%s", r->format->variable);
	join_surrogates(copy);
	snprintf(name, sizeof name, "environment variable %s", r->format->variable);
	rc = ydoc_parse(&r->doc, name, "JSON", copy, strlen(copy), r->e);
	free(copy);
	if (rc || (r->doc.root && r->doc.root->kind == YDOC_MAPPING))
		return rc;
	ydoc_close(&r->doc);
	return rs_fail(r->e, RS_ECONFIG, "%s: found \"%.40s\", expected a JSON object", name, text);
}

int cluster_spec_read(struct cluster_spec *ret, const char *variable, const char *text, struct rs_err *e)
{
	struct cluster_spec spec = {.workers = 0};
	struct reading r = {.format = &formats[strcmp(variable, formats[0].variable) != 0], .spec = &spec, .e = e};
	int rc = parse(&r, text);

	if (rc)
		return rc;
	rc = read_spec(&r);
	ydoc_close(&r.doc);
	if (rc)
		cluster_spec_close(&spec);
	else
		*ret = spec;
	return rc;
}

void cluster_spec_close(struct cluster_spec *s)
{
	free(s->address);
	s->address = NULL;
}
