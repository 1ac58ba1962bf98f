/* SPDX-License-Identifier: Apache-2.0 */
/* The group of a machine, from its environment, its name and its addresses. */
#include "config/group.h"

#include "tests/unit/fake_environment.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

static const char file[] = "reducers: [{id: r0, address: a}, {id: r1, address: b}]\n"
			   "groups:\n"
			   "  - {name: rack-a, nodes: \"gpu-a[0-3],shared.a\", addresses: [10.1.0.0/16, fd00:1::/32]}\n"
			   "  - {name: rack-b, nodes: \"gpu-b[0-3],shared\", addresses: [10.2.0.0/16]}\n"
			   "  - {name: rack-c}\n"
			   "  - {name: rack.d, addresses: [192.168.7.9]}\n";

static void parse(struct rs_config *cfg, const char *text)
{
	struct rs_err e = {0};

	ck_assert_msg(rs_config_parse(cfg, "f", text, strlen(text), &e) == RS_OK, "%s", e.msg);
}

/* What a machine says, and its group or the error. addresses: with blanks between. */
static const struct {
	const char *variable, *host, *addresses, *topology;
	const char *group, *message;
} places[] = {
    /* each rule */
    {"rack-c", "x", "", NULL, "rack-c", NULL},
    {NULL, "gpu-a3", "", NULL, "rack-a", NULL},
    {NULL, "gpu-b0.cluster.example", "", NULL, "rack-b", NULL},
    {NULL, "x", "127.0.0.1 10.2.255.255", NULL, "rack-b", NULL},
    {NULL, "x", "fd00:1::7", NULL, "rack-a", NULL},
    {NULL, "x", "192.168.7.9", NULL, "rack.d", NULL},
    {NULL, "x", "10.3.0.1", "core.rack-c.x", "rack-c", NULL},
    {NULL, "x", "", "rack-b.x", "rack-b", NULL},
    {NULL, "x", "", "rack-a.leaf-7.x", "rack-a", NULL},
    {NULL, "x", "", "core.rack-b.pair.x", "rack-b", NULL},
    {NULL, "x", "", "rack-a.rack-b.x", "rack-b", NULL}, /* the nearest */

    /* their order */
    {"rack-c", "gpu-a3", "10.2.0.1", "core.rack-b.x", "rack-c", NULL},
    {NULL, "gpu-a3", "10.2.0.1", "core.rack-b.x", "rack-a", NULL},
    {NULL, "x", "10.2.0.1", "core.rack-a.x", "rack-b", NULL},

    /* several addresses in one group */
    {NULL, "x", "10.1.0.1 10.9.0.1 10.1.0.2 fd00:1::1", NULL, "rack-a", NULL},

    /* two groups by one rule */
    {NULL, "shared.a", "", NULL, NULL,
     "machine shared.a is in two groups, rack-a (nodes has shared.a) and rack-b (nodes has shared), expected one: set "
     "REDUCTION_GROUP to the name of its group"},
    {NULL, "x", "10.1.0.1 10.2.0.1", NULL, NULL,
     "machine x is in two groups, rack-a (10.1.0.1) and rack-b (10.2.0.1), expected one: set REDUCTION_GROUP to the "
     "name of its group"},
    {"rack-b", "shared.a", "10.1.0.1 10.2.0.1", NULL, "rack-b", NULL},

    /* none */
    {"rack-e", "gpu-a0", "10.1.0.1", NULL, NULL,
     "REDUCTION_GROUP: found \"rack-e\", expected the name of a group, one of rack-a, rack-b, rack-c, rack.d"},
    {NULL, "gpu-a4", "127.0.0.1 10.3.0.1 ::1 fe80::1 fd00:2::1", NULL, NULL,
     "machine gpu-a4 (addresses 10.3.0.1, fd00:2::1) is in no group, expected one of rack-a, rack-b, rack-c, rack.d: "
     "add it to nodes or addresses of its group, or set REDUCTION_GROUP"},
    {NULL, "x", "", "core.leaf.rack-a", NULL,
     "machine x (addresses none; SLURM_TOPOLOGY_ADDR core.leaf.rack-a) is in no group, expected one of rack-a, rack-b, "
     "rack-c, rack.d: add it to nodes or addresses of its group, or set REDUCTION_GROUP"},
    {NULL, "x", "", "rack-a", NULL, "machine x (addresses none; SLURM_TOPOLOGY_ADDR rack-a) is in no group"},
    {NULL, "x", "", "core.rack.d.x", NULL, "machine x"}, /* a switch has no dot in its name */
    {NULL, "gpu-a", "", ".", NULL, "machine gpu-a"},
    {NULL, "gpu-a", "", "...rack-a", NULL, "machine gpu-a"},
    {NULL, "", "", NULL, NULL, "machine  (addresses none) is in no group"},
};

START_TEST(the_first_rule_that_finds_a_group_decides)
{
	struct rs_endpoint addresses[8];
	struct rs_group_place place = {.variable = places[_i].variable,
				       .host = places[_i].host,
				       .addresses = addresses,
				       .topology = places[_i].topology};
	char text[128], *rest = text, *word;
	struct rs_err e = {0};
	struct rs_config cfg;
	unsigned group = 99;
	int rc;

	snprintf(text, sizeof text, "%s", places[_i].addresses);
	while ((word = strtok_r(rest, " ", &rest))) {
		char with_port[80];

		snprintf(with_port, sizeof with_port, strchr(word, ':') ? "[%s]:0" : "%s:0", word);
		ck_assert(rs_endpoint_of_text(&addresses[place.addresses_n++], with_port));
	}
	parse(&cfg, file);
	rc = rs_group_find(&group, &cfg, &place, &e);
	if (places[_i].group) {
		ck_assert_msg(rc == RS_OK, "%s", e.msg);
		ck_assert_str_eq(cfg.groups[group].name, places[_i].group);
	} else {
		ck_assert_int_eq(rc, RS_ECONFIG);
		ck_assert_uint_eq(group, 99);
		ck_assert_msg(strncmp(e.msg, places[_i].message, strlen(places[_i].message)) == 0, "%s", e.msg);
	}
	rs_config_close(&cfg);
}
END_TEST

/* A sentence has room for what matters. */
START_TEST(long_lists_are_cut)
{
	char text[16384] = "reducers: [{id: r0, address: a}, {id: r1, address: b}]\ngroups:\n", host[RS_HOST_MAX];
	struct rs_endpoint addresses[200];
	const struct rs_group_place place = {
	    .host = host, .addresses = addresses, .addresses_n = 200, .topology = text};
	struct rs_config cfg;
	struct rs_err e;
	unsigned group;

	for (unsigned i = 0; i < RS_GROUPS_MAX; i++)
		sprintf(text + strlen(text), "- {name: rack-with-a-rather-long-name-%u}\n", i);
	for (unsigned i = 0; i < 200; i++) {
		char address[32];

		snprintf(address, sizeof address, "[fd00:1234:5678:9abc::%u]:0", i);
		ck_assert(rs_endpoint_of_text(&addresses[i], address));
	}
	memset(host, 'h', sizeof host - 1);
	host[sizeof host - 1] = '\0';
	parse(&cfg, text);
	ck_assert_int_eq(rs_group_find(&group, &cfg, &place, &e), RS_ECONFIG);
	ck_assert_ptr_nonnull(strstr(e.msg, "(addresses fd00:1234:5678:9abc::, fd00:1234:5678:9abc::1, "));
	ck_assert_ptr_nonnull(strstr(e.msg, ", ...; SLURM_TOPOLOGY_ADDR "));
	ck_assert_ptr_nonnull(strstr(e.msg, "one of rack-with-a-rather-long-name-0, "));
	ck_assert_ptr_nonnull(strstr(e.msg, ", ...: add it to nodes"));
	ck_assert_ptr_nonnull(strstr(e.msg, "set REDUCTION_GROUP"));
	rs_config_close(&cfg);
}
END_TEST

/* This machine has a loopback address and its own name. */
START_TEST(this_machine_is_found)
{
	static const char *const none[] = {"REDUCTION_GROUP=", NULL}, *const said[] = {"REDUCTION_GROUP=a", NULL};
	char host[128] = "", text[512];
	struct rs_config cfg;
	struct rs_err e = {0};
	unsigned group = 99;

	parse(&cfg, "");
	ck_assert_int_eq(rs_group_detect(&group, &cfg, NULL, NULL, &e), RS_OK);
	ck_assert_uint_eq(group, 0);
	rs_config_close(&cfg);

	parse(&cfg, "reducers: [{id: r0, address: a}, {id: r1, address: b}]\n"
		    "groups: [{name: a}, {name: b, addresses: [127.0.0.0/8]}, {name: c}]\n");
	ck_assert_msg(rs_group_detect(&group, &cfg, fake_getenv, (void *)none, &e) == RS_OK, "%s", e.msg);
	ck_assert_uint_eq(group, 1);
	ck_assert_msg(rs_group_detect(&group, &cfg, fake_getenv, (void *)said, &e) == RS_OK, "%s", e.msg);
	ck_assert_uint_eq(group, 0);
	rs_config_close(&cfg);

	gethostname(host, sizeof host - 1);
	snprintf(text, sizeof text,
		 "reducers: [{id: r0, address: a}, {id: r1, address: b}]\n"
		 "groups: [{name: a}, {name: b}, {name: c, nodes: %s}]\n",
		 host);
	parse(&cfg, text);
	ck_assert_msg(rs_group_detect(&group, &cfg, fake_getenv, (void *)none, &e) == RS_OK, "%s", e.msg);
	ck_assert_uint_eq(group, 2);
	rs_config_close(&cfg);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("group");
	TCase *tc = tcase_create("group");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, the_first_rule_that_finds_a_group_decides, 0, COUNT(places));
	tcase_add_test(tc, long_lists_are_cut);
	tcase_add_test(tc, this_machine_is_found);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
