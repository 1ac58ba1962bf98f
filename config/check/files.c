/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check/check.h"

#include "common/auth.h"
#include "common/credential.h"
#include "common/tls.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns whether this process can read a file. On another machine's file it adds a note
 * if not. */
static bool check_can_look(struct check *c, const char *section, const char *key, const char *path)
{
	struct rs_err e;

	if (!c->elsewhere || access(path, R_OK) == 0)
		return true;
	rs_fail(&e, RS_OK, "%s %s, not checked", rs_credential_name(path),
		errno == EACCES ? "may not be read by this user" : "is not on this machine");
	check_add(c, CHECK_NOTE, section, -1, key, &e);
	return false;
}

static void check_secret_file(struct check *c, const char *section, const char *file)
{
	struct auth_secret secret;
	struct rs_err e;

	if (!file[0] || !check_can_look(c, section, "secret", file))
		return;
	if (auth_secret_load(&secret, file, &e)) {
		check_add(c, CHECK_ERROR, section, -1, "secret", &e);
		return;
	}
	check_fact(c, "%s.secret: %s: ok, %u bytes", section, file, secret.len);
	auth_secret_clear(&secret);
}

void check_secret(struct check *c)
{
	check_secret_file(c, "security", c->cfg->security.secret);
}

int check_secrets_open(DIR **ret, const char *path, struct rs_err *e)
{
	DIR *dir = opendir(path);

	if (!dir)
		return rs_fail_sys(e, RS_ECONFIG, errno,
				   "server.secrets_dir: %s is not a directory that this reducer can read",
				   rs_credential_name(path));
	*ret = dir;
	return RS_OK;
}

/* Checks the secret of each job; returns how many jobs have one. */
static unsigned check_each_secret(struct check *c, DIR *dir, const char *path)
{
	static const char end[] = ".secret";
	const struct dirent *entry;
	struct auth_secret secret;
	struct rs_err e;
	unsigned n = 0;

	while ((entry = readdir(dir))) {
		char file[RS_PATH_LEN + sizeof entry->d_name + 1];
		size_t bytes = strlen(entry->d_name);

		if (bytes < sizeof end || strcmp(entry->d_name + bytes - (sizeof end - 1), end) != 0)
			continue;
		snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
		n++;
		if (auth_secret_load(&secret, file, &e))
			check_add(c, CHECK_ERROR, "server", -1, "secrets_dir", &e);
		else
			auth_secret_clear(&secret);
	}
	return n;
}

void check_secrets(struct check *c, bool each)
{
	const char *path = c->cfg->server.secrets_dir;
	unsigned n, errors = c->errors;
	struct stat st;
	struct rs_err e;
	DIR *dir = NULL;

	check_secret_file(c, "server", c->cfg->server.secret);
	if (!path[0] || !check_can_look(c, "server", "secrets_dir", path))
		return;
	if (check_secrets_open(&dir, path, &e)) {
		check_add(c, CHECK_ERROR, "server", -1, "secrets_dir", &e);
		return;
	}
	if (each) {
		if (fstat(dirfd(dir), &st) == 0 && (st.st_mode & S_IWOTH)) {
			rs_fail(&e, RS_ECONFIG, "%s has mode %04o, so everybody can give jobs a secret; expected 0700",
				path, (unsigned)st.st_mode & 07777);
			check_add(c, CHECK_WARNING, "server", -1, "secrets_dir", &e);
		}
		n = check_each_secret(c, dir, path);
		if (errors == c->errors)
			check_fact(c, "server.secrets_dir: %s: ok, %u job%s one", path, n, n == 1 ? " has" : "s have");
	}
	closedir(dir);
}

static void check_token(struct check *c, const char *key, const char *file)
{
	struct auth_secret token;
	struct rs_err e;

	if (!file[0] || !check_can_look(c, "security", key, file))
		return;
	if (auth_token_load(&token, file, &e)) {
		check_add(c, CHECK_ERROR, "security", -1, key, &e);
		return;
	}
	check_fact(c, "security.%s: %s: ok, %u bytes", key, file, token.len);
	auth_secret_clear(&token);
}

void check_tokens(struct check *c)
{
	check_token(c, "read_token", c->cfg->security.read_token);
	check_token(c, "admin_token", c->cfg->security.admin_token);
}

/* Adds a problem with one of the files of security.tls. */
static void on_tls_problem(void *user, enum tls_file file, const struct rs_err *e)
{
	static const char *const keys[] = {[TLS_FILE_CERTIFICATE] = "certificate",
					   [TLS_FILE_KEY] = "key",
					   [TLS_FILE_AUTHORITY] = "authority",
					   [TLS_FILE_NONE] = "tls"};

	check_add(user, CHECK_ERROR, "security", -1, keys[file], e);
}

/* The same for the files of TLS that a side needs: they are checked together. */
static bool check_can_look_tls(struct check *c, enum rs_tls_side side)
{
	bool own = side == RS_TLS_REDUCER || c->cfg->security.tls == TLS_MUTUAL, can = true;
	const struct {
		const char *key, *file;
	} files[] = {{"certificate", own ? c->cfg->security.certificate : ""},
		     {"key", own ? c->cfg->security.key : ""},
		     {"authority", c->cfg->security.authority}};

	for (unsigned i = 0; i < sizeof files / sizeof files[0]; i++)
		if (files[i].file[0] && !check_can_look(c, "security", files[i].key, files[i].file))
			can = false;
	return can;
}

void check_tls_named(struct check *c, enum rs_tls_side side)
{
	struct tls_files files = rs_config_tls_files(c->cfg);
	struct rs_err e;

	if (c->cfg->security.tls != TLS_OFF &&
	    tls_check_named(side == RS_TLS_REDUCER, c->cfg->security.tls, &files, &e))
		on_tls_problem(c, TLS_FILE_NONE, &e);
}

void check_http_tls(struct check *c, const char *section, int mode)
{
	struct tls_files files = rs_config_tls_files(c->cfg);
	struct rs_err e;

	if (mode == TLS_OFF)
		return;
	if (!tls_check_named(true, mode, &files, &e)) {
		if (check_can_look_tls(c, RS_TLS_REDUCER))
			tls_check(true, mode, &files, on_tls_problem, c);
		return;
	}
	rs_fail(&e, RS_ECONFIG, "TLS needs security.certificate, security.key%s",
		mode == TLS_MUTUAL ? ", and security.authority for the certificates of clients" : "");
	check_add(c, CHECK_ERROR, section, -1, "http_tls", &e);
}

void check_tls(struct check *c, enum rs_tls_side side)
{
	const struct rs_config *cfg = c->cfg;
	struct tls_files files = rs_config_tls_files(cfg);
	char names[TLS_NAMES_MAX], expiry[TLS_EXPIRY_TEXT];
	unsigned errors = c->errors;
	struct rs_err e;
	SSL_CTX *ctx;

	if (cfg->security.tls == TLS_OFF || !check_can_look_tls(c, side))
		return;
	tls_check(side == RS_TLS_REDUCER, cfg->security.tls, &files, on_tls_problem, c);
	if (c->errors > errors)
		return;
	if (rs_config_tls_context(&ctx, side, cfg, &e)) {
		on_tls_problem(c, TLS_FILE_NONE, &e);
		return;
	}
	tls_own_certificate(ctx, names, expiry);
	if (expiry[0])
		check_fact(c, "tls: ok: certificate of %s, valid until %s", names[0] ? names : "no name", expiry);
	else
		check_fact(c, "tls: ok: no certificate of its own, as workers without mutual TLS need none");
	check_certificate(c, side, ctx);
	SSL_CTX_free(ctx);
}
