/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl check: validates a configuration file and the files that it names. All machines get the same file. So a
 * named file that is not on this machine, or that this user may not read, is reported but is not an error. */
#include "common/auth.h"
#include "common/tls.h"
#include "config/ctl/ctl.h"
#include "config/value.h"
#include "proto/frame.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns whether this process can read a file; prints a line if not. */
static bool can_look(const char *key, const char *path)
{
	if (access(path, R_OK) == 0)
		return true;
	printf("%s: %s %s, not checked\n", key, path,
	       errno == EACCES ? "may not be read by this user" : "is not on this machine");
	return false;
}

static int check_secret(const char *path, uint32_t *ret_len, struct rs_err *e)
{
	struct auth_secret secret;
	int rc = auth_secret_load(&secret, path, e);

	if (rc)
		return rc;
	*ret_len = secret.len;
	auth_secret_clear(&secret);
	return RS_OK;
}

static int check_secrets(const char *path, struct rs_err *e)
{
	static const char end[] = ".secret";
	const struct dirent *entry;
	unsigned n = 0;
	uint32_t len;
	int rc = RS_OK;
	DIR *dir = opendir(path);

	if (!dir)
		return rs_fail_sys(e, RS_ECONFIG, errno, "%s cannot be read as a directory", path);
	while (rc == RS_OK && (entry = readdir(dir))) {
		char file[RS_PATH_LEN + sizeof entry->d_name + 1];
		size_t bytes = strlen(entry->d_name);

		if (bytes < sizeof end || strcmp(entry->d_name + bytes - (sizeof end - 1), end) != 0)
			continue;
		snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
		rc = check_secret(file, &len, e);
		n++;
	}
	closedir(dir);
	if (rc == RS_OK)
		printf("server.secrets_dir: %s: ok, %u job%s one\n", path, n, n == 1 ? " has" : "s have");
	return rc;
}

static int check_token(const char *key, const char *path, struct rs_err *e)
{
	struct auth_secret token;

	if (!path[0] || !can_look(key, path))
		return RS_OK;
	if (auth_token_load(&token, path, e))
		return rs_wrap(e, "%s", key);
	printf("%s: %s: ok, %u bytes\n", key, path, token.len);
	auth_secret_clear(&token);
	return RS_OK;
}

/* Reads the files that security.tls names, as the process that uses this configuration would. */
static int check_tls(const struct rs_config *cfg, struct rs_err *e)
{
	struct tls_files files = {
	    .certificate = cfg->security.certificate, .key = cfg->security.key, .authority = cfg->security.authority};
	char names[TLS_NAMES_MAX], expiry[TLS_EXPIRY_TEXT];
	bool own = files.certificate[0] || files.key[0];
	SSL_CTX *ctx;
	int rc;

	if (cfg->security.tls == TLS_OFF)
		return RS_OK;
	/* a file with access rules belongs to a reducer; workers need a certificate with mutual TLS only */
	rc = cfg->access_n || (own && cfg->security.tls == TLS_ON) ? tls_reducer(&ctx, cfg->security.tls, &files, e)
								   : tls_worker(&ctx, cfg->security.tls, &files, e);
	if (rc)
		return rc;
	tls_own_certificate(ctx, names, expiry);
	SSL_CTX_free(ctx);
	if (expiry[0])
		printf("tls: ok: certificate of %s, valid until %s\n", names[0] ? names : "no name", expiry);
	else
		printf("tls: ok: no certificate of its own, as workers without mutual TLS need none\n");
	return RS_OK;
}

static int check_files(const struct rs_config *cfg, struct rs_err *e)
{
	const char *secret = cfg->security.secret, *secrets = cfg->server.secrets_dir;
	uint32_t len;
	int rc;

	if (secret[0] && can_look("security.secret", secret)) {
		if (check_secret(secret, &len, e))
			return rs_wrap(e, "security.secret");
		printf("security.secret: %s: ok, %u bytes\n", secret, len);
	}
	if (secrets[0] && can_look("server.secrets_dir", secrets) && check_secrets(secrets, e))
		return rs_wrap(e, "server.secrets_dir");
	rc = check_token("security.read_token", cfg->security.read_token, e);
	if (!rc)
		rc = check_token("security.admin_token", cfg->security.admin_token, e);
	if (rc)
		return rc;
	return check_tls(cfg, e) ? rs_wrap(e, "security.tls") : RS_OK;
}

int run_check(const struct call *call, struct rs_err *e)
{
	char chunk[32], flight[32];
	struct rs_config cfg;
	unsigned lanes = 0, chunks;
	int rc;

	rc = rs_config_load(&cfg, call->file, e);
	if (rc)
		return rc;
	rc = check_files(&cfg, e);
	if (rc) {
		rs_wrap(e, "%s", call->file);
		goto close_config;
	}
	for (unsigned i = 0; i < cfg.reducers_n; i++)
		lanes += cfg.reducers[i].lanes;
	value_format_bytes(cfg.sharding.chunk_bytes, chunk, sizeof chunk);
	chunks = cfg.sharding.window + (cfg.sharding.priorities - 1) * frame_reserve(cfg.sharding.window);
	value_format_bytes((uint64_t)lanes * chunks * cfg.sharding.chunk_bytes, flight, sizeof flight);
	printf(
	    "%s: ok: %u reducer%s with %u lane%s, %u shard%s, chunks of %s, window %u, at most %s in flight a worker\n",
	    call->file, cfg.reducers_n, cfg.reducers_n == 1 ? "" : "s", lanes, lanes == 1 ? "" : "s",
	    cfg.sharding.shards, cfg.sharding.shards == 1 ? "" : "s", chunk, cfg.sharding.window, flight);
close_config:
	rs_config_close(&cfg);
	return rc;
}
