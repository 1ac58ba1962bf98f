/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files that are refused, and the sentences that say why. */
#include "config/config.h"

#include "config/ydoc.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define R2           "reducers: [{id: r0, address: a}, {id: r1, address: b}]\n"
#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

/* Refused files and their errors. */
static const struct {
	const char *text, *message;
} bad[] = {
    /* kinds of nodes */
    {"- 1\n", "f:1:1: found a list, expected a mapping of sections"},
    {"hello\n", "f:1:1: found \"hello\", expected a mapping of sections"},
    {"job: 3\n", "f:1:6: job: found \"3\", expected a mapping of keys"},
    {"job: [a]\n", "f:1:6: job: found a list, expected a mapping of keys"},
    {"job: ''\n", "f:1:6: job: found \"\", expected a mapping of keys"},
    {"job:\n  name: [a]\n", "f:2:9: job.name: found a list, expected 0 to 63 letters, digits, '.', '_' or '-'"},
    {"job:\n  name: {a: b}\n", "f:2:9: job.name: found a mapping, expected 0 to 63 letters, digits, '.', '_' or '-'"},
    {"job:\n  name:\n", "f:2:8: job.name: found nothing, expected 0 to 63 letters, digits, '.', '_' or '-'"},
    {"job: {name: ~}\n", "f:1:13: job.name: found nothing, expected 0 to 63 letters, digits, '.', '_' or '-'"},
    {"reducers:\n  r0: {address: a}\n", "f:2:3: reducers: found a mapping, expected a list of 1 to 256 reducers"},
    {"reducers:\n", "f:1:10: reducers: found nothing, expected a list of 1 to 256 reducers"},
    {"reducers: []\n", "f:1:11: reducers: found a list of 0, expected a list of 1 to 256 reducers"},
    {"reducers: [r0]\n", "f:1:12: reducers[0]: found \"r0\", expected a mapping with id"},
    {"sharding: {map: [r0]}\n", "f:1:17: sharding.map: found a list, expected a mapping from shards to reducers, as "
				"{0-31: r0, 32-63: r1}"},
    {"sharding: {map: }\n", "f:1:17: sharding.map: found nothing, expected a mapping from shards to reducers, as "
			    "{0-31: r0, 32-63: r1}"},
    {"? [a]\n: b\n", "f:1:3: found a list, expected the name of a section"},
    {"job: {? {a: b} : c}\n", "f:1:9: job: found a mapping, expected the name of a key"},

    /* unknown and repeated keys */
    {"jobs: {}\n", "f:1:1: found unknown section \"jobs\", did you mean job?"},
    {"xyzzy: {}\n",
     "f:1:1: found unknown section \"xyzzy\", expected one of job, reducers, sharding, groups, server, agent, "
     "timeouts, security, access, logging, plan, workers"},
    {"chunk_bytes: 1\n", "f:1:1: found unknown section \"chunk_bytes\", did you mean sharding.chunk_bytes?"},
    {"sharding:\n  shard: 3\n", "f:2:3: sharding: found unknown key \"shard\", did you mean shards?"},
    {"sharding: {chunk: 3}\n", "f:1:12: sharding: found unknown key \"chunk\", did you mean chunk_bytes?"},
    {"timeouts: {conect: 3s}\n", "f:1:12: timeouts: found unknown key \"conect\", did you mean connect?"},
    {"server: {window: 3}\n", "f:1:10: server: found unknown key \"window\", did you mean sharding.window?"},
    {"sharding: {colour: 3}\n", "f:1:12: sharding: found unknown key \"colour\", expected one of shards, "
				"chunk_bytes, window, decoupled, priorities, map, rebalance"},
    {"reducers: [{id: a, adress: b}]\n", "f:1:20: reducers: found unknown key \"adress\", did you mean address?"},
    {"job: {}\njob: {}\n", "f:2:1: job: found a second time, expected once (first in line 1)"},
    {"job:\n  name: a\n  name: b\n", "f:3:3: job.name: found a second time, expected once (first in line 2)"},
    {"reducers: [{id: a, id: b}]\n", "f:1:20: reducers[0].id: found a second time, expected once (first in line 1)"},

    /* values */
    {"job: {name: a b}\n", "f:1:13: job.name: found \"a b\", expected 0 to 63 letters, digits, '.', '_' or '-'"},
    {"job: {name: \"a\\nb\"}\n", "f:1:13: job.name: found \"a?b\", expected 0 to 63 letters, digits, '.', '_' or '-'"},
    {"job: {name: "
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n",
     "f:1:13: job.name: found \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"..., expected 0 to 63 letters, "
     "digits, '.', '_' or '-'"},
    {"job: {checksum: yes}\n", "f:1:17: job.checksum: found \"yes\", expected true or false"},
    {"job: {detect_nonfinite: true}\n", "f:1:25: job.detect_nonfinite: found \"true\", expected off, log or fail"},
    {"job: {wire: fp4}\n",
     "f:1:13: job.wire: found \"fp4\", expected same, bf16, fp8, int8, fp16 or int4, or a mapping as "
     "{up: fp8, down: bf16}"},
    {"job: {wire: }\n",
     "f:1:13: job.wire: found nothing, expected same, bf16, fp8, int8, fp16 or int4, or a mapping as "
     "{up: fp8, down: bf16}"},
    {"job: {wire: [fp8]}\n",
     "f:1:13: job.wire: found a list, expected same, bf16, fp8, int8, fp16 or int4, or a mapping as "
     "{up: fp8, down: bf16}"},
    {"job:\n  wire:\n    up: fp32\n",
     "f:3:9: job.wire.up: found \"fp32\", expected same, bf16, fp8, int8, fp16 or int4"},
    {"job: {wire: {down: {}}}\n",
     "f:1:20: job.wire.down: found a mapping, expected same, bf16, fp8, int8, fp16 or int4"},
    {"job: {wire: {rounding: up}}\n", "f:1:24: job.wire.rounding: found \"up\", expected nearest or stochastic"},
    {"job: {wire: {down: fp8, down: fp8}}\n",
     "f:1:25: job.wire.down: found a second time, expected once (first in line 1)"},
    {"job: {wire: {upp: fp8}}\n", "f:1:14: job.wire: found unknown key \"upp\", did you mean up?"},
    {"job.wire: {up: fp8}\n", "f:1:1: found unknown section \"job.wire\", did you mean job?"},
    {"job: {up: fp8}\n", "f:1:7: job: found unknown key \"up\", did you mean job.wire.up?"},
    {"server: {max_jobs: 0}\n", "f:1:20: server.max_jobs: found \"0\", expected a whole number from 1 to 4096"},
    {"server: {max_jobs: 4097}\n", "f:1:20: server.max_jobs: found \"4097\", expected a whole number from 1 to 4096"},
    {"server: {max_jobs: -1}\n", "f:1:20: server.max_jobs: found \"-1\", expected a whole number from 1 to 4096"},
    {"server: {max_jobs: 1.5}\n", "f:1:20: server.max_jobs: found \"1.5\", expected a whole number from 1 to 4096"},
    {"server: {max_jobs: 0x10}\n", "f:1:20: server.max_jobs: found \"0x10\", expected a whole number from 1 to 4096"},
    {"server: {max_jobs: 18446744073709551617}\n",
     "f:1:20: server.max_jobs: found \"18446744073709551617\", expected a whole number from 1 to 4096"},
    {"server: {lanes: 010}\n",
     "f:1:17: server.lanes: found \"010\", expected a whole number from 1 to 64, or auto, without 0 in front"},
    {"server: {lanes: 65}\n", "f:1:17: server.lanes: found \"65\", expected a whole number from 1 to 64, or auto"},
    {"server: {cpu: sse}\n", "f:1:15: server.cpu: found \"sse\", expected auto, scalar, avx2, avx512 or neon"},
    {"logging: {level: verbose}\n",
     "f:1:18: logging.level: found \"verbose\", expected error, warn, info, debug or trace"},
    {"logging: {format: xml}\n", "f:1:19: logging.format: found \"xml\", expected text or json"},
    {"sharding: {chunk_bytes: 65}\n",
     "f:1:25: sharding.chunk_bytes: found \"65\", expected bytes, or a number with "
     "KiB, MiB, GiB, kB, MB or GB (b would be bits), from 1KiB to 4MiB that is a multiple of 64, or auto"},
    {"sharding: {chunk_bytes: 1k}\n",
     "f:1:25: sharding.chunk_bytes: found \"1k\", expected bytes, or a number with "
     "KiB, MiB, GiB, kB, MB or GB (b would be bits), from 1KiB to 4MiB that is a multiple of 64, or auto"},
    {"sharding: {chunk_bytes: 1057 k}\n",
     "f:1:25: sharding.chunk_bytes: found \"1057 k\", expected bytes, or a number with "
     "KiB, MiB, GiB, kB, MB or GB (b would be bits), from 1KiB to 4MiB that is a multiple of 64, or auto"},
    {"server: {memory: 1K}\n", "f:1:18: server.memory: found \"1K\", expected bytes, or a number with KiB, MiB, GiB, "
			       "kB, MB or GB (b would be bits), from 1MiB to 16384GiB"},
    {"server: {memory: 99999999999GiB}\n",
     "f:1:18: server.memory: found \"99999999999GiB\", expected bytes, or a number with KiB, MiB, GiB, "
     "kB, MB or GB (b would be bits), from 1MiB to 16384GiB"},
    {"timeouts: {detect: 10}\n", "f:1:20: timeouts.detect: found \"10\", expected a number with ms, s, min or h, "
				 "from 400ms to 1h"},
    {"timeouts: {detect: 0}\n", "f:1:20: timeouts.detect: found \"0\", expected a number with ms, s, min or h, "
				"from 400ms to 1h"},
    {"timeouts: {op: 99ms}\n", "f:1:16: timeouts.op: found \"99ms\", expected a number with ms, s, min or h, "
			       "from 100ms to 24h, or 0"},
    {"reducers: [{id: a, address: b, grpc: 'c:0'}]\n",
     "f:1:38: reducers[0].grpc: found \"c:0\", expected "
     "host:port or [IPv6]:port, with a port from 1 to 65535, or nothing"},
    {"reducers: [{id: a, address: b, weight: 0}]\n", "f:1:40: reducers[0].weight: found \"0\", expected a number "
						     "from 0.000001 to 1000000 with at most 6 decimals"},
    {"reducers: [{id: a, address: b, weight: 1.}]\n", "f:1:40: reducers[0].weight: found \"1.\", expected a number "
						      "from 0.000001 to 1000000 with at most 6 decimals"},
    {"reducers: [{id: a, address: b, weight: 1.0000001}]\n",
     "f:1:40: reducers[0].weight: found \"1.0000001\", expected a number from 0.000001 to 1000000 with at most 6 "
     "decimals"},
    {"reducers: [{id: a, address: b, weight: nan}]\n", "f:1:40: reducers[0].weight: found \"nan\", expected a number "
						       "from 0.000001 to 1000000 with at most 6 decimals"},

    /* names of earlier versions */
    {"limits: {jobs: 3}\n",
     "f:1:1: found unknown section \"limits\", it is now called server.max_jobs, "
     "server.max_workers, server.max_connections, server.memory, agent.max_jobs and job.max_ops"},
    {"reducers: [{id: a, address: b, control: c}]\n",
     "f:1:32: reducers: found unknown key \"control\", it is now called grpc"},
    {"security: {insecure: true}\n",
     "f:1:12: security: found unknown key \"insecure\", it is now called server.insecure"},
    {"security: {secrets: /s}\n",
     "f:1:12: security: found unknown key \"secrets\", it is now called server.secrets_dir"},

    /* reducers */
    {"reducers:\n  - id: a\n", "f:2:5: reducers[0]: found no address, expected one"},
    {"reducers:\n  - address: a\n", "f:2:5: reducers[0]: found no id, expected one"},
    {"reducers:\n  - {id: a, address: x}\n  - {id: a, address: y}\n",
     "f:3:10: reducers[1]: found id a, which reducers[0] has too, expected different ones"},
    {"reducers:\n  - {id: a, address: x}\n  - {id: b, address: X:7600}\n",
     "f:3:22: reducers[1]: found address X:7600, which reducers[0] has too, expected different ones, or a name "
     "of several machines and job.min_reducers below the number of reducers"},
    {"job: {min_reducers: 1}\nreducers:\n  - {id: a, address: 10.0.0.1}\n  - {id: b, address: 10.0.0.1}\n",
     "f:4:22: reducers[1]: found address 10.0.0.1:7600, which reducers[0] has too, expected different ones, or a name "
     "of several machines and job.min_reducers below the number of reducers"},
    {"workers: [r0]\n", "f:1:11: workers[0]: found \"r0\", expected a mapping of keys"},
    {"workers: []\n", "f:1:10: workers: found a list of 0, expected a list of 1 to 4096 workers"},
    {"workers: [{}, {host: 'a b'}]\n",
     "f:1:22: workers[1].host: found \"a b\", expected a machine's name or address: 1 "
     "to 255 letters, digits, '.', '_', '-', ':' or '%'"},
    {"workers: [{host: ''}]\n", "f:1:18: workers[0].host: found \"\", expected a machine's name or address: 1 to 255 "
				"letters, digits, '.', '_', '-', ':' or '%'"},
    {"plan: {bandwidth: 1g}\n",
     "f:1:19: plan.bandwidth: found \"1g\", expected a number with kbit, mbit or gbit, or as "
     "10Gbps (B would be bytes), from 1kbit to 100000gbit, or unknown"},
    {"reducers: [{id: a, address: b, bandwidth: 999bit}]\n",
     "f:1:43: reducers[0].bandwidth: found \"999bit\", expected a number with kbit, mbit or gbit, or as "
     "10Gbps (B would be bytes), from 1kbit to 100000gbit, or auto"},
    {"plan: {workers: 1}\n", "f:1:17: plan.workers: found \"1\", expected a whole number from 2 to 4096, or auto"},
    {"job: {min_reducers: 2}\nreducers: [{id: a, address: b}, {id: c}]\n",
     "f:2:33: reducers[1]: found no address, expected one"},
    {R2 "sharding: {decoupled: 1000}\n",
     "f:2:23: sharding.decoupled: found \"1000\", expected bytes, or a number with KiB, MiB, GiB, kB, MB or GB "
     "(b would be bits), from 1KiB to 1024GiB, or off"},
    {R2 "sharding: {decoupled: 65MiB}\n", "f:2:23: sharding.decoupled: found 65MiB, expected at most about 64MiB, 1024 "
					  "chunks of 32KiB on each lane: use more lanes"},
    {R2 "sharding: {decoupled: 64MiB, map: {0-2: r0, 3: r1}}\n",
     "f:2:23: sharding.decoupled: found 64MiB, expected at most about 43690KiB, 1024 chunks of 32KiB on each lane: use "
     "more lanes"},
    {R2 "sharding: {decoupled: 1MiB}\njob: {features: baseline}\n",
     "f:2:23: sharding.decoupled: found 1MiB, expected off with job.features: baseline, which has no CREDIT"},
    {"job: {min_reducers: 1, failover: fail}\nreducers: [{id: a, address: b}, {id: c}]\n",
     "f:2:33: reducers[1]: found no address, expected one"},
    {"reducers: [{id: a, address: b, lanes: 1}, {id: c}]\n", "f:1:43: reducers[1]: found no address, expected one"},

    /* shards */
    {R2 "sharding: {shards: 1}\n", "f:2:20: sharding.shards: found 1, expected at least 2, one for each reducer"},
    {R2 "sharding:\n  map:\n    0-7: r0\n    7-9: r1\n",
     "f:5:5: sharding.map: shard 7 belongs to r0 (line 4) and r1 (line 5), expected one reducer"},
    {R2 "sharding: {map: {\"0-3,2\": r0}}\n",
     "f:2:18: sharding.map: shard 2 belongs to r0 (line 2) and r0 (line 2), expected one reducer"},
    {R2 "sharding:\n  shards: 64\n  map: {0-31: r0}\n",
     "f:4:8: sharding.map: shards 32-63 belong to no reducer, expected an owner for all 64"},
    {R2 "sharding: {map: {0: r0, \"3-4,9\": r1, 6: r0}}\n",
     "f:2:17: sharding.map: shards 1-2, 5, 7-8 belong to no reducer, expected an owner for all 10"},
    {R2 "sharding: {map: {1: r0}}\n",
     "f:2:17: sharding.map: shard 0 belongs to no reducer, expected an owner for all 2"},
    {R2 "sharding: {map: {}}\n", "f:2:17: sharding.map: shard 0 belongs to no reducer, expected an owner for all 1"},
    {R2 "sharding: {shards: 8, map: {0-8: r0}}\n",
     "f:2:29: sharding.map: found shard 8, expected 0 to 7 since there are 8 shards"},
    {R2 "sharding: {map: {0-4096: r0}}\n", "f:2:18: sharding.map: found shard 4096, expected 0 to 4095"},
    {R2 "sharding: {map: {0-3: r2}}\n", "f:2:23: sharding.map: found \"r2\", expected a reducer; did you mean r0?"},
    {R2 "sharding: {map: {0-3: zebra}}\n", "f:2:23: sharding.map: found \"zebra\", expected a reducer, one of r0, r1"},
    {R2 "sharding: {map: {0-3: }}\n", "f:2:23: sharding.map: found nothing, expected a reducer, one of r0, r1"},
    {R2 "sharding: {map: {0-3: [r0]}}\n", "f:2:23: sharding.map: found a list, expected a reducer, one of r0, r1"},
    {R2 "sharding: {map: {0-3,8: r0}}\n", "f:2:21: sharding.map: found nothing, expected a reducer, one of r0, r1"},
    {R2 "sharding: {map: {3-1: r0}}\n", "f:2:18: sharding.map: found \"3-1\", expected shards as 7, 0-15 or \"0-3,8\""},
    {R2 "sharding: {map: {-1: r0}}\n", "f:2:18: sharding.map: found \"-1\", expected shards as 7, 0-15 or \"0-3,8\""},
    {R2 "sharding: {map: {\"0-3,\": r0}}\n",
     "f:2:18: sharding.map: found \"0-3,\", expected shards as 7, 0-15 or \"0-3,8\""},
    {R2 "sharding: {map: {\"\": r0}}\n", "f:2:18: sharding.map: found \"\", expected shards as 7, 0-15 or \"0-3,8\""},
    {R2 "sharding: {map: {[0]: r0}}\n", "f:2:18: sharding.map: found a list, expected shards as 7, 0-15 or \"0-3,8\""},
    {R2 "sharding: {map: {0-99999999999999999999: r0}}\n",
     "f:2:18: sharding.map: found \"0-99999999999999999999\", expected shards as 7, 0-15 or \"0-3,8\""},

    /* YAML that is more, or less, than this */
    {"job: {name: &a b}\n", "f:1:13: found an anchor (&), which is not supported here"},
    {"job: &a {name: b}\n", "f:1:6: found an anchor (&), which is not supported here"},
    {"job: *a\n", "f:1:6: found an alias (*), which is not supported here"},
    {"job: {name: !!str b}\n", "f:1:13: found a tag (!), which is not supported here"},
    {"job: !x {name: b}\n", "f:1:6: found a tag (!), which is not supported here"},
    {"job: {}\n---\njob: {}\n", "f:2:1: found a second document, expected one"},
    {"%YAML 1.1\n---\njob: {}\n", "f:1:1: found a directive (%), which is not supported here"},
    {"# x\n%TAG ! a\n", "f:2:1: found a directive (%), which is not supported here"},
    {"job: {name: \"a\\0b\"}\n", "f:1:13: found a zero byte in a text"},
    {"[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]\n", "f:1:17: lists or mappings are nested too deeply"},
    {"job: {name: a\n", "f:2:1: not valid YAML: while parsing a flow mapping: did not find expected ',' or '}'"},
    {"job:\n\tname: a\n", "f:2:1: not valid YAML: while scanning for the next token: found character that cannot "
			  "start any token"},
    {"job:\n  name: \xff\n", "f:2:9: not a text in UTF-8: invalid leading UTF-8 octet"},
    {"job: \xc3\xa9\xc3", "f:1:7: not a text in UTF-8: incomplete UTF-8 octet sequence"},
    {"job: \x01\n", "f:1:6: not a text in UTF-8: control characters are not allowed"},
};

START_TEST(bad_files_say_why)
{
	struct rs_config cfg;
	struct rs_err e = {0};

	memset(&cfg, 0x5a, sizeof cfg);
	ck_assert_int_eq(rs_config_parse(&cfg, "f", bad[_i].text, strlen(bad[_i].text), &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, bad[_i].message);
	ck_assert_int_eq(e.code, RS_ECONFIG);
	ck_assert_int_eq(cfg.job.name[0], 0x5a); /* set only on success */
	ck_assert_int_eq(rs_config_parse(&cfg, "f", bad[_i].text, strlen(bad[_i].text), NULL), RS_ECONFIG);
}
END_TEST

static void collect(void *user, const struct rs_err *e)
{
	char *all = user;

	ck_assert_int_eq(e->code, RS_ECONFIG);
	snprintf(all + strlen(all), 1024 - strlen(all), "%.12s|", e->msg);
}

/* Files with several errors, and the beginnings of all of them. */
static const struct {
	const char *text, *reported;
} several[] = {
    {"job: {name: a b, checksum: 3}\n", "f:1:13: job.|f:1:28: job.|"},
    {"jobs: {}\njob: 3\nsharding:\n  windo: 1\n  window: 0\n", "f:1:1: found|f:2:6: job: |f:4:3: shard|f:5:11: shar|"},
    {"reducers: [{id: a}, r1, {id: a, address: b, lanes: x}, {id: '', address: c}]\n",
     "f:1:21: redu|f:1:52: redu|f:1:61: redu|"},
    {"reducers: [{id: a, address: b}, {id: a, address: c}]\n", "f:1:38: redu|"},
    /* errors between keys are only looked for if the keys are good; the file as a whole
     * is not reported */
    {"job: {min_reducers: 5, name: a b}\n", "f:1:30: job.|"},
    {"job: {min_reducers: 5}\n", ""},
    {"job: [\n", ""},
};

START_TEST(all_errors_are_reported)
{
	char all[1024] = "";
	struct rs_config cfg;
	struct rs_err e;
	const char *text = several[_i].text;

	ck_assert_int_eq(rs_config_parse_all(&cfg, "f", text, strlen(text), collect, all, &e), RS_ECONFIG);
	ck_assert_str_eq(all, several[_i].reported);
	ck_assert_int_eq(strncmp(e.msg, "f:", 2), 0);
}
END_TEST

/* Pieces that, repeated up to the maximal file size, have made YAML parsers slow or
 * filled memory. */
static const char *const hostile[] = {
    "[",
    "{",
    "- ",
    "? ",
    "a: ",
    "a:\n ",
    "- - - -\n",
    "\"",
    "'",
    "\\",
    "#",
    "\n",
    "\r",
    " ",
    "\t",
    "&a ",
    "*a ",
    "!t ",
    "%TAG !a! b\n",
    "--- ",
    "...\n",
    "|\n",
    ">\n",
    "a\n",
    "a b ",
    "a: b\n",
    "job:\n",
    "[[],",
    "{a: b}",
    "{a,",
    "a: [",
    ", ",
    "\xc2\x85",
    "\xe2\x80\xa8%",
    "\"\\u0041",
    "? ? - ",
    "[a, ? b: ",
    "\xef\xbb\xbf",
};

START_TEST(hostile_files_are_refused_quickly)
{
	size_t len = YDOC_BYTES_MAX, piece = strlen(hostile[_i]);
	char *text = malloc(len);
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_ptr_nonnull(text);
	for (size_t i = 0; i < len; i++)
		text[i] = hostile[_i][i % piece];
	if (rs_config_parse(&cfg, "f", text, len, &e) == RS_OK)
		rs_config_close(&cfg);
	free(text);
}
END_TEST

START_TEST(large_and_non_utf8_files_are_refused)
{
	char *text = calloc(1, YDOC_BYTES_MAX + 1);
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(rs_config_parse(&cfg, "f", text, YDOC_BYTES_MAX + 1, &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, "f: found more than 256 KiB, expected at most that");
	ck_assert_int_eq(rs_config_parse(&cfg, "f", "a\0b", 3, &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, "f:1:2: not a text in UTF-8: control characters are not allowed");
	ck_assert_int_eq(rs_config_parse(&cfg, "f", "\xff\xfej\0o\0b\0", 8, &e), RS_ECONFIG); /* UTF-16 */
	ck_assert_str_eq(e.msg, "f:1:1: not a text in UTF-8: invalid leading UTF-8 octet");
	memset(text, 'n', 400);
	strcpy(text + 400, "/end.yaml");
	ck_assert_int_eq(rs_config_parse(&cfg, text, "x", 1, &e), RS_ECONFIG);
	ck_assert_ptr_nonnull(strstr(e.msg, "nn/end.yaml:1:1: found \"x\", expected a mapping of sections"));
	ck_assert_int_eq(strncmp(e.msg, "...n", 4), 0);
	free(text);
}
END_TEST

START_TEST(files_that_cannot_be_read)
{
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_int_eq(rs_config_load(&cfg, "/nonexistent/a.yaml", &e), RS_EIO);
	ck_assert_str_eq(e.msg, "cannot open /nonexistent/a.yaml: No such file or directory");
	ck_assert_int_eq(rs_config_load(&cfg, "", &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, "the name of the configuration file is empty");
	ck_assert_int_eq(rs_config_load(&cfg, "/", &e), RS_EIO);
	ck_assert_str_eq(e.msg, "cannot read /: Is a directory");
	ck_assert_int_eq(rs_config_load(&cfg, "/dev/zero", &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, "/dev/zero: found more than 256 KiB, expected at most that");
	ck_assert_int_eq(rs_config_load(&cfg, "/dev/null", &e), RS_OK);
	rs_config_close(&cfg);
}
END_TEST

/* Nobody writes to a named pipe. */
START_TEST(a_named_pipe_is_refused)
{
	char path[64], folder[] = "/tmp/reduction-XXXXXX";
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/fifo", folder);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(rs_config_load(&cfg, path, &e), RS_ECONFIG);
	ck_assert_ptr_nonnull(strstr(e.msg, "/fifo is not a regular file: it is a named pipe"));
	unlink(path);
	rmdir(folder);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config_refused");
	TCase *tc = tcase_create("config_refused");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 20); /* sanitizers included; the hostile files take well below a second without */
	tcase_add_loop_test(tc, bad_files_say_why, 0, COUNT(bad));
	tcase_add_loop_test(tc, all_errors_are_reported, 0, COUNT(several));
	tcase_add_loop_test(tc, hostile_files_are_refused_quickly, 0, COUNT(hostile));
	tcase_add_test(tc, large_and_non_utf8_files_are_refused);
	tcase_add_test(tc, files_that_cannot_be_read);
	tcase_add_test(tc, a_named_pipe_is_refused);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
