/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/render/render.h"

#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

#include <string.h>

const char render_machines_date[] = "2025-06";

/* Highest egress bandwidth of a machine in its own network, without Tier_1 networking, in
 * Gbit/s. Written down by hand from Google's pages "Networking and GPU machines"
 * (compute/docs/gpus/gpu-network-bandwidth), "Accelerator-optimized machine family" and
 * "General-purpose machine family"; deploy/vertex/README.md says what was compared
 * again. */
static const struct {
	const char *type;
	unsigned gbit;
} machines[] = {{"n1-standard-4", 10},  {"n1-standard-8", 16},  {"n1-standard-16", 32}, {"n1-standard-32", 32},
		{"n1-standard-64", 32}, {"n1-standard-96", 32}, {"n1-highcpu-8", 16},   {"n1-highcpu-16", 32},
		{"n1-highcpu-32", 32},  {"n1-highmem-8", 16},   {"n1-highmem-16", 32},  {"n1-highmem-32", 32},
		{"n2-standard-8", 16},  {"n2-standard-16", 32}, {"n2-standard-32", 32}, {"n2-highcpu-8", 16},
		{"n2-highcpu-16", 32},  {"n2-highcpu-32", 32},  {"c2-standard-8", 16},  {"c2-standard-16", 32},
		{"c2-standard-30", 32}, {"c2-standard-60", 32}, {"e2-standard-8", 16},  {"e2-standard-16", 16},
		{"e2-highcpu-8", 16},   {"e2-highcpu-16", 16},  {"e2-highcpu-32", 16},  {"a2-highgpu-1g", 24},
		{"a2-highgpu-2g", 32},  {"a2-highgpu-4g", 50},  {"a2-highgpu-8g", 100}, {"a2-megagpu-16g", 100},
		{"a2-ultragpu-1g", 24}, {"a2-ultragpu-2g", 32}, {"a2-ultragpu-4g", 50}, {"a2-ultragpu-8g", 100},
		{"g2-standard-8", 16},  {"g2-standard-16", 32}, {"g2-standard-32", 32}, {"g2-standard-48", 50},
		{"g2-standard-96", 100}};

/* Returns the rate that a node is; 0: it is none. */
static uint64_t rate_of(const struct ydoc_node *n)
{
	struct rs_reducer reducer = {.bandwidth = 0};

	if (n->kind != YDOC_TEXT || !value_parse(schema_find("reducers", "bandwidth"), n->text, &reducer))
		return 0;
	return reducer.bandwidth;
}

static int check_table(const struct ydoc *doc, const struct ydoc_node **ret, struct rs_err *e)
{
	const struct ydoc_node *root = doc->root, *table = root ? tree_get(root, "machines") : NULL;
	char found[80], field[80];

	if (!root || root->kind != YDOC_MAPPING || !table || table->kind != YDOC_MAPPING)
		return rs_fail(e, RS_ECONFIG,
			       "%s: found no table, expected one such as machines: {n1-highcpu-16: 32gbit}", doc->name);
	for (const struct ydoc_node *key = root->child; key; key = key->next->next)
		if (key->next != table)
			return ydoc_fail(doc, key, key->kind == YDOC_TEXT ? key->text : NULL, e,
					 "found a key, expected machines alone");
	for (const struct ydoc_node *key = table->child; key; key = key->next->next) {
		ydoc_describe(key->next, found, sizeof found);
		snprintf(field, sizeof field, "machines.%.60s", key->kind == YDOC_TEXT ? key->text : "");
		if (key->kind != YDOC_TEXT || !key->text[0])
			return ydoc_fail(doc, key, "machines", e, "expected the name of a machine type");
		if (!rate_of(key->next))
			return ydoc_fail(doc, key->next, field, e, "found %s, expected a bandwidth such as 32gbit",
					 found);
		if (tree_get(table, key->text) != key->next)
			return ydoc_fail(doc, key, field, e, "found a second time, expected once");
	}
	*ret = table;
	return RS_OK;
}

int render_machines_read(struct render_machines *ret, const char *name, const void *text, size_t len, struct rs_err *e)
{
	struct render_machines m;
	int rc = ydoc_parse(&m.doc, name, "YAML", text, len, e);

	if (rc)
		return rc;
	rc = check_table(&m.doc, &m.table, e);
	if (rc)
		ydoc_close(&m.doc);
	else
		*ret = m;
	return rc;
}

void render_machines_close(struct render_machines *m)
{
	ydoc_close(&m->doc);
}

uint64_t render_machine_rate(const struct render_machines *m, const char *type)
{
	const struct ydoc_node *own = m ? tree_get(m->table, type) : NULL;

	if (own)
		return rate_of(own);
	for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
		if (strcmp(machines[i].type, type) == 0)
			return machines[i].gbit * UINT64_C(1000000000);
	return 0;
}
