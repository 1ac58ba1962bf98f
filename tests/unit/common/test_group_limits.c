/* SPDX-License-Identifier: Apache-2.0 */
#include "common/group_limits.h"

#include <check.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static char root[] = "/tmp/test_group_limits.XXXXXX";

/* Writes a file below root, and makes the folders above it. */
static void put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof full, "%s/%s", root, path);
	for (char *slash = full + sizeof root; *slash; slash++) {
		if (*slash != '/')
			continue;
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
	f = fopen(full, "we");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static void make_root(void)
{
	snprintf(root, sizeof root, "/tmp/test_group_limits.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static void remove_root(void)
{
	char command[64];

	snprintf(command, sizeof command, "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void check_read(uint64_t limit, uint64_t left)
{
	struct rs_group_memory m;

	rs_group_memory_read(&m, root);
	ck_assert_uint_eq(m.limit, limit);
	ck_assert_uint_eq(m.left, left);
}

START_TEST(version_2)
{
	put("proc/self/cgroup", "0::/slice/unit\n");
	put("sys/fs/cgroup/slice/unit/memory.max", "max\n");
	check_read(UINT64_MAX, UINT64_MAX);
	put("sys/fs/cgroup/slice/memory.max", "1000000\n");
	put("sys/fs/cgroup/slice/memory.current", "400000\n");
	check_read(1000000, 600000);
	put("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 300000\n");
	check_read(1000000, 900000);
	put("sys/fs/cgroup/slice/unit/memory.max", "2000000\n"); /* its limit is higher, but it has less left */
	put("sys/fs/cgroup/slice/unit/memory.current", "1990000\n");
	check_read(1000000, 10000);
	put("sys/fs/cgroup/slice/unit/memory.current", "2990000\n");
	check_read(1000000, 0);
}
END_TEST

START_TEST(version_1)
{
	put("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\n3:memoryless:/c\n");
	put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
	check_read(UINT64_MAX, UINT64_MAX);
	put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "268435456\n");
	put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "200000000\n");
	put("sys/fs/cgroup/memory/a/memory.stat", "cache 5\ntotal_inactive_file 100000000\n");
	check_read(268435456, 168435456);
}
END_TEST

START_TEST(a_container_sees_its_own_group_as_the_root)
{
	put("proc/self/cgroup", "4:memory:/docker/0123\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
	put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
	check_read(268435456, 268435455);
}
END_TEST

/* CPU time that version 2 and version 1 allow, and the CPUs that this is. */
static const struct {
	const char *group, *file[3], *text[3];
	unsigned cpus; /* UINT_MAX: as many as the affinity has */
} quotas[] = {
    {"0::/a/b", {"a/b/cpu.max"}, {"max 100000\n"}, UINT_MAX},
    {"0::/a/b", {"a/b/cpu.max"}, {"100000 100000\n"}, 1},
    {"0::/a/b", {"a/b/cpu.max"}, {"1000 100000\n"}, 1},
    {"0::/a/b", {"a/cpu.max", "a/b/cpu.max"}, {"50000 100000\n", "max 100000\n"}, 1},
    {"0::/", {"cpu.max"}, {"20000 100000\n"}, 1},
    {"0::/", {"cpu.max"}, {"0 0\n"}, UINT_MAX},
    {"0::/", {"cpu.max"}, {"18446744073709551615 1\n"}, UINT_MAX},
    {"0::/", {"cpu.max"}, {"much\n"}, UINT_MAX},
    {"4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"}, {"-1\n", "100000\n"}, UINT_MAX},
    {"4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"}, {"30000\n", "100000\n"}, 1},
    {"4:cpuacct:/a", {"cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"}, {"30000\n", "100000\n"}, UINT_MAX},
    {"4:cpuacct,cpu:/a", {"cpu/a/cpu.cfs_quota_us"}, {"30000\n"}, UINT_MAX},
};

START_TEST(cpu_time)
{
	unsigned all = rs_usable_cpus("/no/such/folder");

	put("proc/self/cgroup", quotas[_i].group);
	for (unsigned i = 0; i < 3 && quotas[_i].file[i]; i++) {
		char path[128];

		snprintf(path, sizeof path, "sys/fs/cgroup/%s", quotas[_i].file[i]);
		put(path, quotas[_i].text[i]);
	}
	ck_assert_uint_eq(rs_usable_cpus(root), quotas[_i].cpus == UINT_MAX ? all : quotas[_i].cpus);
}
END_TEST

START_TEST(more_time_than_cpus)
{
	unsigned all = rs_usable_cpus("/no/such/folder");
	char text[64];

	put("proc/self/cgroup", "0::/");
	snprintf(text, sizeof text, "%u 100000\n", all * 100000 + 1);
	put("sys/fs/cgroup/cpu.max", text);
	ck_assert_uint_eq(rs_usable_cpus(root), all);
}
END_TEST

/* Part of a CPU counts as one: a group with time for 1.2 CPUs can use 2 at a time. */
START_TEST(part_of_a_cpu)
{
	unsigned all = rs_usable_cpus("/no/such/folder");

	put("proc/self/cgroup", "0::/");
	put("sys/fs/cgroup/cpu.max", "120000 100000\n");
	ck_assert_uint_eq(rs_usable_cpus(root), all < 2 ? all : 2);
}
END_TEST

START_TEST(affinity)
{
	cpu_set_t set;
	unsigned first = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
	while (!CPU_ISSET(first, &set))
		first++;
	CPU_ZERO(&set);
	CPU_SET(first, &set);
	ck_assert_int_eq(sched_setaffinity(0, sizeof set, &set), 0);
	ck_assert_uint_eq(rs_usable_cpus("/no/such/folder"), 1);
}
END_TEST

START_TEST(nothing_to_read_is_no_limit)
{
	check_read(UINT64_MAX, UINT64_MAX);
	put("proc/self/cgroup", "no colon\n0:\n");
	check_read(UINT64_MAX, UINT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("group_limits");
	TCase *t = tcase_create("group_limits");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, make_root, remove_root);
	tcase_add_test(t, version_2);
	tcase_add_test(t, version_1);
	tcase_add_test(t, a_container_sees_its_own_group_as_the_root);
	tcase_add_loop_test(t, cpu_time, 0, sizeof quotas / sizeof quotas[0]);
	tcase_add_test(t, more_time_than_cpus);
	tcase_add_test(t, part_of_a_cpu);
	tcase_add_test(t, affinity);
	tcase_add_test(t, nothing_to_read_is_no_limit);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
