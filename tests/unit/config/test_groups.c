/* SPDX-License-Identifier: Apache-2.0 */
/* The section `groups`: which reducer relays which shards, and files that are refused. */
#include "config/groups.h"

#include "config/network.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])
/* Four reducers with two shards each: shard s belongs to reducer s % 4. */
#define R4                                                                                                             \
	"reducers: [{id: a0, address: w}, {id: a1, address: x}, {id: b0, address: y}, {id: b1, address: z}]\n"         \
	"sharding: {shards: 8}\n"

static void parse(struct rs_config *cfg, const char *text)
{
	struct rs_err e = {0};

	ck_assert_msg(rs_config_parse(cfg, "f", text, strlen(text), &e) == RS_OK, "%s", e.msg);
}

/* Returns the printed form; free() it. */
static char *print(const struct rs_config *cfg)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(out);
	rs_config_print(cfg, out);
	fclose(out);
	return text;
}

/* Checks the relays of a group: one letter or digit for each shard, the index of the
 * relay or '-'. */
static void check_relays(const struct rs_config *cfg, unsigned group, const char *expected)
{
	char found[RS_SHARDS_MAX + 1];
	unsigned s = 0;

	for (; s < cfg->sharding.shards; s++) {
		unsigned relay = cfg->relays[group * cfg->sharding.shards + s];

		found[s] = relay == RS_NO_RELAY ? '-' : (char)('0' + relay);
	}
	found[s] = '\0';
	ck_assert_str_eq(found, expected);
}

/* The relays of two groups, how they are printed, and the relays. */
static const struct {
	const char *first, *second, *printed, *relays[2];
} good[] = {
    /* shards of a relay go straight home, the others are dealt in turn */
    {"[a0, a1]", "[b0, b1]", "relays: [a0, a1]\n", {"--01--01", "23--23--"}},
    {"[a1, a0]", "[b0]", "relays: [a1, a0]\n", {"--10--10", "22-222-2"}},
    {"[a0]", "{}", "relays: [a0]\n", {"-000-000", "--------"}},
    {"[a0, a1, b0, b1]", "{}", "name: one\n  - name", {"--------", "--------"}},
    /* shards that are left out, and those of the relay itself, have none */
    {"{0-3: a0, \"4,6-7\": a1}", "{1: b0}", "\"1-3\": a0\n      \"4,6-7\": a1\n", {"-0001-11", "-2------"}},
    {"{2: a0}", "{0: b0}", "\"2\": a0\n", {"--0-----", "2-------"}},
    /* a map that is as a list */
    {"{\"2,6\": a0, \"3,7\": a1}", "{0: b0}", "relays: [a0, a1]\n", {"--01--01", "2-------"}},
};

START_TEST(relays_are_read)
{
	char text[512], *first, *second;
	struct exchange_params params;
	struct rs_config cfg, again;

	snprintf(text, sizeof text, R4 "groups: [{name: one, relays: %s}, {name: two, relays: %s}]\n", good[_i].first,
		 good[_i].second);
	parse(&cfg, text);
	ck_assert_uint_eq(cfg.groups_n, 2);
	check_relays(&cfg, 0, good[_i].relays[0]);
	check_relays(&cfg, 1, good[_i].relays[1]);
	params = rs_config_exchange(&cfg);
	ck_assert_uint_eq(params.groups_n, 2);
	ck_assert_uint_eq(params.group, 0);
	ck_assert_ptr_eq(params.relays, cfg.relays);

	first = print(&cfg);
	ck_assert_msg(strstr(first, good[_i].printed), "%s", first);
	parse(&again, first);
	check_relays(&again, 0, good[_i].relays[0]);
	check_relays(&again, 1, good[_i].relays[1]);
	second = print(&again);
	ck_assert_str_eq(first, second);
	ck_assert_uint_eq(rs_config_digest(&cfg), rs_config_digest(&again));
	rs_config_close(&cfg);
	rs_config_close(&again);
	free(first);
	free(second);
}
END_TEST

START_TEST(all_keys_are_read)
{
	char text[NETWORK_TEXT], *printed;
	struct rs_config cfg;

	parse(&cfg,
	      "reducers: [{id: a0, address: w}, {id: b0, address: y}]\n"
	      "groups:\n"
	      "  - {relays: [a0], nodes: \"gpu-a[0-3,7],x\", name: rack-a, addresses: [10.1.0.0/16, fd00:1::/32]}\n"
	      "  - {name: rack.b_1, addresses: [10.2.3.4]}\n");
	ck_assert_str_eq(cfg.groups[0].name, "rack-a");
	ck_assert_str_eq(cfg.groups[0].nodes, "gpu-a[0-3,7],x");
	ck_assert_uint_eq(cfg.groups[0].addresses_n, 2);
	network_format(&cfg.groups[0].addresses[1], text);
	ck_assert_str_eq(text, "fd00:1::/32");
	ck_assert_str_eq(cfg.groups[1].name, "rack.b_1");
	ck_assert_ptr_null(cfg.groups[1].nodes);
	network_format(&cfg.groups[1].addresses[0], text);
	ck_assert_str_eq(text, "10.2.3.4/32");
	printed = print(&cfg);
	ck_assert_ptr_nonnull(strstr(printed, "groups:\n"
					      "  - name: rack-a\n"
					      "    nodes: \"gpu-a[0-3,7],x\"\n"
					      "    addresses: [\"10.1.0.0/16\", \"fd00:1::/32\"]\n"
					      "    relays: [a0]\n"
					      "  - name: rack.b_1\n"
					      "    addresses: [\"10.2.3.4/32\"]\n"));
	free(printed);
	rs_config_close(&cfg);
}
END_TEST

/* As many relays as there can be, printed, are no larger than a file may be. */
START_TEST(the_largest_groups_are_printed)
{
	static char text[YDOC_BYTES_MAX];
	size_t len = (size_t)sprintf(text, "sharding: {shards: 4096}\nreducers:\n");
	struct rs_config cfg, again;
	char *printed;

	for (unsigned i = 0; i < RS_REDUCERS_MAX; i++)
		len += (size_t)sprintf(text + len, "- {id: r%u, address: h%u}\n", i, i);
	len += (size_t)sprintf(text + len, "groups:\n");
	for (unsigned i = 0; i < RS_GROUPS_MAX; i++)
		len += (size_t)sprintf(text + len, "- {name: g%u, relays: [r%u, r%u, r%u, r%u]}\n", i, 4 * i, 4 * i + 1,
				       4 * i + 2, 4 * i + 3);
	parse(&cfg, text);
	printed = print(&cfg);
	parse(&again, printed);
	ck_assert_mem_eq(cfg.relays, again.relays, sizeof(uint16_t) * RS_GROUPS_MAX * RS_SHARDS_MAX);
	free(printed);
	rs_config_close(&cfg);
	rs_config_close(&again);
}
END_TEST

/* With another shard map each group keeps its relays. */
START_TEST(relays_follow_another_map)
{
	uint16_t *owner = calloc(4, sizeof *owner);
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_ptr_nonnull(owner);
	owner[1] = 3;
	parse(&cfg, R4 "groups: [{name: one, relays: [a0, a1]}, {name: two, relays: {0: b1}}, {name: three}]\n");
	ck_assert_int_eq(groups_set_map(&cfg, owner, 4, &e), RS_OK);
	ck_assert_uint_eq(cfg.sharding.shards, 4);
	check_relays(&cfg, 0, "-0--");
	check_relays(&cfg, 1, "3-33");
	check_relays(&cfg, 2, "----");
	rs_config_close(&cfg);

	owner = calloc(4, sizeof *owner);
	ck_assert_ptr_nonnull(owner);
	parse(&cfg, R4);
	ck_assert_int_eq(groups_set_map(&cfg, owner, 4, &e), RS_OK);
	ck_assert_ptr_null(cfg.relays);
	rs_config_close(&cfg);
}
END_TEST

#define G4 R4 "groups:\n"

/* Refused files and their errors. */
static const struct {
	const char *text, *message;
} bad[] = {
    {R4 "groups: {name: a}\n", "f:3:9: groups: found a mapping, expected a list of 2 to 64 groups"},
    {R4 "groups: [{name: a}]\n", "f:3:9: groups: found a list of 1, expected a list of 2 to 64 groups"},
    {R4 "groups: [{name: a}, b]\n", "f:3:21: groups[1]: found \"b\", expected a mapping with name"},
    {R4 "groups: [{}, {name: a}]\n", "f:3:10: groups[0]: found no name, expected one"},
    {G4 "- {name: a}\n- {name: b c}\n",
     "f:5:10: groups[1].name: found \"b c\", expected 1 to 63 letters, digits, '.', '_' or '-'"},
    {G4 "- {name: a}\n- {name: a}\n",
     "f:5:10: groups[1].name: found a, which groups[0] has too, expected different ones"},
    {G4 "- {name: a}\n- {name: b, relay: [a0]}\n", "f:5:13: groups: found unknown key \"relay\", did you mean relays?"},
    {"groups: [{name: a}, {name: b}]\n", "f:1:9: groups: found groups and one reducer, expected several reducers: "
					 "those that relay, and others"},
    {R4 "job: {failover: fail}\ngroups: [{name: a}, {name: b}]\n",
     "f:3:17: job.failover: found fail, expected retain with groups: jobs survive the loss of a relay"},
    {"reducers: [{id: a0, address: w}, {id: a1, address: x}]\nsharding: {rebalance: on}\n"
     "groups: [{name: a}, {name: b}]\n",
     "f:2:23: sharding.rebalance: found on, expected off or log with groups: relays are chosen for the shares of the "
     "file"},

    /* nodes */
    {G4 "- {name: a, nodes: [n0]}\n- {name: b}\n",
     "f:4:20: groups[0].nodes: found a list, expected a list of nodes as a text, such as n[01-03,7]"},
    {G4 "- {name: a, nodes: }\n- {name: b}\n",
     "f:4:20: groups[0].nodes: found nothing, expected a list of nodes as a text, such as n[01-03,7]"},
    {G4 "- {name: a, nodes: n 0}\n- {name: b}\n",
     "f:4:20: groups[0].nodes: found \"n 0\", expected a list of nodes such as n[01-03,7]; at character 2 a letter, "
     "a digit, '.', '_', '-' or '[' was expected"},
    {G4 "- {name: a, nodes: 'n[0-4096]'}\n- {name: b}\n",
     "f:4:20: groups[0].nodes: found more than 4096 nodes in \"n[0-4096]\", expected fewer"},
    {G4 "- {name: a, nodes: 'n[0-4000]'}\n- {name: b, nodes: 'm[0-99]'}\n",
     "f:5:20: groups[1].nodes: found 100 nodes, 4101 with those of the groups before, expected at most 4096"},
    {G4 "- {name: a, nodes: 'n[0-7]'}\n- {name: b, nodes: 'm,n[5-9]'}\n",
     "f:5:20: groups[1].nodes: found node n5, which groups[0] has too, expected each node in one group"},

    /* addresses */
    {G4 "- {name: a, addresses: 10.0.0.0/8}\n- {name: b}\n",
     "f:4:24: groups[0].addresses: found \"10.0.0.0/8\", expected a list of networks, as [10.1.0.0/16]"},
    {G4 "- {name: a, addresses: []}\n- {name: b}\n",
     "f:4:24: groups[0].addresses: found a list of 0, expected a list of 1 to 64 networks"},
    {G4 "- {name: a, addresses: [10.0.0.0/8, eth0]}\n- {name: b}\n",
     "f:4:37: groups[0].addresses: found \"eth0\", expected a network as 10.1.0.0/16 or fd00:1::/32"},
    {G4 "- {name: a, addresses: [[]]}\n- {name: b}\n",
     "f:4:25: groups[0].addresses: found a list, expected a network as 10.1.0.0/16 or fd00:1::/32"},
    {G4 "- {name: a, addresses: [10.1.0.1/16]}\n- {name: b}\n",
     "f:4:25: groups[0].addresses: found \"10.1.0.1/16\", expected 10.1.0.0/16, the network of these first bits"},
    {G4 "- {name: a, addresses: [10.1.0.0/16]}\n- {name: b, addresses: [10.2.0.0/16, 10.0.0.0/8]}\n",
     "f:5:38: groups[1].addresses: found 10.0.0.0/8, which has addresses of 10.1.0.0/16 of groups[0] too, expected "
     "each address in one group"},

    /* relays */
    {G4 "- {name: a, relays: a0}\n- {name: b}\n", "f:4:21: groups[0].relays: found \"a0\", expected a list of "
						  "reducers, or a mapping from shards to reducers, as {0-31: r0}"},
    {G4 "- {name: a, relays: []}\n- {name: b}\n",
     "f:4:21: groups[0].relays: found a list of 0, expected a list of reducers"},
    {G4 "- {name: a, relays: [c0]}\n- {name: b}\n",
     "f:4:22: groups[0].relays: found \"c0\", expected a reducer; did you mean a0?"},
    {G4 "- {name: a, relays: {0: xyz}}\n- {name: b}\n",
     "f:4:25: groups[0].relays: found \"xyz\", expected a reducer, one of a0, a1, b0, b1"},
    {G4 "- {name: a, relays: [a0, a0]}\n- {name: b}\n",
     "f:4:26: groups[0].relays: found a0 a second time, expected once"},
    {G4 "- {name: a, relays: [a0]}\n- {name: b, relays: [b0, a0]}\n",
     "f:5:26: groups[1].relays: found a0, which relays for groups[0] too, expected a reducer that relays for one "
     "group"},
    {G4 "- {name: a, relays: [a0]}\n- {name: b, relays: {1: b0, 2: a0}}\n",
     "f:5:32: groups[1].relays: found a0, which relays for groups[0] too, expected a reducer that relays for one "
     "group"},
    {G4 "- {name: a, relays: {0-8: a0}}\n- {name: b}\n",
     "f:4:22: groups[0].relays: found shard 8, expected 0 to 7 since there are 8 shards"},
    {G4 "- {name: a, relays: {0-3: a0, 3: a1}}\n- {name: b}\n",
     "f:4:31: groups[0].relays: shard 3 belongs to a0 (line 4) and a1 (line 4), expected one reducer"},
    {G4 "- {name: a, relays: {all: a0}}\n- {name: b}\n",
     "f:4:22: groups[0].relays: found \"all\", expected shards as 7, 0-15 or \"0-3,8\""},
};

START_TEST(bad_groups_say_why)
{
	struct rs_config cfg;
	struct rs_err e = {0};

	ck_assert_int_eq(rs_config_parse(&cfg, "f", bad[_i].text, strlen(bad[_i].text), &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, bad[_i].message);
}
END_TEST

/* Networks as they are written, and as they are printed; NULL: no network. */
static const struct {
	const char *text, *printed;
	bool exact;
} networks[] = {
    {"10.1.0.0/16", "10.1.0.0/16", true},
    {"10.1.2.3", "10.1.2.3/32", true},
    {"10.1.2.3/31", "10.1.2.2/31", false},
    {"0.0.0.0/0", "0.0.0.0/0", true},
    {"::/0", "::/0", true},
    {"fd00::/8", "fd00::/8", true},
    {"fd00::1", "fd00::1/128", true},
    {"fe80::1/9", "fe80::/9", false},
    {"::ffff:10.0.0.0/104", "10.0.0.0/8", true},
    {"10.1.0.0/33", NULL, false},
    {"fd00::/129", NULL, false},
    {"10.1.0.0/", NULL, false},
    {"10.1.0.0/08", NULL, false},
    {"10.1.0.0/8x", NULL, false},
    {"10.1.0.0/-1", NULL, false},
    {"10.1.0/16", NULL, false},
    {"", NULL, false},
    {"/8", NULL, false},
    {"fd00:0000:0000:0000:0000:0000:0000:0000:0000:0000/8", NULL, false},
};

START_TEST(networks_are_read)
{
	struct rs_network net;
	char text[NETWORK_TEXT];
	bool exact;

	if (!networks[_i].printed) {
		ck_assert(!network_parse(&net, &exact, networks[_i].text));
		return;
	}
	ck_assert(network_parse(&net, &exact, networks[_i].text));
	ck_assert_int_eq(exact, networks[_i].exact);
	network_format(&net, text);
	ck_assert_str_eq(text, networks[_i].printed);
}
END_TEST

static struct rs_network network(const char *text)
{
	struct rs_network net;
	bool exact;

	ck_assert(network_parse(&net, &exact, text));
	return net;
}

START_TEST(networks_contain_addresses)
{
	const struct rs_network a = network("10.1.0.0/16"), b = network("10.1.128.0/17"), c = network("10.1.0.1");
	const struct rs_network six = network("fd00:1::/33"), all = network("::/0");

	ck_assert(network_contains(&a, c.ip) && network_contains(&c, c.ip) && !network_contains(&b, c.ip));
	ck_assert(network_contains(&six, network("fd00:1:7fff::1").ip));
	ck_assert(!network_contains(&six, network("fd00:1:8000::1").ip));
	ck_assert(!network_contains(&six, c.ip) && network_contains(&all, c.ip));
	ck_assert(network_overlaps(&a, &b) && network_overlaps(&b, &a) && network_overlaps(&a, &a));
	ck_assert(!network_overlaps(&b, &c) && !network_overlaps(&c, &b) && !network_overlaps(&a, &six));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("groups");
	TCase *tc = tcase_create("groups");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 20); /* sanitizers included */
	tcase_add_loop_test(tc, relays_are_read, 0, COUNT(good));
	tcase_add_test(tc, all_keys_are_read);
	tcase_add_test(tc, the_largest_groups_are_printed);
	tcase_add_test(tc, relays_follow_another_map);
	tcase_add_loop_test(tc, bad_groups_say_why, 0, COUNT(bad));
	tcase_add_loop_test(tc, networks_are_read, 0, COUNT(networks));
	tcase_add_test(tc, networks_contain_addresses);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
