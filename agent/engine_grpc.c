/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/engine_grpc.h"

#include "agent/engine_tcp.h"
#include "config/tls_texts.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { READ_AGAIN_MS = 1000 };

int engine_grpc_init(struct engine_grpc *g, const struct rs_config *cfg, uv_loop_t *loop, struct rs_err *e)
{
	const struct rpc_api *rpc;
	int rc = rpc_load(&rpc, e);

	if (rc)
		return rs_wrap(e, "job.transport");
	g->cfg = cfg;
	rc = rs_config_tls_texts(&g->texts, RS_TLS_WORKER, cfg, e);
	if (rc)
		return rc;
	rc = rpc->client_new(&g->client, e);
	if (rc)
		goto free_texts;
	rc = wakeups_init(&g->wakeups, loop, e);
	if (rc)
		goto free_client;
	g->rpc = rpc;
	return RS_OK;

free_client:
	rpc->client_free(g->client);
free_texts:
	tls_texts_free(&g->texts);
	return rc;
}

const struct rpc_tls *engine_grpc_tls(struct engine_grpc *g, struct rpc_tls *buf, uint64_t now_ms)
{
	struct tls_texts fresh;
	struct rs_err e;

	if (g->cfg->security.tls == TLS_OFF)
		return NULL;
	if (g->read_ms && now_ms - g->read_ms >= READ_AGAIN_MS &&
	    rs_config_tls_texts(&fresh, RS_TLS_WORKER, g->cfg, &e) == RS_OK) {
		tls_texts_free(&g->texts);
		g->texts = fresh;
	}
	g->read_ms = now_ms;
	*buf = (struct rpc_tls){g->texts.certificate, g->texts.key, g->texts.authority};
	return buf;
}

void engine_grpc_stop(struct engine_grpc *g)
{
	if (g->rpc)
		wakeups_close(&g->wakeups);
}

void engine_grpc_close(struct engine_grpc *g)
{
	if (!g->rpc)
		return;
	g->rpc->client_free(g->client);
	wakeups_destroy(&g->wakeups);
	tls_texts_free(&g->texts);
	g->rpc = NULL;
}

/* The kernel's number of a socket, which no other one gets. */
static bool cookie_of(int fd, uint64_t *ret)
{
	socklen_t len = sizeof *ret;

	return getsockopt(fd, SOL_SOCKET, SO_COOKIE, ret, &len) == 0;
}

/* Address and port alike; what else is in the structs does not matter. */
static bool same_address(const struct sockaddr_storage *a, const struct sockaddr *b)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)a, *b4 = (const struct sockaddr_in *)b;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a, *b6 = (const struct sockaddr_in6 *)b;
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (b->sa_family == AF_INET6)
		return a->ss_family == AF_INET6 && a6->sin6_port == b6->sin6_port &&
		       memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
	if (a->ss_family == AF_INET)
		return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	/* gRPC makes sockets for both families where it can */
	return a->ss_family == AF_INET6 && a6->sin6_port == b4->sin_port &&
	       memcmp(&a6->sin6_addr, mapped, sizeof mapped) == 0 &&
	       memcmp(a6->sin6_addr.s6_addr + 12, &b4->sin_addr, 4) == 0;
}

bool grpc_socket_find(struct grpc_socket *ret, const struct sockaddr *peer, bool (*taken)(void *user, uint64_t cookie),
		      void *user)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	bool found = false;

	while (dir && !found && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);
		struct sockaddr_storage a;
		socklen_t alen = sizeof a;
		uint64_t cookie;

		if (entry->d_name[0] == '.' || getpeername(fd, (struct sockaddr *)&a, &alen) || !same_address(&a, peer))
			continue;
		if (!cookie_of(fd, &cookie) || taken(user, cookie))
			continue;
		*ret = (struct grpc_socket){fd, cookie};
		found = true;
	}
	if (dir)
		closedir(dir);
	return found;
}

bool grpc_socket_signal(const struct grpc_socket *s, struct window_signal *ret)
{
	uint64_t cookie;

	return s->fd >= 0 && cookie_of(s->fd, &cookie) && cookie == s->cookie && tcp_signal(s->fd, ret);
}
