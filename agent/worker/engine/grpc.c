/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/grpc.h"

#include "agent/worker/engine/tcp.h"
#include "common/address.h"
#include "config/tls_texts.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { READ_AGAIN_MS = 1000 };

int engine_grpc_init(struct engine_grpc *g, const struct rs_config *cfg, struct rs_err *e)
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
	if (rc) {
		tls_texts_free(&g->texts);
		return rc;
	}
	g->rpc = rpc;
	return RS_OK;
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

void engine_grpc_serve(struct engine_grpc *g, struct wakeups *wakeups)
{
	if (g->rpc)
		wakeups_serve(wakeups, g->rpc, g->rpc->client_queue(g->client));
}

void engine_grpc_close(struct engine_grpc *g)
{
	if (!g->rpc)
		return;
	g->rpc->client_free(g->client);
	tls_texts_free(&g->texts);
	g->rpc = NULL;
}

bool grpc_socket_find(struct grpc_socket *ret, const struct sockaddr *peer, bool (*taken)(void *user, uint64_t cookie),
		      void *user)
{
	const struct dirent *entry;
	struct rs_endpoint to, end;
	bool found = false;
	DIR *dir;

	if (!rs_endpoint_of_sockaddr(&to, peer))
		return false;
	dir = opendir("/proc/self/fd");
	while (dir && !found && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);
		struct sockaddr_storage a;
		socklen_t alen = sizeof a;
		uint64_t cookie;

		if (entry->d_name[0] == '.' || getpeername(fd, (struct sockaddr *)&a, &alen) ||
		    !rs_endpoint_of_sockaddr(&end, (struct sockaddr *)&a) || memcmp(&end, &to, sizeof to) != 0)
			continue;
		if (!rs_socket_cookie(fd, &cookie) || taken(user, cookie))
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

	return s->fd >= 0 && rs_socket_cookie(s->fd, &cookie) && cookie == s->cookie && tcp_signal(s->fd, ret);
}
