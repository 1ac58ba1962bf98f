/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/reducers.h"
#include "tests/gpu/proc.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REDUCERS_READY_S = 20 };

/* Finds a port of loopback that is free now. */
static int reducers_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;

	if (fd < 0)
		return 0;
	if (bind(fd, (struct sockaddr *)&a, len) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0)
		port = ntohs(a.sin_port);
	close(fd);
	return port;
}

static bool reducers_start_one(struct reducers *r, const char *address, pid_t host)
{
	char log[96], program[512];
	struct proc_start p = {.argv = {program, "--listen", address, "--insecure", NULL}, .host = host, .out = log};

	proc_bundle(program, sizeof program, "bin/reduction-server");
	snprintf(log, sizeof log, "%s/reducer%d.log", r->folder, r->n);
	r->pids[r->n] = proc_start(&p);
	return r->pids[r->n++] > 0;
}

static bool reducers_ready(const struct reducers *r, int i, char *why, size_t room)
{
	char log[96], text[8192];
	double until = proc_now_s() + REDUCERS_READY_S;

	snprintf(log, sizeof log, "%s/reducer%d.log", r->folder, i);
	do {
		proc_read(text, sizeof text, log);
		if (strstr(text, " listening "))
			return true;
		proc_sleep(0.01);
	} while (proc_now_s() < until);
	snprintf(why, room, "reducer %d does not listen: %.300s", i, text);
	return false;
}

bool reducers_start(struct reducers *r, int n, const struct links *l, int first, char *why, size_t room)
{
	char address[48];
	FILE *config;
	bool ready = true;

	*r = (struct reducers){.folder = "/tmp/check-gpu-XXXXXX"};
	if (!mkdtemp(r->folder)) {
		snprintf(why, room, "no folder can be made in /tmp");
		return false;
	}
	snprintf(r->config, sizeof r->config, "%s/job.yaml", r->folder);
	config = fopen(r->config, "we");
	if (!config) {
		snprintf(why, room, "%s cannot be written", r->config);
		return false;
	}
	fprintf(config, "job: {name: check-gpu}\nreducers:\n");
	for (int i = 0; i < n; i++) {
		if (l)
			links_address(address, sizeof address, first + i);
		else
			strcpy(address, "127.0.0.1");
		sprintf(address + strlen(address), ":%d", l ? 7600 : reducers_port());
		fprintf(config, "  - {id: r%d, address: \"%s\"}\n", i, address);
		ready &= reducers_start_one(r, address, l ? l->hosts[first + i] : 0);
	}
	fclose(config);
	for (int i = 0; i < n && ready; i++)
		ready = reducers_ready(r, i, why, room);
	if (!ready)
		reducers_stop(r);
	return ready;
}

void reducers_kill(struct reducers *r, int i)
{
	if (r->pids[i] > 0)
		proc_kill(r->pids[i]);
	r->pids[i] = 0;
}

void reducers_stop(struct reducers *r)
{
	DIR *folder = opendir(r->folder);

	for (int i = 0; i < r->n; i++)
		reducers_kill(r, i);
	for (struct dirent *e; folder && (e = readdir(folder));)
		unlinkat(dirfd(folder), e->d_name, 0);
	if (folder)
		closedir(folder);
	rmdir(r->folder);
}
