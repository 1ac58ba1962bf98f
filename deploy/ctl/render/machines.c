/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/render/render.h"

#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

#include <string.h>
#include <strings.h>

const char render_machines_date[] = "2025-06";

/* Highest egress bandwidth of a machine in its own network, without Tier_1 networking, in
 * Gbit/s, and the accelerators that are part of it. Of several network interfaces it is
 * that of the first, which connections use by themselves. Written down by hand from
 * Google's pages "Networking and GPU machines" (compute/docs/gpus/gpu-network-bandwidth),
 * "Accelerator-optimized machine family" and "General-purpose machine family";
 * deploy/vertex/README.md says what was compared again. */
static const struct machine {
	const char *type;
	unsigned gbit;
	const char *accelerator; /* NULL: none */
	unsigned count;
} machines[] = {{"n1-standard-4", 10, NULL, 0},
		{"n1-standard-8", 16, NULL, 0},
		{"n1-standard-16", 32, NULL, 0},
		{"n1-standard-32", 32, NULL, 0},
		{"n1-standard-64", 32, NULL, 0},
		{"n1-standard-96", 32, NULL, 0},
		{"n1-highcpu-8", 16, NULL, 0},
		{"n1-highcpu-16", 32, NULL, 0},
		{"n1-highcpu-32", 32, NULL, 0},
		{"n1-highcpu-64", 32, NULL, 0},
		{"n1-highcpu-96", 32, NULL, 0},
		{"n1-highmem-4", 10, NULL, 0},
		{"n1-highmem-8", 16, NULL, 0},
		{"n1-highmem-16", 32, NULL, 0},
		{"n1-highmem-32", 32, NULL, 0},
		{"n1-highmem-64", 32, NULL, 0},
		{"n1-highmem-96", 32, NULL, 0},
		{"n2-standard-8", 16, NULL, 0},
		{"n2-standard-16", 32, NULL, 0},
		{"n2-standard-32", 32, NULL, 0},
		{"n2-highcpu-8", 16, NULL, 0},
		{"n2-highcpu-16", 32, NULL, 0},
		{"n2-highcpu-32", 32, NULL, 0},
		{"n2d-standard-8", 16, NULL, 0},
		{"n2d-standard-16", 32, NULL, 0},
		{"n2d-standard-32", 32, NULL, 0},
		{"n2d-highcpu-8", 16, NULL, 0},
		{"n2d-highcpu-16", 32, NULL, 0},
		{"n2d-highcpu-32", 32, NULL, 0},
		{"c2-standard-8", 16, NULL, 0},
		{"c2-standard-16", 32, NULL, 0},
		{"c2-standard-30", 32, NULL, 0},
		{"c2-standard-60", 32, NULL, 0},
		{"c3-standard-4", 23, NULL, 0},
		{"c3-standard-8", 23, NULL, 0},
		{"c3-standard-22", 23, NULL, 0},
		{"c3-standard-44", 32, NULL, 0},
		{"c3-standard-88", 62, NULL, 0},
		{"c3-standard-176", 100, NULL, 0},
		{"c3-highcpu-4", 23, NULL, 0},
		{"c3-highcpu-8", 23, NULL, 0},
		{"c3-highcpu-22", 23, NULL, 0},
		{"c3-highcpu-44", 32, NULL, 0},
		{"c3-highcpu-88", 62, NULL, 0},
		{"c3-highcpu-176", 100, NULL, 0},
		{"c4-standard-8", 23, NULL, 0},
		{"c4-standard-16", 23, NULL, 0},
		{"c4-standard-32", 23, NULL, 0},
		{"c4-standard-48", 34, NULL, 0},
		{"c4-standard-96", 67, NULL, 0},
		{"c4-standard-192", 100, NULL, 0},
		{"c4-highcpu-8", 23, NULL, 0},
		{"c4-highcpu-16", 23, NULL, 0},
		{"c4-highcpu-32", 23, NULL, 0},
		{"c4-highcpu-48", 34, NULL, 0},
		{"c4-highcpu-96", 67, NULL, 0},
		{"c4-highcpu-192", 100, NULL, 0},
		{"e2-standard-8", 16, NULL, 0},
		{"e2-standard-16", 16, NULL, 0},
		{"e2-highcpu-8", 16, NULL, 0},
		{"e2-highcpu-16", 16, NULL, 0},
		{"e2-highcpu-32", 16, NULL, 0},
		{"a2-highgpu-1g", 24, "NVIDIA_TESLA_A100", 1},
		{"a2-highgpu-2g", 32, "NVIDIA_TESLA_A100", 2},
		{"a2-highgpu-4g", 50, "NVIDIA_TESLA_A100", 4},
		{"a2-highgpu-8g", 100, "NVIDIA_TESLA_A100", 8},
		{"a2-megagpu-16g", 100, "NVIDIA_TESLA_A100", 16},
		{"a2-ultragpu-1g", 24, "NVIDIA_A100_80GB", 1},
		{"a2-ultragpu-2g", 32, "NVIDIA_A100_80GB", 2},
		{"a2-ultragpu-4g", 50, "NVIDIA_A100_80GB", 4},
		{"a2-ultragpu-8g", 100, "NVIDIA_A100_80GB", 8},
		{"a3-highgpu-1g", 25, "NVIDIA_H100_80GB", 1},
		{"a3-highgpu-2g", 50, "NVIDIA_H100_80GB", 2},
		{"a3-highgpu-4g", 100, "NVIDIA_H100_80GB", 4},
		{"a3-highgpu-8g", 200, "NVIDIA_H100_80GB", 8},
		{"a3-megagpu-8g", 200, "NVIDIA_H100_MEGA_80GB", 8},
		{"a3-ultragpu-8g", 200, "NVIDIA_H200_141GB", 8},
		{"a4-highgpu-8g", 200, "NVIDIA_B200", 8},
		{"g2-standard-4", 10, "NVIDIA_L4", 1},
		{"g2-standard-8", 16, "NVIDIA_L4", 1},
		{"g2-standard-12", 16, "NVIDIA_L4", 1},
		{"g2-standard-16", 32, "NVIDIA_L4", 1},
		{"g2-standard-24", 32, "NVIDIA_L4", 2},
		{"g2-standard-32", 32, "NVIDIA_L4", 1},
		{"g2-standard-48", 50, "NVIDIA_L4", 4},
		{"g2-standard-96", 100, "NVIDIA_L4", 8}};

/* Accelerators that N1 machines may have. */
static const struct extra {
	const char *accelerator;
	unsigned counts; /* bit n: n of them are possible */
} extras[] = {{"NVIDIA_TESLA_K80", 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8},
	      {"NVIDIA_TESLA_P4", 1 << 1 | 1 << 2 | 1 << 4},
	      {"NVIDIA_TESLA_P100", 1 << 1 | 1 << 2 | 1 << 4},
	      {"NVIDIA_TESLA_T4", 1 << 1 | 1 << 2 | 1 << 4},
	      {"NVIDIA_TESLA_V100", 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8}};

/* The other accelerators of the API. */
static const char *const others[] = {"NVIDIA_GB200", "NVIDIA_RTX_PRO_6000", "TPU_V2",
				     "TPU_V3",       "TPU_V4_POD",          "TPU_V5_LITEPOD"};

enum { MACHINES = sizeof machines / sizeof machines[0] };
enum { EXTRAS = sizeof extras / sizeof extras[0] };
enum { OTHERS = sizeof others / sizeof others[0] };

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
	for (size_t i = 0; i < MACHINES; i++)
		if (strcmp(machines[i].type, type) == 0)
			return machines[i].gbit * UINT64_C(1000000000);
	return 0;
}

/* Returns accelerator i of all that the API has; NULL: there are no more. */
static const char *accelerator(size_t i)
{
	if (i < EXTRAS)
		return extras[i].accelerator;
	i -= EXTRAS;
	if (i < OTHERS)
		return others[i];
	i -= OTHERS;
	return i < MACHINES ? machines[i].accelerator ? machines[i].accelerator : extras[0].accelerator : NULL;
}

/* Returns whether the last words of two names are the same: "nvidia-a100" and
 * "NVIDIA_TESLA_A100". */
static bool ends_alike(const char *found, const char *known)
{
	const char *word = strrchr(found, '_'), *dash = strrchr(found, '-'), *last = strrchr(known, '_');

	if (!word || (dash && dash > word))
		word = dash;
	return strcasecmp(word ? word + 1 : found, last ? last + 1 : known) == 0;
}

/* Returns the accelerator that a wrong name probably means; NULL: none. That of the
 * machine comes first. */
static const char *meant(const char *found, const struct machine *m)
{
	const char *known;

	if (m && m->accelerator && ends_alike(found, m->accelerator))
		return m->accelerator;
	for (size_t i = 0; (known = accelerator(i)); i++)
		if (ends_alike(found, known))
			return known;
	return NULL;
}

static const struct machine *find_machine(const char *type)
{
	for (size_t i = 0; i < MACHINES; i++)
		if (strcmp(machines[i].type, type) == 0)
			return &machines[i];
	return NULL;
}

static bool is_accelerator(const char *name)
{
	const char *known;

	for (size_t i = 0; (known = accelerator(i)); i++)
		if (strcmp(known, name) == 0)
			return true;
	return false;
}

/* Writes which accelerators a machine of N1, or one without any, may have. */
static void say_none(const char *type, bool n1, const char *found, char *buf, size_t size)
{
	const char *with = NULL;

	for (size_t i = 0; i < MACHINES && !with; i++)
		if (machines[i].accelerator && strcmp(machines[i].accelerator, found) == 0)
			with = machines[i].type;
	snprintf(buf, size, "%s%.40s%s%s",
		 n1 ? "a K80, P4, P100, T4 or V100, which N1 machines such as " : "none, since ", type,
		 n1 ? " may have" : " has none", with ? "; machines that have it are called such as " : "");
	if (with)
		snprintf(buf + strlen(buf), size - strlen(buf), "%s", with);
}

/* Checks how many accelerators an N1 machine has. */
static enum render_fit check_extra(const char *type, const char *found, unsigned count, char *buf, size_t size)
{
	for (size_t i = 0; i < EXTRAS; i++) {
		if (strcmp(extras[i].accelerator, found) != 0)
			continue;
		if (!count || (count < 32 && extras[i].counts >> count & 1))
			return RENDER_FITS;
		snprintf(buf, size, "1, 2%s 4%s", extras[i].counts >> 8 & 1 ? "," : " or",
			 extras[i].counts >> 8 & 1 ? " or 8" : "");
		return RENDER_WRONG_COUNT;
	}
	say_none(type, true, found, buf, size);
	return RENDER_WRONG;
}

enum render_fit render_machine_fit(const char *type, const char *found, unsigned count, char *buf, size_t size)
{
	const struct machine *m = find_machine(type);
	bool n1 = strncmp(type, "n1-", 3) == 0;
	const char *known;

	if (!found)
		return m || n1 ? RENDER_FITS : RENDER_UNKNOWN;
	if (!is_accelerator(found)) {
		known = meant(found, m);
		if (!known)
			return RENDER_UNKNOWN;
		snprintf(buf, size, "%s", known);
		return RENDER_WRONG;
	}
	if (n1)
		return check_extra(type, found, count, buf, size);
	if (!m)
		return RENDER_UNKNOWN;
	if (!m->accelerator) {
		say_none(type, false, found, buf, size);
		return RENDER_WRONG;
	}
	if (strcmp(m->accelerator, found) != 0) {
		snprintf(buf, size, "%s, which is part of %s", m->accelerator, m->type);
		return RENDER_WRONG;
	}
	if (!count || count == m->count)
		return RENDER_FITS;
	snprintf(buf, size, "%u, as many as %s has", m->count, m->type);
	return RENDER_WRONG_COUNT;
}
