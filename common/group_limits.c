/* SPDX-License-Identifier: Apache-2.0 */
#include "common/group_limits.h"

#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The files of one version of control groups. */
struct version {
	const char *memory; /* where groups are, under /sys/fs/cgroup */
	const char *limit, *usage;
	const char *cached; /* the line of memory.stat with the files that were not used for long */
	const char *cpu;    /* where groups are, under /sys/fs/cgroup */
};

static const struct version v2 = {"", "memory.max", "memory.current", "inactive_file", ""};
static const struct version v1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
				  "/cpu"};

/* What one group allows. */
typedef void lower_fn(void *ret, const char *root, const struct version *v, const char *group);

static FILE *open_file(const char *root, const char *mount, const char *group, const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s/%s", root, mount, group, name);
	return fopen(path, "re");
}

/* Reads one or two numbers from a file of a group. Returns how many there are; none if it
 * has a word, such as max. */
static int read_numbers(const char *root, const char *mount, const char *group, const char *name, uint64_t value[2])
{
	FILE *f = open_file(root, mount, group, name);
	int n;

	if (!f)
		return 0;
	n = fscanf(f, "%" SCNu64 " %" SCNu64, &value[0], &value[1]);
	fclose(f);
	return n < 0 ? 0 : n;
}

static uint64_t read_cached(const char *root, const struct version *v, const char *group)
{
	FILE *f = open_file(root, v->memory, group, "memory.stat");
	uint64_t value, found = 0;
	char line[64];

	if (!f)
		return 0;
	while (fscanf(f, "%63s %" SCNu64, line, &value) == 2)
		if (strcmp(line, v->cached) == 0)
			found = value;
	fclose(f);
	return found;
}

static void lower_memory(void *of, const char *root, const struct version *v, const char *group)
{
	struct rs_group_memory *ret = of;
	uint64_t limit[2], used[2], cached;

	if (!read_numbers(root, v->memory, group, v->limit, limit))
		return;
	if (limit[0] >= INT64_MAX / 2) /* version 1 writes a number of this size for no limit */
		return;
	if (!read_numbers(root, v->memory, group, v->usage, used))
		used[0] = 0;
	cached = read_cached(root, v, group);
	used[0] -= cached < used[0] ? cached : used[0];
	if (limit[0] < ret->limit)
		ret->limit = limit[0];
	if (used[0] >= limit[0])
		ret->left = 0;
	else if (limit[0] - used[0] < ret->left)
		ret->left = limit[0] - used[0];
}

/* CPU time is limited to so many microseconds in each period. */
static void lower_cpus(void *of, const char *root, const struct version *v, const char *group)
{
	uint64_t limit[2], period[2], cpus;
	unsigned *ret = of;

	if (v == &v1) {
		if (!read_numbers(root, v->cpu, group, "cpu.cfs_quota_us", limit) || limit[0] >= INT64_MAX ||
		    !read_numbers(root, v->cpu, group, "cpu.cfs_period_us", period))
			return; /* a limit of -1 is none */
		limit[1] = period[0];
	} else if (read_numbers(root, v->cpu, group, "cpu.max", limit) != 2) {
		return;
	}
	if (!limit[1])
		return;
	cpus = limit[0] / limit[1] + (limit[0] % limit[1] > 0);
	if (cpus < *ret)
		*ret = cpus ? (unsigned)cpus : 1;
}

/* Does it with a group and all above it. The group's name is changed. */
static void lower_to_groups(lower_fn *lower, void *ret, const char *root, const struct version *v, char *group)
{
	for (char *slash; (slash = strrchr(group, '/')); *slash = '\0')
		if (slash[1])
			lower(ret, root, v, group);
	lower(ret, root, v, ""); /* in a container, its own */
}

/* Returns whether a list such as "cpu,memory" has a word. */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += n)
		if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ','))
			return true;
	return false;
}

/* Does it with all groups of this process. controller: of version 1. */
static void lower_to_all(lower_fn *lower, void *ret, const char *root, const char *controller)
{
	char path[PATH_MAX], line[PATH_MAX + 128];
	FILE *f;

	snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof line, f)) { /* "0::/a/b", or "4:cpu,memory:/a/b" */
		char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (!list[1])
			lower_to_groups(lower, ret, root, &v2, group);
		else if (has_word(list + 1, controller))
			lower_to_groups(lower, ret, root, &v1, group);
	}
	fclose(f);
}

void rs_group_memory_read(struct rs_group_memory *ret, const char *root)
{
	*ret = (struct rs_group_memory){.limit = UINT64_MAX, .left = UINT64_MAX};
	lower_to_all(lower_memory, ret, root, "memory");
}

/* Returns the number of CPUs of the affinity of this process; 0: it is not known. */
static unsigned affinity(void)
{
	enum { MOST = 1 << 16 }; /* the kernel refuses a set that is too small for its CPUs */
	unsigned found = 0;

	for (int n = 1024; !found && n <= MOST; n *= 2) {
		cpu_set_t *set = CPU_ALLOC(n);

		if (!set)
			return 0;
		if (!sched_getaffinity(0, CPU_ALLOC_SIZE(n), set))
			found = (unsigned)CPU_COUNT_S(CPU_ALLOC_SIZE(n), set);
		CPU_FREE(set);
	}
	return found;
}

unsigned rs_usable_cpus(const char *root)
{
	unsigned cpus = affinity();
	long online = cpus ? 0 : sysconf(_SC_NPROCESSORS_ONLN);

	if (!cpus)
		cpus = online > 0 ? (unsigned)online : 1;
	lower_to_all(lower_cpus, &cpus, root, "cpu");
	return cpus;
}
