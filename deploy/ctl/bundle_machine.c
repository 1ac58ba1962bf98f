/* SPDX-License-Identifier: Apache-2.0 */
/* What a support bundle says of the machine on which reductionctl runs: copies of files
 * of /proc and /sys, and what some programs print. A file that cannot be read, and a
 * program that is not there, is a line in the bundle. */
#include "deploy/ctl/bundle.h"

#include "common/version.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

/* Where a file of the bundle comes from; rows with the same file follow each other. */
struct source {
	const char *file;
	const char *from; /* a pattern of paths; after '!' a command */
};

#define JOURNAL "journalctl --no-pager -o short-iso-precise -n 2000 "

static const struct source sources[] = {
    {"machine/versions.txt", "!uname -srvm"},
    {"machine/versions.txt", "/etc/os-release"},
    {"machine/versions.txt", "!dpkg-query -W -f '${Package} ${Version}\\n' 'libuv1*' 'libgrpc2*' 'libssl3*' "
			     "'libmicrohttpd12*' 'python3-torch*'"},
    {"machine/network.txt", "/proc/sys/net/ipv4/tcp_*"},
    {"machine/network.txt", "/proc/sys/net/ipv4/ip_local_port_range"},
    {"machine/network.txt", "/proc/sys/net/core/*"},
    {"machine/network.txt", "/proc/net/snmp"},
    {"machine/network.txt", "/proc/net/netstat"},
    {"machine/network.txt", "/proc/net/sockstat"},
    {"machine/network.txt", "/proc/net/softnet_stat"},
    {"machine/network.txt", "!tc -s qdisc show"},
    {"machine/links.txt", "/sys/class/net/*/operstate"},
    {"machine/links.txt", "/sys/class/net/*/speed"},
    {"machine/links.txt", "/sys/class/net/*/duplex"},
    {"machine/links.txt", "/sys/class/net/*/mtu"},
    {"machine/links.txt", "/sys/class/net/*/tx_queue_len"},
    {"machine/links.txt", "/sys/class/net/*/carrier_changes"},
    {"machine/links.txt", "/sys/class/net/*/device/numa_node"},
    {"machine/links.txt", "/sys/class/net/*/device/uevent"},
    {"machine/links.txt", "/sys/class/net/*/queues/*/?ps_cpus"},
    {"machine/links.txt", "/sys/class/net/*/statistics/*"},
    {"machine/cpu.txt", "!lscpu"},
    {"machine/cpu.txt", "/proc/loadavg"},
    {"machine/cpu.txt", "/proc/stat"},
    {"machine/cpu.txt", "/proc/pressure/*"},
    {"machine/cpu.txt", "/sys/devices/system/cpu/isolated"},
    {"machine/cpu.txt", "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"},
    {"machine/cpu.txt", "/sys/devices/system/node/node*/cpulist"},
    {"machine/memory.txt", "/proc/meminfo"},
    {"machine/memory.txt", "/proc/sys/vm/overcommit_*"},
    {"machine/memory.txt", "!df -k /dev/shm"},
    {"log/journal.txt", "!" JOURNAL "-u 'reduction-server*' -u 'reduction-agent*'"},
    {"log/kernel.txt", "!dmesg --level=emerg,alert,crit,err,warn"},
};
enum { SOURCES_N = sizeof sources / sizeof sources[0] };

/* The limits of a group of processes (cgroups 2, then 1). */
static const char *const group_files[] = {"cpu.max",
					  "cpu.weight",
					  "cpu.stat",
					  "cpu.pressure",
					  "cpuset.cpus.effective",
					  "memory.max",
					  "memory.high",
					  "memory.current",
					  "memory.events",
					  "pids.max",
					  "cpu.cfs_quota_us",
					  "cpu.cfs_period_us",
					  "memory.limit_in_bytes",
					  "cpuset.cpus"};

static void copy_stream(FILE *in, FILE *out)
{
	char *text = malloc(BUNDLE_FILE_MAX);
	size_t n = text ? fread(text, 1, BUNDLE_FILE_MAX, in) : 0;

	if (text && n < BUNDLE_FILE_MAX && ferror(in))
		fprintf(out, "(cannot be read: %s)\n", strerror(errno));
	/* a value has a line with its name, longer texts stand below it */
	if (n > 0)
		fprintf(out, "%s%.*s%s", memchr(text, '\n', n - 1) ? "\n" : "", (int)n, text,
			text[n - 1] == '\n' ? "" : "\n");
	else if (!ferror(in))
		fputs("(empty)\n", out);
	free(text);
}

static void copy_path(const char *path, FILE *out)
{
	FILE *in;

	fprintf(out, "%s: ", path);
	if (strstr(path, "key")) { /* net.ipv4.tcp_fastopen_key */
		fputs("(left out)\n", out);
		return;
	}
	in = fopen(path, "re");
	if (!in) {
		fprintf(out, "(cannot be read: %s)\n", strerror(errno));
		return;
	}
	copy_stream(in, out);
	fclose(in);
}

static void copy_command(const char *command, FILE *out)
{
	char line[400];
	FILE *in;

	snprintf(line, sizeof line, "LC_ALL=C timeout 10 %s 2>&1 </dev/null", command);
	fprintf(out, "$ %s: ", command);
	in = popen(line, "re");
	if (!in) {
		fprintf(out, "(cannot be run: %s)\n", strerror(errno));
		return;
	}
	copy_stream(in, out);
	pclose(in);
}

static void copy_paths(const char *pattern, FILE *out)
{
	glob_t found;

	if (glob(pattern, 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++)
			copy_path(found.gl_pathv[i], out);
		globfree(&found);
	} else {
		fprintf(out, "%s: (there is none)\n", pattern);
	}
}

/* Copies the limits of a group and of those around it. path: "/a/b", which is changed. */
static void copy_group(const char *root, char *path, FILE *out)
{
	for (;;) {
		char *slash = strrchr(path, '/');

		for (unsigned i = 0; i < sizeof group_files / sizeof group_files[0]; i++) {
			char file[600];
			FILE *in;

			snprintf(file, sizeof file, "%s%s/%s", root, path, group_files[i]);
			in = fopen(file, "re");
			if (!in)
				continue;
			fprintf(out, "%s: ", file);
			copy_stream(in, out);
			fclose(in);
		}
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* Copies the limits of the groups of a process: lines "0::/a/b" or
 * "4:cpu,cpuacct:/a/b". */
static void copy_groups(const char *pid, FILE *out)
{
	char path[64], line[400], root[200];
	FILE *in;

	snprintf(path, sizeof path, "/proc/%.20s/cgroup", pid);
	in = fopen(path, "re");
	while (in && fgets(line, sizeof line, in)) {
		char *name = strchr(line, ':'), *group = name ? strchr(name + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (strcmp(group, "/") == 0)
			*group = '\0';
		snprintf(root, sizeof root, "/sys/fs/cgroup%s%.150s", name[1] ? "/" : "", name + 1);
		copy_group(root, group, out);
	}
	if (in)
		fclose(in);
}

static void copy_process(const char *pid, FILE *out)
{
	static const char *const files[] = {"status", "limits", "cgroup", "schedstat"};

	for (unsigned i = 0; i < sizeof files / sizeof files[0]; i++) {
		char path[64];

		snprintf(path, sizeof path, "/proc/%.20s/%s", pid, files[i]);
		copy_path(path, out);
	}
	copy_groups(pid, out);
}

/* Adds a file for each daemon that runs here. */
static void add_daemons(struct bundle *b)
{
	DIR *all = opendir("/proc");
	const struct dirent *entry;

	while (all && (entry = readdir(all))) {
		char path[64], name[32] = "";
		FILE *in;

		if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name))
			continue;
		snprintf(path, sizeof path, "/proc/%.20s/comm", entry->d_name);
		in = fopen(path, "re");
		if (in && !fgets(name, sizeof name, in))
			name[0] = '\0';
		if (in)
			fclose(in);
		name[strcspn(name, "\n")] = '\0'; /* the kernel keeps 15 characters */
		if (strcmp(name, "reduction-serve") != 0 && strcmp(name, "reduction-agent") != 0)
			continue;
		if (bundle_begin(b))
			copy_process(entry->d_name, b->out);
		bundle_end(b, "machine/%s-%.20s.txt", name, entry->d_name);
	}
	if (all)
		closedir(all);
}

void bundle_machine(struct bundle *b)
{
	for (unsigned i = 0, next; i < SOURCES_N; i = next) {
		FILE *out = bundle_begin(b);

		for (next = i; next < SOURCES_N && strcmp(sources[next].file, sources[i].file) == 0; next++) {
			if (!out)
				continue;
			if (sources[next].from[0] == '!')
				copy_command(sources[next].from + 1, out);
			else
				copy_paths(sources[next].from, out);
		}
		bundle_end(b, "%s", sources[i].file);
	}
	if (bundle_begin(b))
		copy_process("self", b->out);
	bundle_end(b, "machine/limits.txt");
	add_daemons(b);
}
