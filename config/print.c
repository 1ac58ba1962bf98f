/* SPDX-License-Identifier: Apache-2.0 */
/* Output from the table of keys: the effective configuration and the reference. */
#include "common/credential.h"
#include "config/config.h"
#include "config/groups.h"
#include "config/network.h"
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

/* Writes text in quotes. Characters above ASCII are escaped too, since YAML takes some of
 * them for the end of a line.
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
	if (key->type == SCHEMA_ADDRESS && !key->zero && !text[0])
		return; /* of an empty slot */
	fprintf(out, "%s%s: ", indent, key->key);
	if (key->type == SCHEMA_NAME || key->type == SCHEMA_ADDRESS || key->type == SCHEMA_SERVICE ||
	    key->type == SCHEMA_HOST || key->type == SCHEMA_GLOB || key->type == SCHEMA_PATH)
		print_string(key->secret ? rs_credential_name(text) : text, out);
	else
		fputs(text, out);
	fputc('\n', out);
}

/* Which reducer has which shards, for print_owner. */
struct owners {
	const struct rs_config *cfg;
	const uint16_t *owner; /* [cfg->sharding.shards] */
	const char *indent;
};

static void print_owner_name(const struct rs_config *cfg, unsigned reducer, FILE *out)
{
	fputs("\": ", out);
	print_string(cfg->reducers[reducer].id, out);
	fputc('\n', out);
}

/* Writes the shards of one reducer as lines `"0-3,8": r0`, in several lines since YAML
 * accepts no key above 1 KiB. */
static void print_owner(const struct owners *o, unsigned reducer, FILE *out)
{
	enum { WIDTH = 72 };
	const uint16_t *owner = o->owner;
	unsigned shards = o->cfg->sharding.shards;
	int width = 0;

	for (unsigned s = 0, end; s < shards; s = end + 1) {
		end = s;
		if (owner[s] != reducer)
			continue;
		while (end + 1 < shards && owner[end + 1] == reducer)
			end++;
		width += width ? fprintf(out, ",%u", s) : fprintf(out, "%s\"%u", o->indent, s);
		if (end > s)
			width += fprintf(out, "-%u", end);
		if (width >= WIDTH) {
			print_owner_name(o->cfg, reducer, out);
			width = 0;
		}
	}
	if (width)
		print_owner_name(o->cfg, reducer, out);
}

/* Writes a map `KEY:` of shards and their reducers, without those that have none. */
static void print_owners(const struct owners *o, const char *key, FILE *out)
{
	fprintf(out, "%.*s%s:\n", (int)strlen(o->indent) - 2, o->indent, key);
	for (unsigned reducer = 0; reducer < o->cfg->reducers_n; reducer++)
		print_owner(o, reducer, out);
}

static void print_section(const struct rs_config *cfg, const struct schema_section *section, FILE *out)
{
	const struct owners owners = {.cfg = cfg, .owner = cfg->sharding.owner, .indent = "    "};

	fprintf(out, "%s:\n", section->name);
	for (unsigned i = 0; i < schema_keys_n; i++) {
		const struct schema_key *key = &schema_keys[i];

		if (strcmp(key->section, section->name) != 0)
			continue;
		if (key->type != SCHEMA_MAP) {
			print_key(key, cfg, "  ", out);
			continue;
		}
		print_owners(&owners, key->key, out);
	}
}

/* Writes the relays of a group as a list if one gives them, since maps may be long. */
static void print_relays(const struct rs_config *cfg, unsigned group, const char *key, FILE *out)
{
	const struct owners owners = {
	    .cfg = cfg, .owner = cfg->relays + (size_t)group * cfg->sharding.shards, .indent = "      "};
	uint16_t list[RS_REDUCERS_MAX];
	unsigned n = groups_relay_list(cfg, group, list), shard = 0;

	if (n) {
		fprintf(out, "    %s: [", key);
		for (unsigned i = 0; i < n; i++) {
			fputs(i ? ", " : "", out);
			print_string(cfg->reducers[list[i]].id, out);
		}
		fputs("]\n", out);
		return;
	}
	while (shard < cfg->sharding.shards && owners.owner[shard] == RS_NO_RELAY)
		shard++;
	if (shard < cfg->sharding.shards)
		print_owners(&owners, key, out);
}

/* Writes a key of a group that has no single field. One without a value is left out. */
static void print_group_key(const struct rs_config *cfg, unsigned index, const struct schema_key *key, FILE *out)
{
	const struct rs_group *group = &cfg->groups[index];
	char text[NETWORK_TEXT];

	if (key->type == SCHEMA_NODES && group->nodes) {
		fprintf(out, "    %s: ", key->key);
		print_quoted(group->nodes, out);
		fputc('\n', out);
	} else if (key->type == SCHEMA_NETWORKS && group->addresses_n) {
		fprintf(out, "    %s: [", key->key);
		for (unsigned i = 0; i < group->addresses_n; i++) {
			network_format(&group->addresses[i], text);
			fprintf(out, "%s\"%s\"", i ? ", " : "", text);
		}
		fputs("]\n", out);
	} else if (key->type == SCHEMA_RELAYS) {
		print_relays(cfg, index, key->key, out);
	}
}

static bool is_group_key(const struct schema_key *key)
{
	return key->type == SCHEMA_NODES || key->type == SCHEMA_NETWORKS || key->type == SCHEMA_RELAYS;
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
			if (is_group_key(&schema_keys[i]))
				print_group_key(cfg, item, &schema_keys[i], out);
			else
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
	print_list(cfg, schema_find_section("groups"), out);
}

static const char intro[] =
    "# Configuration\n"
    "\n"
    "`reduction-server`, `reduction-agent` and training programs read the same YAML file; each uses the parts it "
    "needs. Give all\n"
    "of them the same file. Every key has a default: without a file a reducer listens on 127.0.0.1:7600, and workers "
    "use that\n"
    "reducer, or those of `REDUCTION_REDUCERS=10.0.0.11,r1:7700`. `config/examples` has complete files.\n"
    "\n"
    "    reductionctl check FILE     # exit status 0 if the file is good; else prints everything that is wrong, and "
    "where\n"
    "    reductionctl print FILE     # all keys with their effective values\n"
    "    reductionctl map FILE       # which reducer and lane each shard belongs to\n"
    "    reductionctl plan [FILE]    # whether reducers help, and the shard map with the shortest time\n"
    "\n"
    "| value | form |\n"
    "|---|---|\n"
    "| size | bytes, or with a unit: `KiB`, `MiB`, `GiB` (powers of 1024), `kB`, `MB`, `GB`, `k`, `M`, `G` (powers of "
    "1000) |\n"
    "| duration | with a unit: `ms`, `s`, `min`, `h`; only `0` needs none |\n"
    "| rate | bits a second: `bit`, `kbit`, `mbit`, `gbit` (powers of 1000), or as `10Gbps` |\n"
    "| name | letters, digits, `.`, `_` and `-` |\n"
    "| address | `host:port` or `[IPv6]:port`; to listen on: port 0 is any free port, an empty one listens nowhere |\n"
    "\n"
    "`b` is bits and `B` is bytes; otherwise case does not matter. `1.5h` and `2.5gbit` are accepted. Anchors, tags, "
    "several\n"
    "documents in a file, and files above 256 KiB are refused.\n"
    "\n"
    "All ranks of a job must have the same `job.deterministic`, `job.checksum`, `job.failover`, `sharding` and groups "
    "with the\n"
    "same relays, and the same reducers with the same `id` and `lanes` in the same order; a rank that differs is "
    "refused when it\n"
    "joins. Addresses may differ.\n"
    "\n"
    "## Racks and zones\n"
    "\n"
    "If the links between racks or zones are slower than those inside, name the racks in `groups`. Each worker still "
    "connects to\n"
    "every reducer. But of an all-reduce of more than 64 KiB, a worker sends the chunks of a shard to the reducer that "
    "relays this\n"
    "shard for its group. The relay adds what the ranks of its group have sent, and sends one partial sum on to the "
    "shard's\n"
    "reducer. The result returns the same way. So the link of a rack carries each gradient once each way, and not once "
    "for each\n"
    "worker. A relay is a reducer as any other one: a reducer may relay for its rack and own shards at the same time. "
    "Shards\n"
    "without a relay, and shards of the relay itself, go straight to their reducer.\n"
    "[two-racks.yaml](examples/two-racks.yaml) has all of it.\n"
    "\n"
    "Give the same file to the reducers that relay: they connect to the reducers that it names. A relay that is lost "
    "is "
    "replaced\n"
    "by the others of its group, so `job.failover` must be `retain`. `sharding.rebalance` must not be `on`; "
    "with `log`\n"
    "rank 0 compares the reducers of its own group. To a shard's reducer a relay is one more worker: both have the "
    "job's secret,\n"
    "and with mutual TLS the relay's certificate needs an entry in `access`. A relay that "
    "cannot reach a\n"
    "reducer leaves the job after twice `timeouts.detect`. Reducers without `groups` in their file do not relay: then "
    "the job\n"
    "runs without relays.\n"
    "\n"
    "With `deterministic` the ranks of a group are summed in order, then the groups in order, and 16-bit sums\n"
    "of a group are rounded to their type, whoever adds. So the bits do not depend on which relays live.\n"
    "\n"
    "A rank is in the group\n"
    "\n"
    "1. whose name is in its variable `REDUCTION_GROUP`; else\n"
    "2. whose `nodes` has its host name, as a whole or up to the first dot; else\n"
    "3. whose `addresses` has an address of one of its interfaces; else\n"
    "4. whose name is that of a switch above it in Slurm, a part of `SLURM_TOPOLOGY_ADDR`; the nearest one that is a "
    "group.\n"
    "\n"
    "With an agent these are the variable, name and addresses of the agent. A rank that is in no group, or in several "
    "by the same\n"
    "rule, cannot open a communicator: the error names its host, its addresses and the groups. `reductionctl map FILE` "
    "prints\n"
    "which reducers relay for which group, and the group of the machine on which it runs.\n"
    "\n"
    "## Planning the shard map\n"
    "\n"
    "`reductionctl plan` predicts whether reducers help ([example](../deploy/README.md#plan)). Its options have the "
    "names of the\n"
    "keys below `plan`, and override them. Without a file each worker and each reducer has a machine of its own. With "
    "a file it\n"
    "finds the shard map with which the busiest link finishes soonest, and prints everything else as YAML comments; "
    "`--write`\n"
    "writes the whole file, `--json` prints everything for programs. Without\n"
    "`workers` or `bandwidth` it prints relative times.\n"
    "\n"
    "**Links.** Let n workers reduce S bytes, and let a machine have w workers and reducers that own the part x of "
    "all shards.\n"
    "That machine receives, and sends, (w + (n - 2w) x) S bytes. A reducer on a worker's machine (mixed mode) has the "
    "same `host`\n"
    "as the worker and shares its link. A ring receives, and sends, 2(n - 1) / n S. Processors are assumed to be fast "
    "enough,\n"
    "unless the verdict says otherwise.\n"
    "\n"
    "**Racks.** A rack's uplink carries what leaves the rack: with two racks n S / 2 each way without relays, wherever "
    "the\n"
    "reducers are; a ring puts 2(n - 1) / n S on each uplink. So `plan` also finds the best mixture with\n"
    "[relays](#racks-and-zones): which part of the shards each reducer owns, which part it relays for its rack, and "
    "which part\n"
    "goes straight home, if that saves 2 % or more. In R racks with m workers each, a part x of the shards puts on a\n"
    "link, each way:\n"
    "\n"
    "| part x of the shards | reducer's link | uplinks |\n"
    "|---|---|---|\n"
    "| its reducer, if all other racks relay | (m + R - 1) x S | (R - 1) x S on its rack's, x S on each other one |\n"
    "| its reducer, for each other rack that does not | (m - 1) x S more | (m - 1) x S more on both |\n"
    "| its reducer at the spine, if all racks relay | R x S | x S on each |\n"
    "| its relay in one rack | (m + 1) x S | |\n"
    "\n"
    "A worker's link carries S. With two racks of four workers and eight reducers this is 1.53, 1.40 and 1.75 times as "
    "fast "
    "as a\n"
    "ring if the uplinks have the rate of two, one and half a link. Relays need machines in the racks that only "
    "reduce, "
    "about m + 1\n"
    "in each for the least time. Without them a ring is faster. From uplinks with the rate of 2m(R - 1) / R links on "
    "relays "
    "are not\n"
    "needed. With three racks or more, `--spine N` places reducers where the racks are joined.\n"
    "\n"
    "Racks are the `groups` of the file, or else `plan.racks`: neighbouring workers are in one rack, and machines that "
    "only "
    "reduce\n"
    "are distributed in turn. `--write` writes the groups with their relays. Replace names of machines that are only "
    "placeholders.\n"
    "`--price-uplink` is the price of a GB that leaves a zone, and again of one that enters it.\n"
    "\n"
    "**What a reducer needs.** Cores: for each GiB that it receives 0.8 CPU seconds ([a "
    "lane](../bench/DECISIONS.md#lanes)) to 1.5\n"
    "([links of 1 Gbit/s](../bench/README.md#what-a-reducer-costs)). TLS adds 0.7, gRPC 1.4, both 2.4\n"
    "([measured](../bench/RECORDS.md#tls-and-grpc)). Memory: what it logs as `memory_bytes` when a job opens, window "
    "x priorities\n"
    "x 4 chunks for each lane (times n with `deterministic`), with `decoupled` the lane's part of it x priorities x 4, "
    "and "
    "about\n"
    "16 KiB for each worker and lane; twice as much with relays.\n"
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
