/* SPDX-License-Identifier: Apache-2.0 */
#include "common/group_memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The files of one version of control groups. */
struct version {
	const char *mount; /* under /sys/fs/cgroup */
	const char *limit, *usage;
	const char *cached; /* the line of memory.stat with the files that were not used for long */
};

static const struct version v2 = {"", "memory.max", "memory.current", "inactive_file"};
static const struct version v1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

static FILE *open_file(const char *root, const struct version *v, const char *group, const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s/%s", root, v->mount, group, name);
	return fopen(path, "re");
}

/* Returns the number in a file of a group; `none` if it has none, such as the word
 * max. */
static uint64_t read_number(const char *root, const struct version *v, const char *group, const char *name,
			    uint64_t none)
{
	FILE *f = open_file(root, v, group, name);
	uint64_t value = none;

	if (!f)
		return none;
	if (fscanf(f, "%" SCNu64, &value) != 1)
		value = none;
	fclose(f);
	return value;
}

static uint64_t read_cached(const char *root, const struct version *v, const char *group)
{
	FILE *f = open_file(root, v, group, "memory.stat");
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

/* Lowers *ret to what one group allows. */
static void lower_to_group(struct rs_group_memory *ret, const char *root, const struct version *v, const char *group)
{
	uint64_t limit = read_number(root, v, group, v->limit, UINT64_MAX), used, cached;

	if (limit >= INT64_MAX / 2) /* version 1 writes a number of this size for no limit */
		return;
	used = read_number(root, v, group, v->usage, 0);
	cached = read_cached(root, v, group);
	used -= cached < used ? cached : used;
	if (limit < ret->limit)
		ret->limit = limit;
	if (used >= limit)
		ret->left = 0;
	else if (limit - used < ret->left)
		ret->left = limit - used;
}

/* Does the same with a group and all above it. The group's name is changed. */
static void lower_to_groups(struct rs_group_memory *ret, const char *root, const struct version *v, char *group)
{
	for (char *slash; (slash = strrchr(group, '/')); *slash = '\0')
		if (slash[1])
			lower_to_group(ret, root, v, group);
	lower_to_group(ret, root, v, ""); /* in a container, its own */
}

/* Returns whether a list such as "cpu,memory" has the word memory. */
static bool has_memory(const char *list)
{
	static const char word[] = "memory";
	const char *at = strstr(list, word);

	return at && (at == list || at[-1] == ',') && (!at[sizeof word - 1] || at[sizeof word - 1] == ',');
}

void rs_group_memory_read(struct rs_group_memory *ret, const char *root)
{
	char path[PATH_MAX], line[PATH_MAX + 128];
	FILE *f;

	*ret = (struct rs_group_memory){.limit = UINT64_MAX, .left = UINT64_MAX};
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
			lower_to_groups(ret, root, &v2, group);
		else if (has_memory(list + 1))
			lower_to_groups(ret, root, &v1, group);
	}
	fclose(f);
}
