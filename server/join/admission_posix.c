/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/admission.h"

#include "config/check/check.h"
#include "server/join/secrets.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LINES_PER_S = 5 };

int admission_init(struct admission *a, const struct rs_config *cfg, const struct rs_log *log, struct rs_err *e)
{
	DIR *dir;
	int rc;

	*a = (struct admission){.cfg = cfg, .log = log, .limit = {.event = "secret-unusable", .per_s = LINES_PER_S}};
	if (!cfg->server.secrets_dir[0])
		return certificates_load(&a->certificates, cfg, e);
	rc = check_secrets_open(&dir, cfg->server.secrets_dir, e);
	if (rc)
		return rc;
	closedir(dir);
	return certificates_load(&a->certificates, cfg, e);
}

void admission_close(struct admission *a)
{
	certificates_close(&a->certificates);
}

int admission_reload(struct admission *a, const struct rs_config *cfg, struct rs_err *e)
{
	struct certificates fresh;
	int rc = certificates_load(&fresh, cfg, e);

	if (rc)
		return rc;
	certificates_close(&a->certificates);
	a->certificates = fresh;
	return RS_OK;
}

static uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void admission_tick(struct admission *a, uint64_t now_ms)
{
	rs_log_limit_report(&a->limit, a->log, RS_LOG_WARN, now_ms);
}

static int refuse(struct control_refused *to, const struct rs_err *why)
{
	*to = handshake_refusal(why);
	return why->code;
}

/* Loads the secret of a job. The peer is told whether there is a secret; only the log
 * says what is wrong with its file.
 */
static int find_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret,
		       struct control_refused *refused)
{
	struct admission *a = ctx;
	struct rs_err e, why;
	int rc = secrets_load(a->cfg, hello->job, ret, &why);

	if (rc == RS_EREFUSED)
		return refuse(refused, &why);
	if (!rc)
		return RS_OK;
	if (rs_log_limit_pass(&a->limit, clock_ms()))
		rs_log(a->log, RS_LOG_ERROR, "secret-unusable", rs_kv_s("job", hello->job), rs_kv_s("reason", why.msg));
	rs_fail(&e, RS_EREFUSED, "this reducer cannot use its secret for job %s: its log says why", hello->job);
	return refuse(refused, &e);
}

static int may_join(void *ctx, const char *peer, const struct control_hello *hello, double *ret_weight,
		    struct control_refused *refused)
{
	struct admission *a = ctx;

	return certificates_may_join(&a->certificates, peer ? peer : "", hello->job, ret_weight, refused);
}

static int random_bytes(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	(void)ctx;
	return auth_random(buf, n, e);
}

struct handshake_policy admission_policy(struct admission *a)
{
	return (struct handshake_policy){
	    .may_join = may_join,
	    .secret = secrets_exist(a->cfg) ? find_secret : NULL,
	    .random = random_bytes,
	    .ctx = a,
	};
}
