/* SPDX-License-Identifier: Apache-2.0 */
#include "config/value.h"

#include "config/config.h"
#include "config/schema.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* An address as written, and as it is stored; NULL: refused. */
static const struct {
	const char *text, *kept;
} addresses[] = {
    {"a", "a:7600"},
    {"a:1", "a:1"},
    {"a:65535", "a:65535"},
    {"10.0.0.1", "10.0.0.1:7600"},
    {"[::1]", "[::1]:7600"},
    {"[2001:db8::7]:80", "[2001:db8::7]:80"},
    {"cmle-training-workerpool2-ab-0:2222", "cmle-training-workerpool2-ab-0:2222"},
    {"a:080", NULL},
    {"", NULL},
    {":7600", NULL},
    {"a:", NULL},
    {"a:0", NULL},
    {"a:65536", NULL},
    {"a:99999999999999999999", NULL},
    {"a:http", NULL},
    {"a:80 ", NULL},
    {"a b:80", NULL},
    {"http://a:80", NULL},
    {"::1", NULL},
    {"::1:7600", NULL},
    {"[::1", NULL},
    {"[::1]80", NULL},
    {"[]:80", NULL},
    {"[]", NULL},
    {"]", NULL},
    {"[", NULL},
    {"[fe80::1%]:80", NULL},
    {"[fe80::1%a/b]:80", NULL},
    {"[10.0.0.1]:80", NULL},
    {"300.0.0.1:80", NULL},
    {"10.0.0:80", NULL},
    {"1234:80", NULL},
};

START_TEST(addresses_are_checked)
{
	const struct schema_key *key = schema_find("reducers", "address");
	struct rs_reducer r = {.address = "before"};

	ck_assert_int_eq(value_parse(key, addresses[_i].text, &r), addresses[_i].kept != NULL);
	ck_assert_str_eq(r.address, addresses[_i].kept ? addresses[_i].kept : "before");
}
END_TEST

/* The same for agent.grpc. */
static const struct {
	const char *text, *kept;
} services[] = {
    {"", ""},
    {"a", "a:7602"},
    {"[::1]:0", "[::1]:0"},
    {"unix:1", NULL}, /* a path is absolute */
    {"unix:/run/a.b/c_d-e.sock", "unix:/run/a.b/c_d-e.sock"},
    {"unix:", NULL},
    {"unix:/", NULL},
    {"unix:a", NULL},
    {"unix:/a/", NULL},
    {"unix:/a b", NULL},
    {"unix:/a%41", NULL},
    {"unix://a?b", NULL},
    {"UNIX:/a", NULL},
    {"/a", NULL},
};

START_TEST(services_may_be_sockets)
{
	const struct schema_key *key = schema_find("agent", "grpc");
	static struct rs_config cfg;
	char expected[VALUE_TEXT_MAX];

	strcpy(cfg.agent.grpc, "before");
	ck_assert_int_eq(value_parse(key, services[_i].text, &cfg), services[_i].kept != NULL);
	ck_assert_str_eq(cfg.agent.grpc, services[_i].kept ? services[_i].kept : "before");
	value_expected(key, expected, sizeof expected);
	ck_assert_ptr_nonnull(strstr(expected, ", or unix:PATH with an absolute path of at most 107 "));
}
END_TEST

START_TEST(longest_socket_fits)
{
	const struct schema_key *key = schema_find("agent", "grpc");
	static struct rs_config cfg;
	char text[120] = "unix:/";

	memset(text + 6, 'a', 106);
	ck_assert(value_parse(key, text, &cfg));
	ck_assert_str_eq(cfg.agent.grpc, text);
	text[112] = 'a';
	ck_assert(!value_parse(key, text, &cfg));
}
END_TEST

START_TEST(longest_address_fits)
{
	const struct schema_key *key = schema_find("reducers", "address");
	struct rs_reducer r = {0};
	char text[300];

	memset(text, 'a', 254);
	memcpy(text + 253, ":65535", 7);
	ck_assert(value_parse(key, text, &r));
	ck_assert_str_eq(r.address, text);
	memset(text, 'a', 254);
	memcpy(text + 254, ":65535", 7);
	ck_assert(!value_parse(key, text, &r));
}
END_TEST

static const struct {
	const char *section, *key, *text;
	uint64_t value;
} numbers[] = {
    {"server", "memory", "1048576", 1 << 20},
    {"server", "memory", "1024KiB", 1 << 20},
    {"server", "memory", "1024 KiB", 1 << 20},
    {"server", "memory", "2M", 2000000},
    {"server", "memory", "2G", 2000000000},
    {"server", "memory", "3000k", 3000000},
    {"server", "memory", "3GiB", (uint64_t)3 << 30},
    {"server", "memory", "100MB", 100000000},
    {"server", "memory", "100 mB", 100000000},
    {"server", "memory", "5m", 5000000},
    {"server", "memory", "1GB", 1000000000},
    {"server", "memory", "1.5GB", 1500000000},
    {"server", "memory", "20mib", 20 << 20},
    {"server", "memory", "2.5GIB", (uint64_t)5 << 29},
    {"server", "memory", "1048576B", 1 << 20},
    {"timeouts", "op", "0", 0},
    {"timeouts", "op", "0s", 0},
    {"timeouts", "op", "1500ms", 1500},
    {"timeouts", "op", "2s", 2000},
    {"timeouts", "op", "2 min", 120000},
    {"timeouts", "op", "2h", 7200000},
    {"timeouts", "op", "1.5h", 5400000},
    {"timeouts", "op", "0.2S", 200},
    {"plan", "bandwidth", "unknown", 0},
    {"plan", "bandwidth", "1001 bit", 1001},
    {"plan", "bandwidth", "2500kbit", 2500000},
    {"plan", "bandwidth", "400mbit", 400000000},
    {"plan", "bandwidth", "100gbit", UINT64_C(100000000000)},
    {"plan", "bandwidth", "10Gbit", UINT64_C(10000000000)},
    {"plan", "bandwidth", "10 GBIT", UINT64_C(10000000000)},
    {"plan", "bandwidth", "2.5Gbit", UINT64_C(2500000000)},
    {"plan", "bandwidth", "10gbps", UINT64_C(10000000000)},
    {"plan", "bandwidth", "10Gbps", UINT64_C(10000000000)},
    {"plan", "bandwidth", "10Gbit/s", UINT64_C(10000000000)},
    {"plan", "bandwidth", "10Gb/s", UINT64_C(10000000000)},
    {"plan", "bandwidth", "10Gb", UINT64_C(10000000000)},
    {"plan", "bandwidth", "100Mbps", 100000000},
    {"plan", "bandwidth", "1001bps", 1001},
    {"sharding", "shards", "auto", 0},
    {"sharding", "shards", "0", 0},
    {"timeouts", "op", "0.5s", 500},
};

START_TEST(numbers_have_units)
{
	const struct schema_key *key = schema_find(numbers[_i].section, numbers[_i].key);
	struct rs_config cfg;
	uint64_t found;

	memset(&cfg, 0xff, sizeof cfg);
	ck_assert(value_parse(key, numbers[_i].text, &cfg));
	found = key->size == 4 ? *(uint32_t *)((char *)&cfg + key->offset) : *(uint64_t *)((char *)&cfg + key->offset);
	ck_assert_uint_eq(found, numbers[_i].value);
}
END_TEST

/* Bits where bytes are expected, and the other way round; numbers that are not whole. */
static const struct {
	const char *section, *key, *text, *expected;
} refused[] = {
    {"server", "memory", "1Gb", "MB or GB (b would be bits)"},
    {"server", "memory", "100mb", "MB or GB (b would be bits)"},
    {"server", "memory", "1Gbit", "MB or GB (b would be bits)"},
    {"server", "memory", "1.5", "bytes, or a number with"},
    {"server", "memory", "1024.0001KiB", "bytes, or a number with"},
    {"server", "memory", "2.0000001GB", "bytes, or a number with"},
    {"server", "memory", "2.GB", "bytes, or a number with"},
    {"server", "memory", "2GB/s", "bytes, or a number with"},
    {"plan", "bandwidth", "10GB", "or as 10Gbps (B would be bytes)"},
    {"plan", "bandwidth", "10GBps", "or as 10Gbps (B would be bytes)"},
    {"plan", "bandwidth", "10GB/s", "or as 10Gbps (B would be bytes)"},
    {"plan", "bandwidth", "10GiB", "or as 10Gbps (B would be bytes)"},
    {"plan", "bandwidth", "10G", "a number with kbit, mbit or gbit"},
    {"plan", "bandwidth", "10", "a number with kbit, mbit or gbit"},
    {"timeouts", "op", "200.5ms", "a number with ms, s, min or h"},
    {"timeouts", "op", "2", "a number with ms, s, min or h"},
    {"timeouts", "op", "1d", "a number with ms, s, min or h"},
    {"timeouts", "op", "02s", "a number with ms, s, min or h"},
    {"sharding", "shards", "010", "a whole number"},
    {"sharding", "shards", "00", "a whole number"},
    {"server", "memory", "02GB", "bytes, or a number with"},
};

START_TEST(wrong_units_are_refused)
{
	const struct schema_key *key = schema_find(refused[_i].section, refused[_i].key);
	struct rs_config cfg = {0};
	char expected[160];

	ck_assert(!value_parse(key, refused[_i].text, &cfg));
	value_expected(key, expected, sizeof expected);
	ck_assert_ptr_nonnull(strstr(expected, refused[_i].expected));
}
END_TEST

/* The table itself: a default must be a valid value of its key, and is printed as
 * written, up to the unit. */
START_TEST(defaults_are_values)
{
	union {
		struct rs_config cfg;
		struct rs_reducer reducer;
		struct rs_worker worker;
	} u;
	char first[VALUE_TEXT_MAX], second[VALUE_TEXT_MAX];

	for (unsigned i = 0; i < schema_keys_n; i++) {
		const struct schema_key *key = &schema_keys[i];

		ck_assert_ptr_eq(schema_find(key->section, key->key), key);
		if (strcmp(key->section, "job.wire") != 0) { /* which the help of job.wire describes */
			ck_assert_ptr_nonnull(schema_find_section(key->section));
			ck_assert_int_ne(key->help[strlen(key->help) - 1], '.');
		}
		if (!key->def || !key->def[0])
			continue;
		ck_assert_msg(value_parse(key, key->def, &u), "%s.%s", key->section, key->key);
		value_format(key, &u, first, sizeof first);
		ck_assert(value_parse(key, first, &u));
		value_format(key, &u, second, sizeof second);
		ck_assert_str_eq(first, second);
		ck_assert_str_eq(first, key->def);
	}
}
END_TEST

/* The unit is the largest that leaves a whole number. */
static const struct {
	uint64_t rate;
	const char *text;
} rates[] = {
    {0, "0"},
    {1, "1bit"},
    {1001, "1001bit"},
    {64000, "64kbit"},
    {2500000000, "2500mbit"},
    {UINT64_C(40000000000), "40gbit"},
};

START_TEST(rates_have_units)
{
	char text[32];

	value_format_rate(rates[_i].rate, text, sizeof text);
	ck_assert_str_eq(text, rates[_i].text);
}
END_TEST

START_TEST(distances)
{
	static const char long_name[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

	ck_assert_uint_eq(schema_distance("", ""), 0);
	ck_assert_uint_eq(schema_distance("", "abc"), 3);
	ck_assert_uint_eq(schema_distance("kitten", "sitting"), 3);
	ck_assert_uint_eq(schema_distance("sitting", "kitten"), 3);
	ck_assert_uint_eq(schema_distance(long_name + 1, "a"), 63);
	ck_assert_uint_eq(schema_distance(long_name, "a"), -1U);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

int main(void)
{
	Suite *suite = suite_create("value");
	TCase *tc = tcase_create("value");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, addresses_are_checked, 0, COUNT(addresses));
	tcase_add_loop_test(tc, services_may_be_sockets, 0, COUNT(services));
	tcase_add_test(tc, longest_socket_fits);
	tcase_add_test(tc, longest_address_fits);
	tcase_add_loop_test(tc, numbers_have_units, 0, COUNT(numbers));
	tcase_add_loop_test(tc, wrong_units_are_refused, 0, COUNT(refused));
	tcase_add_loop_test(tc, rates_have_units, 0, COUNT(rates));
	tcase_add_test(tc, defaults_are_values);
	tcase_add_test(tc, distances);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
