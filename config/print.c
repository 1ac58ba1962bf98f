/* SPDX-License-Identifier: Apache-2.0 */
/* What is written out from the table of keys: the effective configuration and the reference. */
#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* Text that every YAML reader takes for this same text without quotes. */
static bool is_plain(const char *text)
{
	static const char *const other[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", NULL};
	size_t n = strlen(text);

	if (strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:-") != n)
		return false;
	if (n == 0 || strchr("0123456789._:-", text[0]) || text[n - 1] == ':')
		return false;
	for (unsigned i = 0; other[i]; i++)
		if (strcasecmp(text, other[i]) == 0)
			return false;
	return true;
}

/* Characters above ASCII are escaped too: YAML takes some of them for the end of a line. */
static void print_quoted(const char *text, FILE *out)
{
	fputc('"', out);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		uint32_t code = *c;

		if (*c < 0x80) {
			fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
			continue;
		}
		/* the text came through libyaml, so it is well-formed UTF-8 */
		code &= *c >= 0xf0 ? 0x07 : *c >= 0xe0 ? 0x0f : 0x1f;
		while ((c[1] & 0xc0) == 0x80)
			code = code << 6 | (*++c & 0x3f);
		fprintf(out, "\\U%08" PRIx32, code);
	}
	fputc('"', out);
}

static void print_string(const char *text, FILE *out)
{
	if (is_plain(text))
		fputs(text, out);
	else
		print_quoted(text, out);
}

static void print_key(const struct schema_key *key, const void *base, const char *indent, FILE *out)
{
	char text[VALUE_TEXT_MAX];

	value_format(key, base, text, sizeof text);
	fprintf(out, "%s%s: ", indent, key->key);
	if (key->type == SCHEMA_NAME || key->type == SCHEMA_ADDRESS || key->type == SCHEMA_HOST ||
	    key->type == SCHEMA_GLOB || key->type == SCHEMA_PATH)
		print_string(text, out);
	else
		fputs(text, out);
	fputc('\n', out);
}

static void print_owner_name(const struct rs_config *cfg, unsigned reducer, FILE *out)
{
	fputs("\": ", out);
	print_string(cfg->reducers[reducer].id, out);
	fputc('\n', out);
}

/* The shards of one reducer as lines `"0-3,8": r0`, broken since YAML takes no key above 1 KiB. */
static void print_owner(const struct rs_config *cfg, unsigned reducer, FILE *out)
{
	enum { WIDTH = 72 };
	const uint16_t *owner = cfg->sharding.owner;
	unsigned shards = cfg->sharding.shards;
	int width = 0;

	for (unsigned s = 0, end; s < shards; s = end + 1) {
		end = s;
		if (owner[s] != reducer)
			continue;
		while (end + 1 < shards && owner[end + 1] == reducer)
			end++;
		width += fprintf(out, "%s%u", width ? "," : "    \"", s);
		if (end > s)
			width += fprintf(out, "-%u", end);
		if (width >= WIDTH) {
			print_owner_name(cfg, reducer, out);
			width = 0;
		}
	}
	if (width)
		print_owner_name(cfg, reducer, out);
}

static void print_section(const struct rs_config *cfg, const struct schema_section *section, FILE *out)
{
	fprintf(out, "%s:\n", section->name);
	for (unsigned i = 0; i < schema_keys_n; i++) {
		const struct schema_key *key = &schema_keys[i];

		if (strcmp(key->section, section->name) != 0)
			continue;
		if (key->type != SCHEMA_MAP) {
			print_key(key, cfg, "  ", out);
			continue;
		}
		fprintf(out, "  %s:\n", key->key);
		for (unsigned reducer = 0; reducer < cfg->reducers_n; reducer++)
			print_owner(cfg, reducer, out);
	}
}

/* An empty list is left out, as it is in the file. */
static void print_list(const struct rs_config *cfg, const struct schema_section *section, FILE *out)
{
	const char *items;
	unsigned n;

	memcpy(&items, (const char *)cfg + section->items, sizeof items);
	memcpy(&n, (const char *)cfg + section->count, sizeof n);
	if (n)
		fprintf(out, "%s:\n", section->name);
	for (unsigned item = 0; item < n; item++) {
		const char *indent = "  - ";

		for (unsigned i = 0; i < schema_keys_n; i++) {
			if (strcmp(schema_keys[i].section, section->name) != 0)
				continue;
			print_key(&schema_keys[i], items + (size_t)item * section->item_size, indent, out);
			indent = "    ";
		}
	}
}

void rs_config_print(const struct rs_config *cfg, FILE *out)
{
	for (unsigned i = 0; i < schema_sections_n; i++) {
		if (schema_sections[i].item_size)
			print_list(cfg, &schema_sections[i], out);
		else
			print_section(cfg, &schema_sections[i], out);
	}
}

void rs_config_print_sharding(const struct rs_config *cfg, FILE *out)
{
	print_section(cfg, schema_find_section("sharding"), out);
}

static const char intro[] =
    "# Configuration\n"
    "\n"
    "`reduction-server`, `reduction-agent` and programs that use the reducers directly read the same YAML file,\n"
    "each the parts it needs; give all of them the same file. Every key has a default: without a file a reducer\n"
    "listens on 127.0.0.1:7600, and workers use that one reducer.\n"
    "\n"
    "    reductionctl check FILE     # 0 when the file is good; else says where it is wrong, and what was expected\n"
    "    reductionctl print FILE     # all keys with the values that are in effect\n"
    "    reductionctl map FILE       # which reducer and lane each shard belongs to\n"
    "    reductionctl plan FILE      # whether reducers help, and the shard map that makes the most of the links\n"
    "\n"
    "Complete files to start from are in `config/examples`.\n"
    "\n"
    "Sizes are bytes or carry a unit: `KiB`, `MiB`, `GiB` (powers of 1024), `k`, `M`, `G` (powers of 1000).\n"
    "Durations carry a unit: `ms`, `s`, `min`; only `0` may stand alone. Rates are bits a second: `bit`, `kbit`,\n"
    "`mbit`, `gbit`, powers of 1000. Of YAML, mappings, lists and texts are used; anchors, tags and several documents "
    "in a\n"
    "file are refused, and so is a file above 256 KiB.\n"
    "\n"
    "All ranks of a job must have the same `job.deterministic`, `job.checksum`, `sharding`, and the same\n"
    "reducers with the same `id` and `lanes` in the same order; a rank that differs is refused when it joins.\n"
    "Addresses may differ, for machines that see a reducer under different names.\n"
    "\n"
    "## Planning the shard map\n"
    "\n"
    "`reductionctl plan FILE` takes the bandwidths of all machines and finds the shard map with which the busiest "
    "link\n"
    "is done soonest. With n workers and S bytes, a machine with w workers whose reducers have the part x of all "
    "shards\n"
    "receives, and sends, (w + (n - 2w) x) S bytes: each worker sends every reducer its part of S and gets as much "
    "back,\n"
    "but for what stays on the machine. A reducer on a worker's machine (mixed mode) names the same `host` as the "
    "worker\n"
    "and shares its link. Where all links are equal the best parts are known: with k machines that only reduce, and a\n"
    "reducer on each worker's machine, they are as 2(n - 1) to n - k, and an all-reduce takes 2n(n - 1) / (n^2 + kn - "
    "2k)\n"
    "times what a link needs for S. Where links differ a linear program is solved, for which the library Clp must "
    "have\n"
    "been there when reductionctl was built.\n"
    "\n"
    "What it prints is YAML: comments with the times of this map, of a ring of the workers, and of the lower bound, "
    "with\n"
    "each link's load and a verdict whether reducers help; then the `sharding` section to put into the file. "
    "`--write`\n"
    "writes the whole file, `--json` all of it for programs. Times are of links alone: machines are taken to be fast\n"
    "enough, and what one plain TCP flow reaches is the rate to give.\n"
    "\n"
    "This page is written by `make docs` from the table in `config/schema.c`.\n";

/* A cell of a table, where a bar would end it. */
static void print_cell(const char *text, FILE *out)
{
	for (; *text; text++) {
		if (*text == '|')
			fputc('\\', out);
		fputc(*text, out);
	}
}

void rs_config_reference(FILE *out)
{
	fputs(intro, out);
	for (unsigned i = 0; i < schema_sections_n; i++) {
		const struct schema_section *section = &schema_sections[i];

		fprintf(out, "\n## %s\n\n%s.\n\n| key | takes | default | what it is for |\n|---|---|---|---|\n",
			section->name, section->help);
		for (unsigned k = 0; k < schema_keys_n; k++) {
			const struct schema_key *key = &schema_keys[k];
			char expected[160];

			if (strcmp(key->section, section->name) != 0)
				continue;
			value_expected(key, expected, sizeof expected);
			fprintf(out, "| `%s` | ", key->key);
			print_cell(expected, out);
			fprintf(out, key->def && key->def[0] ? " | `%s` | " : " | %s | ",
				!key->def ? "required" : key->def);
			print_cell(key->help, out);
			fputs(" |\n", out);
		}
	}
}
