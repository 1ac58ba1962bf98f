/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include "common/log.h"
#include "common/wire.h"

#include <check.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])
#define R2           "reducers: [{id: r0, address: a}, {id: r1, address: b}]\n"

static void parse(struct rs_config *cfg, const char *text, size_t len)
{
	struct rs_err e = {0};

	ck_assert_msg(rs_config_parse(cfg, "f", text, len, &e) == RS_OK, "%s", e.msg);
}

/* Returns the printed form; free() it. It has all keys, so two configurations that print
 * alike are equal. */
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

static void check_reparses(const struct rs_config *cfg)
{
	char *first = print(cfg), *second;
	struct rs_config again;

	parse(&again, first, strlen(first));
	second = print(&again);
	ck_assert_str_eq(first, second);
	ck_assert_uint_eq(rs_config_digest(cfg), rs_config_digest(&again));
	ck_assert_mem_eq(cfg->sharding.owner, again.sharding.owner, cfg->sharding.shards * sizeof(uint16_t));
	rs_config_close(&again);
	free(first);
	free(second);
}

/* Files without content. */
static const char *const empty[] = {"",
				    "\n",
				    "# comment\n",
				    "---\n",
				    "---\n...\n",
				    "~",
				    "job:\nserver:\n",
				    "{}",
				    "\xef\xbb\xbf# after a byte order mark\n"};

/* As some editors write them. */
START_TEST(a_byte_order_mark_is_skipped)
{
	static const char text[] = "\xef\xbb\xbfjob: {name: a}\nserver: {lanes: 3}\n";
	struct rs_config cfg;

	parse(&cfg, text, strlen(text));
	ck_assert_str_eq(cfg.job.name, "a");
	ck_assert_uint_eq(cfg.server.lanes, 3);
	rs_config_close(&cfg);
}
END_TEST

START_TEST(empty_files_are_the_defaults)
{
	struct rs_config cfg;
	struct rs_err e;

	if (_i == 0)
		ck_assert_int_eq(rs_config_load(&cfg, NULL, &e), RS_OK);
	else
		parse(&cfg, empty[_i - 1], strlen(empty[_i - 1]));
	ck_assert_str_eq(cfg.job.name, "");
	ck_assert(!cfg.job.deterministic && !cfg.job.checksum);
	ck_assert_int_eq(cfg.job.detect_nonfinite, RS_NONFINITE_LOG);
	ck_assert_uint_eq(cfg.reducers_n, 1);
	ck_assert_str_eq(cfg.reducers[0].id, "r0");
	ck_assert_str_eq(cfg.reducers[0].address, "127.0.0.1:7600");
	ck_assert_double_eq(cfg.reducers[0].weight, 1);
	ck_assert_uint_eq(cfg.reducers[0].lanes, 1);
	ck_assert_uint_eq(cfg.sharding.shards, 64);
	ck_assert_uint_eq(cfg.sharding.chunk_bytes, 32768);
	ck_assert_uint_eq(cfg.sharding.window, 32);
	ck_assert_uint_eq(cfg.sharding.priorities, 2);
	ck_assert_str_eq(cfg.server.listen, "127.0.0.1:7600");
	ck_assert(cfg.server.lanes >= 1 && cfg.server.lanes <= 8);
	ck_assert(cfg.server.lanes_auto);
	ck_assert_str_eq(cfg.server.cpu, "auto");
	ck_assert_str_eq(cfg.agent.socket, "/run/reduction/agent.sock");
	ck_assert_uint_eq(cfg.agent.shm_bytes, (uint64_t)8 << 30);
	ck_assert_str_eq(cfg.agent.cpu, "auto");
	ck_assert_uint_eq(cfg.server.max_jobs, 64);
	ck_assert_uint_eq(cfg.server.max_workers, 256);
	ck_assert_uint_eq(cfg.server.max_connections, 4096);
	ck_assert_uint_eq(cfg.server.memory_bytes, (uint64_t)4 << 30);
	ck_assert_uint_eq(cfg.job.max_ops, 1024);
	ck_assert_uint_eq(cfg.timeouts.connect_ms, 60000);
	ck_assert_uint_eq(cfg.timeouts.detect_ms, 10000);
	ck_assert_uint_eq(cfg.timeouts.handshake_ms, 5000);
	ck_assert_uint_eq(cfg.timeouts.op_ms, 0);
	ck_assert_uint_eq(cfg.timeouts.drain_ms, 30000);
	ck_assert(!cfg.server.insecure);
	ck_assert_int_eq(cfg.logging.level, RS_LOG_INFO);
	ck_assert(!cfg.logging.json);
	ck_assert_str_eq(cfg.reducers[0].host, "127.0.0.1");
	ck_assert_uint_eq(cfg.reducers[0].bandwidth, 0);
	ck_assert_uint_eq(cfg.plan.bytes, 100 << 20);
	ck_assert_uint_eq(cfg.plan.step_ms, 0);
	ck_assert_uint_eq(cfg.plan.workers, 0);
	ck_assert_uint_eq(cfg.plan.bandwidth, 0);
	ck_assert_uint_eq(cfg.workers_n, 0);
	check_reparses(&cfg);
	rs_config_close(&cfg);
}
END_TEST

/* One lane for each 10 Gbit/s, if the file has the bandwidth of the reducer's link. */
START_TEST(lanes_follow_the_bandwidth)
{
	static const struct {
		const char *keys, *plan;
		unsigned lanes;
	} rows[] = {
	    {"", "", 1},
	    {"", "plan: {bandwidth: 1gbit}", 1},
	    {"", "plan: {bandwidth: 10gbit}", 1},
	    {"", "plan: {bandwidth: 25gbit}", 3},
	    {", bandwidth: 10001mbit", "plan: {bandwidth: 100gbit}", 2},
	    {", bandwidth: 100gbit", "", 10},
	    {", bandwidth: 100000gbit", "", 16},
	    {", bandwidth: 100gbit, lanes: 2", "", 2},
	    {", bandwidth: 100gbit, lanes: auto", "", 10},
	};

	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rs_config cfg;
		char text[160];
		int n =
		    snprintf(text, sizeof text, "reducers: [{id: a, address: b%s}]\n%s\n", rows[i].keys, rows[i].plan);

		parse(&cfg, text, (size_t)n);
		ck_assert_msg(cfg.reducers[0].lanes == rows[i].lanes, "%s: %u lanes", text, cfg.reducers[0].lanes);
		rs_config_close(&cfg);
	}
}
END_TEST

/* A chunk takes at most 0.6 ms on the slowest known link, with relays 0.3 ms. */
START_TEST(chunks_follow_the_bandwidth)
{
	static const struct {
		const char *keys, *more;
		unsigned bytes;
	} rows[] = {
	    {"", "", 32768},
	    {"", "plan: {bandwidth: 100gbit}", 32768},
	    {"", "plan: {bandwidth: 500mbit}", 32768},
	    {"", "plan: {bandwidth: 250mbit}", 16384},
	    {"", "plan: {bandwidth: 1mbit}", 8192},
	    {", bandwidth: 250mbit", "plan: {bandwidth: 1gbit}", 16384},
	    {"", "workers: [{bandwidth: 100gbit}, {bandwidth: 120mbit}]", 8192},
	    {"", "sharding: {chunk_bytes: 4MiB}\nplan: {bandwidth: 1mbit}", 4 << 20},
	    {"", "sharding: {chunk_bytes: auto}\nplan: {bandwidth: 250mbit}", 16384},
	    {"}, {id: c, address: d", "groups: [{name: x}, {name: y}]\nplan: {bandwidth: 250mbit}", 16384},
	    {"}, {id: c, address: d", "groups: [{name: x, relays: [a]}, {name: y}]\nplan: {bandwidth: 250mbit}", 8192},
	    {"}, {id: c, address: d", "groups: [{name: x, relays: [a]}, {name: y}]\nplan: {bandwidth: 500mbit}", 16384},
	    {"}, {id: c, address: d", "groups: [{name: x, relays: [a]}, {name: y}]\nplan: {bandwidth: 1gbit}", 32768},
	    {"}, {id: c, address: d",
	     "groups: [{name: x, relays: [a]}, {name: y}]\n"
	     "sharding: {chunk_bytes: 16KiB}\nplan: {bandwidth: 250mbit}",
	     16384},
	};

	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rs_config cfg;
		char text[200];
		int n =
		    snprintf(text, sizeof text, "reducers: [{id: a, address: b%s}]\n%s\n", rows[i].keys, rows[i].more);

		parse(&cfg, text, (size_t)n);
		ck_assert_msg(cfg.sharding.chunk_bytes == rows[i].bytes, "%s: %u bytes", text,
			      cfg.sharding.chunk_bytes);
		rs_config_close(&cfg);
	}
}
END_TEST

/* Every key with a value that is not its default. */
static const char full[] =
    "job: {name: train-7, deterministic: true, checksum: true, detect_nonfinite: fail, max_ops: 3,\n"
    "  wire: {down: bf16, up: int8, rounding: stochastic}}\n"
    "reducers:\n"
    "- id: \"true\"\n"
    "  address: '[fe80::1%eth0]:1'\n"
    "  weight: 0.25\n"
    "  lanes: 64\n"
    "- {id: 0.b, address: host-2.example, grpc: 'c:1', weight: 1000000, lanes: 2, host: '::1', bandwidth: "
    "2500mbit}\n"
    "sharding:\n"
    "  shards: 4096\n"
    "  chunk_bytes: 4 MiB\n"
    "  window: 1024\n"
    "  priorities: 4\n"
    "  map: {0-1999: 0.b, \"2000,2002-4095\": 'true', 2001: 0.b}\n"
    "server: {listen: '0.0.0.0:0', grpc: '[::1]', lanes: 64, cpu: scalar, insecure: true, secrets_dir: /s,\n"
    "  max_jobs: 1, max_workers: 4096, max_connections: 1000000, memory: 16384GiB}\n"
    "agent: {socket: \"/tmp/a \\\"b\\\" \\\\ \\u00e9\\u2028\", shm_bytes: 3000000, max_jobs: 2, cpu: avx512,\n"
    "  grpc: 'unix:/run/a-b_c/d.sock'}\n"
    "timeouts: {connect: 1440min, detect: 400ms, handshake: 7s, op: 90s, drain: 0}\n"
    "security: {read_token: /r, admin_token: a b}\n"
    "logging: {level: trace, format: json}\n"
    "plan: {bytes: 3, step: 120ms, workers: 4096, bandwidth: 1001bit}\n"
    "workers: [{}, {host: 'fe80::1%eth0', bandwidth: 100000gbit}]\n";

START_TEST(all_keys_are_read)
{
	struct rs_config cfg;

	parse(&cfg, full, strlen(full));
	ck_assert_str_eq(cfg.job.name, "train-7");
	ck_assert(cfg.job.deterministic && cfg.job.checksum);
	ck_assert_int_eq(cfg.job.detect_nonfinite, RS_NONFINITE_FAIL);
	ck_assert_uint_eq(cfg.job.wire_up, RS_WIRE_INT8);
	ck_assert_uint_eq(cfg.job.wire_down, RS_WIRE_BF16);
	ck_assert(cfg.job.wire_random);
	ck_assert_uint_eq(cfg.reducers_n, 2);
	ck_assert_str_eq(cfg.reducers[0].id, "true");
	ck_assert_str_eq(cfg.reducers[0].address, "[fe80::1%eth0]:1");
	ck_assert_double_eq(cfg.reducers[0].weight, 0.25);
	ck_assert_uint_eq(cfg.reducers[0].lanes, 64);
	ck_assert_str_eq(cfg.reducers[1].address, "host-2.example:7600");
	ck_assert_double_eq(cfg.reducers[1].weight, 1e6);
	ck_assert_uint_eq(cfg.sharding.shards, 4096);
	ck_assert_uint_eq(cfg.sharding.chunk_bytes, 4 << 20);
	ck_assert_uint_eq(cfg.sharding.window, 1024);
	ck_assert_uint_eq(cfg.sharding.priorities, 4);
	ck_assert_uint_eq(cfg.sharding.owner[1999], 1);
	ck_assert_uint_eq(cfg.sharding.owner[2000], 0);
	ck_assert_uint_eq(cfg.sharding.owner[2001], 1);
	ck_assert_uint_eq(cfg.sharding.owner[4095], 0);
	ck_assert_str_eq(cfg.server.listen, "0.0.0.0:0");
	ck_assert_str_eq(cfg.server.grpc, "[::1]:7601");
	ck_assert_str_eq(cfg.reducers[0].grpc, "[fe80::1%eth0]:7601");
	ck_assert_str_eq(cfg.reducers[1].grpc, "c:1");
	ck_assert_str_eq(cfg.security.read_token, "/r");
	ck_assert_str_eq(cfg.security.admin_token, "a b");
	ck_assert_uint_eq(cfg.server.lanes, 64);
	ck_assert_str_eq(cfg.server.cpu, "scalar");
	ck_assert_str_eq(cfg.agent.socket, "/tmp/a \"b\" \\ \xc3\xa9\xe2\x80\xa8");
	ck_assert_uint_eq(cfg.agent.shm_bytes, 3000000);
	ck_assert_str_eq(cfg.agent.grpc, "unix:/run/a-b_c/d.sock");
	ck_assert_str_eq(cfg.agent.cpu, "avx512");
	ck_assert_str_eq(cfg.server.secrets_dir, "/s");
	ck_assert_uint_eq(cfg.agent.max_jobs, 2);
	ck_assert_uint_eq(cfg.server.max_jobs, 1);
	ck_assert_uint_eq(cfg.server.max_workers, 4096);
	ck_assert_uint_eq(cfg.server.max_connections, 1000000);
	ck_assert_uint_eq(cfg.server.memory_bytes, (uint64_t)16384 << 30);
	ck_assert_uint_eq(cfg.job.max_ops, 3);
	ck_assert_uint_eq(cfg.timeouts.connect_ms, 86400000);
	ck_assert_uint_eq(cfg.timeouts.detect_ms, 400);
	ck_assert_uint_eq(cfg.timeouts.handshake_ms, 7000);
	ck_assert_uint_eq(cfg.timeouts.op_ms, 90000);
	ck_assert_uint_eq(cfg.timeouts.drain_ms, 0);
	ck_assert(cfg.server.insecure);
	ck_assert_int_eq(cfg.logging.level, RS_LOG_TRACE);
	ck_assert(cfg.logging.json);
	ck_assert(!cfg.server.lanes_auto);
	ck_assert_str_eq(cfg.reducers[0].host, "fe80::1%eth0"); /* that of its address */
	ck_assert_str_eq(cfg.reducers[1].host, "::1");
	ck_assert_uint_eq(cfg.reducers[1].bandwidth, 2500000000);
	ck_assert_uint_eq(cfg.plan.bytes, 3);
	ck_assert_uint_eq(cfg.plan.step_ms, 120);
	ck_assert_uint_eq(cfg.plan.workers, RS_WORLD_MAX);
	ck_assert_uint_eq(cfg.plan.bandwidth, 1001);
	ck_assert_uint_eq(cfg.workers_n, 2);
	ck_assert_str_eq(cfg.workers[0].host, "worker-0");
	ck_assert_uint_eq(cfg.workers[0].bandwidth, 0);
	ck_assert_str_eq(cfg.workers[1].host, "fe80::1%eth0");
	ck_assert_uint_eq(cfg.workers[1].bandwidth, UINT64_C(100000000000000));
	check_reparses(&cfg);
	rs_config_close(&cfg);
}
END_TEST

START_TEST(too_many_reducers)
{
	char text[16384] = "reducers:\n";
	size_t len = strlen(text);
	struct rs_config cfg;
	struct rs_err e;

	for (unsigned i = 0; i < RS_REDUCERS_MAX; i++)
		len += (size_t)sprintf(text + len, "- {id: r%u, address: h%u}\n", i, i);
	parse(&cfg, text, len);
	ck_assert_uint_eq(cfg.reducers_n, RS_REDUCERS_MAX);
	ck_assert_uint_eq(cfg.sharding.shards, RS_REDUCERS_MAX);
	check_reparses(&cfg);
	rs_config_close(&cfg);
	len += (size_t)sprintf(text + len, "- {id: one, address: more}\n");
	ck_assert_int_eq(rs_config_parse(&cfg, "f", text, len, &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, "f:2:1: reducers: found a list of 257, expected a list of 1 to 256 reducers");
}
END_TEST

START_TEST(a_pipe_of_a_shell_is_read)
{
	static const char text[] = "job: {name: a}\n";
	struct rs_config cfg;
	struct rs_err e;
	char path[32];
	int fd[2];

	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(write(fd[1], text, sizeof text - 1), sizeof text - 1);
	close(fd[1]);
	snprintf(path, sizeof path, "/dev/fd/%d", fd[0]);
	ck_assert_int_eq(rs_config_load(&cfg, path, &e), RS_OK);
	ck_assert_str_eq(cfg.job.name, "a");
	ck_assert_str_eq(cfg.source.file, ""); /* it cannot be read again */
	rs_config_close(&cfg);
	close(fd[0]);
}
END_TEST

/* Slots may share a name, whose addresses are machines of their own. */
START_TEST(slots_may_share_a_name)
{
	static const char text[] = "job: {min_reducers: 2}\n"
				   "reducers: [{id: a, address: reducers.test}, {id: b, address: h2},\n"
				   "           {id: c, address: Reducers.test}]\n";
	struct rs_config cfg;

	parse(&cfg, text, strlen(text));
	ck_assert(cfg.reducers[0].shared && !cfg.reducers[1].shared && cfg.reducers[2].shared);
	ck_assert_str_eq(cfg.reducers[0].host, "a");
	ck_assert_str_eq(cfg.reducers[1].host, "h2");
	ck_assert_str_eq(cfg.reducers[2].host, "c");
	ck_assert_str_eq(cfg.reducers[2].grpc, "Reducers.test:7601");
	check_reparses(&cfg);
	rs_config_close(&cfg);
}
END_TEST

/* A file that may be read again has an absolute path and a stamp. From another reading a
 * reducer takes its addresses, and nothing from one without its id. */
START_TEST(addresses_are_taken_from_another_reading)
{
	static const char slots[] = "job: {min_reducers: 1}\n"
				    "reducers: [{id: a, address: h1}, {id: b, address: h2, tls_name: n}, {id: c}]\n",
			  shared[] = "job: {min_reducers: 1}\n"
				     "reducers: [{id: b, address: \"pool:7600\"}, {id: c, address: \"pool:7600\"}]\n",
			  later[] = "reducers: [{id: x, address: h9}, {id: b, address: h3, weight: 9}]\n";
	struct rs_config cfg, fresh;
	struct rs_reducer a, b, c;
	struct rs_err e;

	ck_assert_int_eq(rs_config_load(&cfg, "config/examples/four-reducers.yaml", &e), RS_OK);
	ck_assert_int_eq(cfg.source.file[0], '/');
	ck_assert_uint_ne(cfg.source.stamp.inode, 0);
	ck_assert(!rs_config_has_slots(&cfg));
	rs_config_close(&cfg);

	parse(&cfg, slots, strlen(slots));
	ck_assert(rs_config_has_slots(&cfg));
	ck_assert_uint_eq(cfg.sharding.shards, 264); /* so that any number of reducers has about equal shares */
	check_reparses(&cfg);
	ck_assert_str_eq(cfg.reducers[2].address, "");
	ck_assert_str_eq(cfg.reducers[2].grpc, "");
	ck_assert_str_eq(cfg.reducers[2].host, "c");
	ck_assert_str_eq(rs_config_lasting_name(&cfg, &cfg.reducers[0]), "a");
	a = cfg.reducers[0];
	b = cfg.reducers[1];
	c = cfg.reducers[2];
	parse(&fresh, later, strlen(later));
	ck_assert(!rs_config_take_addresses(&a, &fresh));
	ck_assert(!rs_config_take_addresses(&c, &fresh));
	ck_assert(rs_config_take_addresses(&b, &fresh));
	ck_assert_str_eq(b.address, "h3:7600");
	ck_assert_str_eq(b.grpc, "h3:7601");
	ck_assert_str_eq(b.tls_name, "");
	ck_assert_double_eq(b.weight, 1);
	ck_assert(!rs_config_take_addresses(&b, &fresh));
	rs_config_close(&fresh);
	parse(&fresh, shared, strlen(shared)); /* a running job takes no name that slots share */
	ck_assert(!rs_config_take_addresses(&b, &fresh));
	ck_assert_str_eq(b.address, "h3:7600");
	rs_config_close(&fresh);
	rs_config_close(&cfg);
}
END_TEST

/* Changes of a file, and whether they change the digest. */
static const struct {
	const char *text;
	bool same;
} digests[] = {
    {R2, true},
    {"reducers: [{id: r0, address: x}, {id: r1, address: y}]\n", true},
    {R2 "job: {name: other}\n", true},
    {R2 "sharding: {shards: 64}\n", true},
    {R2 "server: {lanes: 7}\ntimeouts: {op: 3s}\n", true},
    {R2 "plan: {workers: 7}\nworkers: [{}]\n", true},
    {"reducers: [{id: r0, address: a, host: h, bandwidth: 1gbit}, {id: r1, address: b}]\n", true},
    {"reducers: [{id: r0, address: a}, {id: r2, address: b}]\n", false},
    {"reducers: [{id: r1, address: a}, {id: r0, address: b}]\n", false},
    {"reducers: [{id: r0, address: a}, {id: r1, address: b, lanes: 2}]\n", false},
    {"reducers: [{id: r0, address: a}]\n", false},
    {R2 "sharding: {shards: 66}\n", false},
    {R2 "sharding: {shards: 64, map: {0-31: r0, 32-63: r1}}\n", false},
    {R2 "sharding: {chunk_bytes: 64KiB}\n", false},
    {R2 "sharding: {window: 15}\n", false},
    {R2 "sharding: {priorities: 1}\n", false},
    {R2 "job: {deterministic: true}\n", false},
    {R2 "job: {checksum: true}\n", false},
    {R2 "groups: [{name: a}, {name: b}]\n", false},
    {R2 "job: {detect_nonfinite: off}\n", true},
    {R2 "job: {wire: fp8}\n", true}, /* each operation has its own */
};

START_TEST(digest_covers_the_settings_that_ranks_must_share)
{
	struct rs_config cfg, base;

	parse(&base, R2, strlen(R2));
	parse(&cfg, digests[_i].text, strlen(digests[_i].text));
	ck_assert_int_eq(rs_config_digest(&cfg) == rs_config_digest(&base), digests[_i].same);
	rs_config_close(&cfg);
	rs_config_close(&base);
}
END_TEST

/* Every build must compute the same number. */
START_TEST(digest_is_stable)
{
	struct rs_config cfg;

	parse(&cfg, "", 0);
	ck_assert_uint_eq(rs_config_digest(&cfg), UINT64_C(15694399869748380754));
	rs_config_close(&cfg);
}
END_TEST

START_TEST(examples_are_good)
{
	glob_t found;
	struct rs_err e = {0};

	ck_assert_msg(glob("config/examples/*.yaml", 0, NULL, &found) == 0, "run from the root of the repository");
	ck_assert_uint_ge(found.gl_pathc, 8);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct rs_config cfg;

		ck_assert_msg(rs_config_load(&cfg, found.gl_pathv[i], &e) == RS_OK, "%s", e.msg);
		check_reparses(&cfg);
		rs_config_close(&cfg);
	}
	globfree(&found);
}
END_TEST

START_TEST(readme_is_up_to_date)
{
	FILE *in = fopen("config/README.md", "r"), *out;
	static char found[1 << 17];
	char *expected = NULL;
	size_t len;

	ck_assert_msg(in, "run from the root of the repository");
	found[fread(found, 1, sizeof found - 1, in)] = '\0';
	fclose(in);
	out = open_memstream(&expected, &len);
	ck_assert_ptr_nonnull(out);
	rs_config_reference(out);
	fclose(out);
	ck_assert_msg(strcmp(found, expected) == 0, "config/README.md is out of date: run make docs");
	free(expected);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tc = tcase_create("config");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 20); /* sanitizers included */
	tcase_add_test(tc, lanes_follow_the_bandwidth);
	tcase_add_test(tc, chunks_follow_the_bandwidth);
	tcase_add_loop_test(tc, empty_files_are_the_defaults, 0, COUNT(empty) + 1);
	tcase_add_test(tc, all_keys_are_read);
	tcase_add_test(tc, too_many_reducers);
	tcase_add_test(tc, a_byte_order_mark_is_skipped);
	tcase_add_test(tc, a_pipe_of_a_shell_is_read);
	tcase_add_loop_test(tc, digest_covers_the_settings_that_ranks_must_share, 0, COUNT(digests));
	tcase_add_test(tc, addresses_are_taken_from_another_reading);
	tcase_add_test(tc, slots_may_share_a_name);
	tcase_add_test(tc, digest_is_stable);
	tcase_add_test(tc, examples_are_good);
	tcase_add_test(tc, readme_is_up_to_date);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
