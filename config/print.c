/* SPDX-License-Identifier: Apache-2.0 */
/* Output from the table of keys: the effective configuration and the reference. */
#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

/* True for text that every YAML reader takes for this text without quotes. */
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

/* Writes text in quotes. Characters above ASCII are escaped too, since YAML takes some of them for the end of a line.
 */
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
	if (key->type == SCHEMA_NAME || key->type == SCHEMA_ADDRESS || key->type == SCHEMA_SERVICE ||
	    key->type == SCHEMA_HOST || key->type == SCHEMA_GLOB || key->type == SCHEMA_PATH)
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

/* Writes the shards of one reducer as lines `"0-3,8": r0`, in several lines since YAML accepts no key above 1 KiB. */
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
    "`reduction-server`, `reduction-agent` and programs that use the reducers directly read the same YAML file;\n"
    "each uses the parts it needs. Give all of them the same file. Every key has a default: without a file a\n"
    "reducer listens on 127.0.0.1:7600, and workers use that reducer.\n"
    "\n"
    "    reductionctl check FILE     # exit status 0 if the file is good; else prints everything that is wrong, and "
    "where\n"
    "    reductionctl print FILE     # all keys with their effective values\n"
    "    reductionctl map FILE       # which reducer and lane each shard belongs to\n"
    "    reductionctl plan [FILE]    # whether reducers help, and the shard map with the shortest time\n"
    "\n"
    "Complete files to start from are in `config/examples`.\n"
    "\n"
    "A size is bytes or has a unit: `KiB`, `MiB`, `GiB` (powers of 1024), `kB`, `MB`, `GB` or `k`, `M`, `G`\n"
    "(powers of 1000). A duration has a unit: `ms`, `s`, `min`, `h`; only `0` needs none. A rate is bits a second:\n"
    "`bit`, `kbit`, `mbit`, `gbit` (powers of 1000), or as `10Gbps`. `b` is bits and `B` is bytes. Otherwise case\n"
    "does not matter. `1.5h` and `2.5gbit` are accepted. A name has letters, digits, `.`, `_` and `-`. An address is\n"
    "`host:port` or `[IPv6]:port`. Anchors, tags, several documents in a file, and files above 256 KiB are refused.\n"
    "\n"
    "All ranks of a job must have the same `job.deterministic`, `job.checksum`, `job.failover` and `sharding`,\n"
    "and the same reducers with the same `id` and `lanes` in the same order; a rank that differs is refused when\n"
    "it joins.\n"
    "Addresses may differ, for machines that reach a reducer by different names.\n"
    "\n"
    "## Planning the shard map\n"
    "\n"
    "`reductionctl plan` predicts whether reducers help. Without a file it plans from its options, with a machine\n"
    "for each worker and each reducer:\n"
    "\n"
    "    reductionctl plan --workers 8 --reducers 16 --bandwidth 25gbit --bytes 1GB --step 300ms\n"
    "\n"
    "With a file it finds the fastest shard map: the one with which the busiest link finishes soonest. The\n"
    "options have the names of the keys below `plan`, and override them. `--reducers` has no key, since a file\n"
    "lists its reducers. If the number of workers or the bandwidth is unknown, it prints relative times.\n"
    "\n"
    "The output has a verdict, the times of a ring and of reducers, each link's load, the bottleneck, and what a\n"
    "reducer needs. With `step` it also has the times of a training step, and with prices the price of 1000\n"
    "steps. If the file lists its reducers, all this is printed as YAML comments, and then the `sharding` section\n"
    "to put into the file. `--write` writes the whole file, `--json` prints everything for programs.\n"
    "\n"
    "**Links.** Let n workers reduce S bytes, and let a machine have w workers and reducers that own the part x\n"
    "of all shards. That machine receives, and sends, (w + (n - 2w) x) S bytes: each worker sends every reducer\n"
    "its part of S and gets as much back, except what stays on the machine. A reducer on a worker's machine\n"
    "(mixed mode) has the same `host` as the worker and shares its link.\n"
    "\n"
    "Let T be the time that a link needs for S bytes. A ring takes 2(n - 1) / n T. If all links are equal, k\n"
    "machines only reduce, and each worker's machine has a reducer too, then an all-reduce takes at least\n"
    "2n(n - 1) / (n^2 + kn - 2k) T. The part of a machine that only reduces is then 2(n - 1) / (n - k) times that\n"
    "of a worker's reducer. As the bandwidth, give what one plain TCP connection reaches. Processors are assumed\n"
    "to be fast enough, unless the verdict says otherwise.\n"
    "\n"
    "**Racks.** A rack's uplink carries what leaves the rack, so the same formula holds with the workers and\n"
    "shards of all its machines. With two racks that is n S / 2 each way, wherever the reducers are; a ring puts\n"
    "2(n - 1) / n S on each uplink. Machines are spread evenly over the racks: neighbouring workers are in one\n"
    "rack, and machines that only reduce are distributed over the racks in turn. Other placements cannot be\n"
    "described.\n"
    "\n"
    "**What a reducer needs.** The number of cores is the GiB that it receives in a second of an all-reduce,\n"
    "times 0.8 CPU seconds (measured for [a lane](../bench/DECISIONS.md#lanes)) to 1.5 (measured on\n"
    "[links of 1 Gbit/s](../bench/README.md#what-a-reducer-costs)). TLS adds 0.7, gRPC 1.4, both 2.4\n"
    "([measured](../bench/RECORDS.md#tls-and-grpc)). The memory is what the reducer logs as `memory_bytes` when a\n"
    "job opens: window x priorities x 4 chunks for each lane (times n with `deterministic`), and about 16 KiB for\n"
    "each worker and lane.\n"
    "\n"
    "This page is written by `make docs` from the table in `config/schema.c`.\n";

/* Writes a cell of a table; a bar is escaped, since it would end the cell. */
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

		fprintf(out, "\n## %s\n\n%s.\n\n| key | takes | default | meaning |\n|---|---|---|---|\n",
			section->name, section->help);
		for (unsigned k = 0; k < schema_keys_n; k++) {
			const struct schema_key *key = &schema_keys[k];
			char expected[160];

			if (strcmp(key->section, section->name) != 0)
				continue;
			value_takes(key, expected, sizeof expected);
			fprintf(out, "| `%s` | ", key->key);
			print_cell(expected, out);
			fprintf(out, key->def && key->def[0] ? " | `%s` | " : " | %s | ",
				!key->def ? "required" : key->def);
			print_cell(key->help, out);
			fputs(" |\n", out);
		}
	}
}
