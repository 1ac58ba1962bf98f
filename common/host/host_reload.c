/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP, or a call of the control service: the configuration is read again. Everything
 * is read before anything changes. */
#include "common/host/host_state.h"
#include "config/schema.h"
#include "config/value.h"

#include <stdio.h>
#include <string.h>

/* Returns whether a key has another value than at the start. */
static bool host_key_changed(const struct host *h, const char *name, const struct rs_config *fresh)
{
	char section[CONTROL_JOB], before[VALUE_TEXT_MAX], now[VALUE_TEXT_MAX];
	const char *dot = strchr(name, '.');
	const struct schema_key *key;

	snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
	key = schema_find(section, dot + 1);
	value_format(key, &h->as_read, before, sizeof before);
	value_format(key, fresh, now, sizeof now);
	return strcmp(before, now) != 0;
}

/* Lists the keys that have changed and of which a change needs a restart; "": none. */
static void host_list_fixed(const struct host *h, const struct rs_config *fresh, char *ret, size_t size)
{
	static const char more[] = " and others";
	size_t n = 0;

	ret[0] = '\0';
	for (const char *const *name = h->opt.daemon->fixed; *name; name++) {
		if (!host_key_changed(h, *name, fresh))
			continue;
		if (n && n + strlen(*name) + sizeof more + 2 > size) {
			snprintf(ret + n, size - n, "%s", more);
			return;
		}
		n += (size_t)snprintf(ret + n, size - n, "%s%s", n ? ", " : "", *name);
	}
}

/* Logs the result, and makes a sentence of it. */
static void host_reloaded(const struct host *h, const char *fixed, char result[SERVICE_RESULT])
{
	const struct host_daemon *d = h->opt.daemon;
	char restart[SERVICE_RESULT] = "";

	if (fixed[0])
		snprintf(restart, sizeof restart, "changes of %s need a restart", fixed);

	rs_log(h->opt.log, RS_LOG_INFO, "reload", rs_kv_s("result", d->taken),
	       rs_kv_u("jobs", d->load(h->opt.ctx).jobs));
	if (fixed[0])
		rs_log(h->opt.log, RS_LOG_WARN, "reload", rs_kv_s("result", restart));
	snprintf(result, SERVICE_RESULT, "%s%s%s", d->taken, fixed[0] ? "; " : "", restart);
}

/* Takes over a configuration, and owns *fresh, also after errors. */
static int host_take_over(struct host *h, struct rs_config *fresh, const struct host_files *files,
			  const struct rs_stamp stamps[HOST_STAMPS], struct rs_err *e)
{
	struct tls_files http = rs_config_tls_files(fresh);
	struct rs_config taken = *fresh;
	int level = fresh->logging.level;
	int rc = http_port_reload(h->http, &http, e);

	if (!rc)
		rc = h->opt.daemon->reload(h->opt.ctx, fresh, e);
	if (rc) {
		rs_config_close(fresh);
		return rc;
	}
	host_set_tokens(h, files);
	host_renewal_take(h, &taken, stamps);
	h->drain_ms = taken.timeouts.drain_ms;
	if (level != h->as_read.logging.level) /* else that of the command line stays */
		h->opt.log->level = level;
	h->as_read.logging.level = level;
	return host_set_certificates(h, files, e);
}

static int host_try_reload(struct host *h, char result[SERVICE_RESULT], struct rs_err *e)
{
	struct rs_stamp stamps[HOST_STAMPS];
	char fixed[120];
	struct host_files files;
	struct rs_config fresh;
	int rc;

	if (!h->opt.config_file)
		return rs_fail(e, RS_ECONFIG, "started without a configuration file, so there is nothing to reload");
	rc = rs_config_load(&fresh, h->opt.config_file, e);
	if (rc)
		return rc;
	host_list_fixed(h, &fresh, fixed, sizeof fixed);
	host_stamps(&fresh, stamps); /* before they are read: the next look sees a later change */
	rc = host_files_read(h, &fresh, &files, e);
	if (rc)
		rs_config_close(&fresh);
	else
		rc = host_take_over(h, &fresh, &files, stamps, e);
	host_files_close(&files);
	if (!rc)
		host_reloaded(h, fixed, result);
	return rc;
}

int host_reload(struct host *h, char result[SERVICE_RESULT], struct rs_err *e)
{
	int rc;

	rs_notify_reloading(h->opt.notify);
	rc = host_try_reload(h, result, e);
	rs_notify_reloaded(h->opt.notify, rc ? e : NULL);
	if (rc)
		rs_log(h->opt.log, RS_LOG_ERROR, "reload", rs_kv_s("result", "kept the old configuration"),
		       rs_kv_s("reason", e->msg));
	return rc;
}

int host_on_reload(void *host, char result[SERVICE_RESULT], struct rs_err *e)
{
	return host_reload(host, result, e);
}
