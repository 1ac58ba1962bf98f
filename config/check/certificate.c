/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check/check.h"

#include "common/address.h"
#include "common/tls.h"
#include "common/tls_own.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* Returns whether a numeric address belongs to this machine. */
static bool is_own(const struct addrinfo *ai)
{
	struct sockaddr_storage any;
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool own;

	if (fd < 0)
		return false;
	memcpy(&any, ai->ai_addr, ai->ai_addrlen);
	((struct sockaddr_in *)&any)->sin_port = 0; /* sin6_port has the same offset */
	own = bind(fd, (struct sockaddr *)&any, ai->ai_addrlen) == 0;
	close(fd);
	return own;
}

/* Returns whether workers that connect to an address reach this reducer: the port is the
 * one on which it listens, and the host is this machine. */
static bool is_this_reducer(const struct rs_config *cfg, const char *address)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
	struct rs_host_port to, listen, grpc = {.port = ""};
	struct rs_err e;
	bool own = false;

	if (rs_host_port_split(&to, address, false, &e) || rs_host_port_split(&listen, cfg->server.listen, true, &e))
		return false;
	if (cfg->server.grpc[0] && rs_host_port_split(&grpc, cfg->server.grpc, true, &e))
		return false;
	if (strcmp(to.port, listen.port) != 0 && strcmp(to.port, grpc.port) != 0)
		return false;
	if (getaddrinfo(to.host, to.port, &hints, &list))
		return false;
	for (const struct addrinfo *ai = list; ai && !own; ai = ai->ai_next)
		own = is_own(ai);
	freeaddrinfo(list);
	return own;
}

/* Compares the names of a reducer's certificate with those that workers expect. If no
 * reducer of the file can be recognised as this one, any of them will do. */
static void check_own_names(struct check *c, const SSL_CTX *ctx)
{
	char expected[RS_HOST_MAX], names[TLS_NAMES_MAX], expiry[TLS_EXPIRY_TEXT];
	const struct rs_config *cfg = c->cfg;
	bool own = false, any = false;
	struct rs_err e;

	if (!check_has(c, "reducers", NULL))
		return;
	tls_own_certificate(ctx, names, expiry);
	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		const struct rs_reducer *r = &cfg->reducers[i];

		rs_config_tls_name(r, expected);
		any |= tls_own_is_for(ctx, expected);
		if (c->elsewhere || !is_this_reducer(cfg, r->address))
			continue;
		own = true;
		if (tls_own_is_for(ctx, expected))
			continue;
		rs_fail(&e, RS_ECONFIG,
			"the certificate in %s is for %s, workers expect %s (reducers[%u], %s): they will refuse it",
			cfg->security.certificate, names[0] ? names : "other addresses", expected, i, r->id);
		check_add(c, CHECK_WARNING, "security", -1, "certificate", &e);
	}
	if (own || any)
		return;
	rs_fail(&e, RS_ECONFIG,
		"the certificate in %s is for %s, expected the host or tls_name of one of the %u reducers of this file",
		cfg->security.certificate, names[0] ? names : "other addresses", cfg->reducers_n);
	check_add(c, CHECK_WARNING, "security", -1, "certificate", &e);
}

void check_certificate(struct check *c, enum rs_tls_side side, SSL_CTX *ctx)
{
	const struct rs_config *cfg = c->cfg;
	char date[TLS_EXPIRY_TEXT];
	struct rs_err e;
	int days = tls_own_days(ctx, date);

	if (!date[0])
		return; /* there is none */
	if (time(NULL) >= tls_own_validity(ctx).renew_s) {
		rs_fail(&e, RS_ECONFIG, "the certificate in %s expires in %d day%s, on %s", cfg->security.certificate,
			days, days == 1 ? "" : "s", date);
		check_add(c, CHECK_WARNING, "security", -1, "certificate", &e);
	}
	if (cfg->security.authority[0] && tls_own_verify(ctx, side == RS_TLS_REDUCER, &e)) {
		rs_wrap(&e, "peers with the authority %s would refuse the certificate in %s", cfg->security.authority,
			cfg->security.certificate);
		check_add(c, CHECK_WARNING, "security", -1, "certificate", &e);
	}
	if (side == RS_TLS_REDUCER)
		check_own_names(c, ctx);
}
