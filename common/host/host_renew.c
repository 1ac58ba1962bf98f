/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates, keys, authorities and tokens whose files have changed are read again.
 *
 * The happy path: a look every HOST_LOOK_MS finds files with another stamp -> all of them
 * are read and checked -> the ports use them for new connections. Failure modes: they are
 * no valid pair, which is so for a moment while they are replaced: the old ones stay, a
 * line says why, and each further look tries again. */
#include "common/host/host_state.h"

#include <stdio.h>
#include <string.h>

enum { DAY_S = 86400 };

void host_stamps(const struct rs_config *cfg, struct rs_stamp ret[HOST_STAMPS])
{
	const char *const files[HOST_STAMPS] = {
	    [HOST_STAMP_CERTIFICATE] = cfg->security.certificate, [HOST_STAMP_KEY] = cfg->security.key,
	    [HOST_STAMP_AUTHORITY] = cfg->security.authority,     [HOST_STAMP_READ_TOKEN] = cfg->security.read_token,
	    [HOST_STAMP_ADMIN_TOKEN] = cfg->security.admin_token,
	};

	for (unsigned i = 0; i < HOST_STAMPS; i++)
		ret[i] = rs_stamp(files[i]);
}

/* Returns whether this process shows the certificate to anybody. */
static bool host_shows_certificate(const struct host *h, const struct rs_config *cfg)
{
	bool worker = h->opt.daemon->worker;

	return cfg->security.certificate[0] &&
	       (cfg->security.tls == TLS_MUTUAL || (!worker && cfg->security.tls == TLS_ON) ||
		(worker ? cfg->agent.http_tls : cfg->server.http_tls) != TLS_OFF);
}

/* Reads how long the certificate is valid. It was read before, so it can be read. */
static void host_take_validity(struct host *h)
{
	struct host_renewal *r = &h->renewal;
	struct tls_files files = {.certificate = r->cfg.security.certificate, .key = "", .authority = ""};
	struct tls_texts texts;
	struct rs_err e;

	r->validity = (struct tls_validity){.expires_s = 0};
	r->told_s = 0;
	if (!host_shows_certificate(h, &r->cfg) || tls_texts_load(&texts, &files, &e))
		return;
	r->validity = tls_pem_validity(texts.certificate);
	tls_pem_names(texts.certificate, r->names);
	tls_texts_free(&texts);
}

/* Warns once a day of a certificate that ends soon. */
static void host_tell_validity(struct host *h)
{
	struct host_renewal *r = &h->renewal;
	int64_t now_s = host_unix_ms() / 1000;

	if (!r->validity.expires_s || now_s < r->validity.renew_s || now_s - r->told_s < DAY_S)
		return;
	r->told_s = now_s;
	rs_log(h->opt.log, RS_LOG_WARN, "certificate-ends", rs_kv_s("certificate", r->names),
	       rs_kv_i("days", (r->validity.expires_s - now_s) / DAY_S), rs_kv_s("file", r->cfg.security.certificate));
}

void host_renewal_take(struct host *h, const struct rs_config *cfg, const struct rs_stamp stamps[HOST_STAMPS])
{
	struct host_renewal *r = &h->renewal;

	r->cfg = *cfg;
	r->cfg.reducers = NULL;
	r->cfg.sharding.owner = NULL;
	r->cfg.groups = NULL;
	r->cfg.groups_n = 0;
	r->cfg.relays = NULL;
	r->cfg.access = NULL;
	r->cfg.access_n = r->cfg.reducers_n = 0;
	memcpy(r->stamps, stamps, sizeof r->stamps);
	r->refused[0] = '\0';
	host_take_validity(h);
}

/* Reads the files, and gives them to the ports. */
static int host_renew(struct host *h, bool tls, struct rs_err *e)
{
	const struct rs_config *cfg = &h->renewal.cfg;
	struct tls_files http = rs_config_tls_files(cfg);
	struct host_files files;
	int rc = host_files_read(h, cfg, &files, e);

	if (!rc && tls)
		rc = http_port_reload(h->http, &http, e);
	if (!rc && tls && h->opt.daemon->renew)
		rc = h->opt.daemon->renew(h->opt.ctx, cfg, e);
	if (!rc) {
		host_set_tokens(h, &files);
		rc = host_set_certificates(h, &files, e);
	}
	host_files_close(&files);
	return rc;
}

/* Takes over the files that were found, or says why not. */
static void host_try_renew(struct host *h, const struct rs_stamp found[HOST_STAMPS])
{
	struct host_renewal *r = &h->renewal;
	bool tls = r->refused[0] || memcmp(found, r->stamps, HOST_STAMP_READ_TOKEN * sizeof *found) != 0;
	struct rs_err e;

	memcpy(r->stamps, found, sizeof r->stamps);
	if (!host_renew(h, tls, &e)) {
		r->refused[0] = '\0';
		host_take_validity(h);
		rs_log(
		    h->opt.log, RS_LOG_INFO, "renew",
		    rs_kv_s("result", tls ? "certificate, key, authority and tokens read again" : "tokens read again"));
		return;
	}
	if (strcmp(r->refused, e.msg) != 0)
		rs_log(h->opt.log, RS_LOG_WARN, "renew", rs_kv_s("result", "kept the old files"),
		       rs_kv_s("reason", e.msg));
	snprintf(r->refused, sizeof r->refused, "%s", e.msg);
}

void host_renewal_tick(struct host *h)
{
	struct host_renewal *r = &h->renewal;
	struct rs_stamp found[HOST_STAMPS];
	uint64_t now = uv_now(h->opt.loop);

	if (now - r->looked_ms < HOST_LOOK_MS)
		return;
	r->looked_ms = now;
	host_stamps(&r->cfg, found); /* before they are read: the next look sees a later change */
	if (r->refused[0] || memcmp(found, r->stamps, sizeof found) != 0)
		host_try_renew(h, found);
	host_tell_validity(h);
}
