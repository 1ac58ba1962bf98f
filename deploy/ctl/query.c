/* SPDX-License-Identifier: Apache-2.0 */
/* How the commands that watch and control reducers find and query them. */
#include "common/auth.h"
#include "config/schema.h"
#include "config/tls_texts.h"
#include "config/value.h"
#include "deploy/ctl/ctl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MS = 10000 }; /* timeout of a query with a single answer */

static void add_reducer(struct reducers *a, const char *name, const char *address, const char *tls_name)
{
	snprintf(a->reducers[a->reducers_n].tls_name, sizeof a->reducers->tls_name, "%s",
		 tls_name[0] ? tls_name : address);
	snprintf(a->reducers[a->reducers_n].name, sizeof a->reducers->name, "%s", name);
	snprintf(a->reducers[a->reducers_n++].address, sizeof a->reducers->address, "%s", address);
}

/* Reads a token from a file. It is never an argument, which other users could see. */
static int take_token(struct reducers *a, const char *file, struct rs_err *e)
{
	static const char scheme[] = "Bearer ";
	struct auth_secret token;
	int rc = auth_token_load(&token, file, e);

	if (rc)
		return rc;
	a->bearer = malloc(sizeof scheme + token.len);
	if (a->bearer) {
		memcpy(a->bearer, scheme, sizeof scheme - 1);
		memcpy(a->bearer + sizeof scheme - 1, token.bytes, token.len);
		a->bearer[sizeof scheme - 1 + token.len] = '\0';
	} else {
		rc = rs_oom(e, sizeof scheme + token.len, "a token");
	}
	auth_secret_clear(&token);
	return rc;
}

/* Reads the TLS files. Options override those of the configuration; cfg is NULL without
 * one. */
static int take_tls(struct reducers *a, const struct call *call, const struct rs_config *cfg, struct rs_err *e)
{
	const char *authority = call->value[REDUCERS_AUTHORITY];
	const char *certificate = call->value[REDUCERS_CERTIFICATE], *key = call->value[REDUCERS_KEY];
	bool by_file = cfg && cfg->security.tls != TLS_OFF;
	struct tls_files files;

	if (!certificate != !key)
		return rs_fail(e, RS_EINVAL, "found --%s alone, expected --certificate and --key together",
			       certificate ? "certificate" : "key");
	if (certificate && !authority && !by_file)
		return rs_fail(e, RS_EINVAL, "found --certificate without --authority, expected both");
	a->secure = authority || by_file;
	if (!a->secure)
		return RS_OK;
	if (!certificate && by_file && cfg->security.tls == TLS_MUTUAL) {
		certificate = cfg->security.certificate;
		key = cfg->security.key;
	}
	if (!authority && by_file)
		authority = cfg->security.authority;
	files = (struct tls_files){certificate ? certificate : "", key ? key : "", authority ? authority : ""};
	return tls_texts_load(&a->texts, &files, e);
}

static int take_address(struct reducers *a, const char *address, struct rs_err *e)
{
	const struct schema_key *key = schema_find("reducers", "grpc");
	struct rs_reducer reducer = {0};
	struct rs_config *cfg = NULL;

	if (rpc_is_unix(address)) {
		cfg = calloc(1, sizeof *cfg);
		key = schema_find("agent", "grpc");
	}
	if (!address[0] || !value_parse(key, address, cfg ? (void *)cfg : &reducer)) {
		free(cfg);
		return rs_fail(e, RS_EINVAL,
			       "found \"%s\", expected host:port of a reducer's or agent's gRPC port, unix:PATH, or an "
			       "existing file",
			       address);
	}
	add_reducer(a, "", cfg ? address : reducer.grpc, cfg ? "localhost" : "");
	free(cfg);
	return RS_OK;
}

/* Adds a machine of a name that slots share, if there is one for this slot. Jobs say
 * themselves which slot it fills. */
static void add_shared(struct reducers *a, struct shared_name *last, const struct rs_config *cfg, unsigned reducer)
{
	char address[RS_ADDRESS_MAX], name[RS_HOST_MAX];
	struct rs_err e;

	rs_config_tls_name(&cfg->reducers[reducer], name);
	if (shared_address(last, cfg, reducer, true, address, &e) == RS_OK)
		add_reducer(a, "", address, name);
}

/* Lists the reducers that relay shards of a home for any group; ends with "..." if there
 * is no room for all. */
static void list_relays(const struct rs_config *cfg, unsigned home, char *ret, size_t size)
{
	size_t n = (size_t)cfg->groups_n * cfg->sharding.shards, len = 0;

	for (unsigned r = 0; r < cfg->reducers_n; r++) {
		bool relays = false;

		for (size_t i = 0; i < n && !relays; i++)
			relays = cfg->relays[i] == r && cfg->sharding.owner[i % cfg->sharding.shards] == home;
		if (!relays)
			continue;
		if (len + strlen(cfg->reducers[r].id) + sizeof ", , ..." > size) {
			snprintf(ret + len, size - len, ", ...");
			return;
		}
		len += (size_t)snprintf(ret + len, size - len, "%s%s", len ? ", " : "", cfg->reducers[r].id);
	}
}

static int take_file(struct reducers *a, const struct call *call, bool admin, struct rs_err *e)
{
	struct shared_name last = {.n = 0};
	struct rs_config cfg;
	int rc = load_config(&cfg, call, e);
	const char *token;

	if (rc)
		return rc;
	for (unsigned i = 0; i < cfg.reducers_n; i++) {
		if (cfg.reducers[i].shared) {
			add_shared(a, &last, &cfg, i);
		} else if (cfg.reducers[i].grpc[0]) {
			list_relays(&cfg, i, a->reducers[a->reducers_n].relays, sizeof a->reducers->relays);
			add_reducer(a, cfg.reducers[i].id, cfg.reducers[i].grpc, cfg.reducers[i].tls_name);
		}
	}
	shared_name_close(&last);
	if (!a->reducers_n && cfg.reducers[0].shared) /* the query says why the name gives no address */
		add_reducer(a, cfg.reducers[0].id, cfg.reducers[0].grpc, cfg.reducers[0].tls_name);
	if (rs_config_has_slots(&cfg) && a->reducers_n > cfg.job.min_reducers)
		a->may_lack = a->reducers_n - cfg.job.min_reducers;
	token = admin ? cfg.security.admin_token : cfg.security.read_token;
	if (!call->value[REDUCERS_TOKEN] && token[0])
		rc = take_token(a, token, e);
	if (!rc)
		rc = take_tls(a, call, &cfg, e);
	rs_config_close(&cfg);
	return rc;
}

/* Returns true for the name of a file: one that is there, or that a host does not
 * have. */
static bool is_file(const char *target)
{
	const char *suffix = strrchr(target, '.');

	return access(target, F_OK) == 0 || (suffix && (!strcmp(suffix, ".yaml") || !strcmp(suffix, ".yml")));
}

int reducers_open(struct reducers *a, const struct call *call, bool admin, struct rs_err *e)
{
	struct call file = {.file = NULL};
	bool configured = false;
	int rc = RS_OK;

	*a = (struct reducers){0};
	a->reducers = calloc(RS_REDUCERS_MAX + FILES_MAX, sizeof *a->reducers);
	if (!a->reducers)
		return rs_oom(e, (RS_REDUCERS_MAX + FILES_MAX) * sizeof *a->reducers, "the reducers");
	for (unsigned i = 0; !rc && i < (call->files_n ? call->files_n : 1); i++) {
		const char *target = call->files_n ? call->files[i] : call->file;

		if (target && strcmp(target, "-") != 0 && !is_file(target)) {
			rc = take_address(a, target, e);
		} else if (file.file) {
			rc =
			    rs_fail(e, RS_EINVAL, "found the files %s and %s, expected at most one", file.file, target);
		} else {
			file = *call;
			file.file = target;
			configured = true;
			rc = take_file(a, &file, admin, e);
		}
	}
	if (!rc && !configured)
		rc = take_tls(a, call, NULL, e);
	if (!rc && call->value[REDUCERS_TOKEN])
		rc = take_token(a, call->value[REDUCERS_TOKEN], e);
	if (!rc)
		rc = rpc_load(&a->rpc, e);
	if (!rc)
		rc = a->rpc->client_new(&a->client, e);
	if (rc)
		reducers_close(a);
	return rc;
}

void reducers_close(struct reducers *a)
{
	if (a->client)
		a->rpc->client_free(a->client);
	free(a->reducers);
	free(a->bearer);
	tls_texts_free(&a->texts);
}

const char *reducers_name(const struct reducers *a, unsigned reducer, char *buf, size_t size)
{
	if (a->reducers[reducer].name[0])
		snprintf(buf, size, "%s (%s)", a->reducers[reducer].name, a->reducers[reducer].address);
	else
		snprintf(buf, size, "%s", a->reducers[reducer].address);
	return buf;
}

int reducers_send(struct reducers *a, unsigned reducer, const char *path, const ProtobufCMessage *request,
		  uint32_t timeout_ms, struct rpc_query **ret, struct rs_err *e)
{
	const struct rpc_tls tls = {a->texts.certificate, a->texts.key, a->texts.authority};
	uint8_t bytes[4096]; /* the most that the services accept */
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4];
	struct rpc_query_options opt = {
	    .address = a->reducers[reducer].address,
	    .authority = a->reducers[reducer].tls_name,
	    .tls = a->secure ? &tls : NULL,
	    .path = path,
	    .request = bytes,
	    .timeout_ms = timeout_ms,
	    .header = a->bearer ? "authorization" : NULL,
	    .value = a->bearer,
	};

	if (protobuf_c_message_get_packed_size(request) > sizeof bytes)
		return rs_fail(e, RS_EINVAL, "found a request of %zu bytes, expected at most %zu",
			       protobuf_c_message_get_packed_size(request), sizeof bytes);
	opt.request_len = protobuf_c_message_pack(request, bytes);
	if (a->rpc->query(ret, a->client, &opt, e) == RS_OK)
		return RS_OK;
	return rs_wrap(e, "%s", reducers_name(a, reducer, name, sizeof name));
}

int reducers_next(struct reducers *a, unsigned reducer, struct rpc_query *query, const ProtobufCMessageDescriptor *type,
		  ProtobufCMessage **ret, struct rs_err *e)
{
	enum rpc_code code = RPC_CODE_OK;
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4];
	const uint8_t *bytes;
	size_t len;
	int rc = a->rpc->query_next(query, 0, &bytes, &len, &code, e);

	reducers_name(a, reducer, name, sizeof name);
	if (rc == 0)
		return 0;
	if (rc != 1) {
		if (strcmp(e->msg, "connection refused") == 0)
			rs_fail(e, e->code, "connection refused; is gRPC on there (server.grpc or agent.grpc)?");
		return rs_wrap(e, "%s", name);
	}
	*ret = protobuf_c_message_unpack(type, NULL, len, bytes);
	return *ret ? 1 : rs_fail(e, RS_EPROTO, "%s: the answer of %zu bytes is no %s", name, len, type->short_name);
}

int reducers_all(struct reducers *a, const char *path, const ProtobufCMessage *request,
		 const ProtobufCMessageDescriptor *type,
		 void (*take)(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer), struct rs_err *e)
{
	struct rpc_query **asks = calloc(a->reducers_n, sizeof(*asks));
	struct rs_err *why = calloc(a->reducers_n, sizeof *why);
	unsigned failed = 0;
	int rc = RS_OK;

	if (!asks || !why) {
		rc = rs_oom(e, 0, "queries");
		goto out;
	}
	for (unsigned i = 0; i < a->reducers_n; i++)
		if (reducers_send(a, i, path, request, ANSWER_MS, &asks[i], &why[i]))
			asks[i] = NULL;
	for (unsigned i = 0; i < a->reducers_n; i++) {
		ProtobufCMessage *answer = NULL;
		int got = asks[i] ? reducers_next(a, i, asks[i], type, &answer, &why[i]) : why[i].code;

		if (got == 0)
			rs_fail(&why[i], RS_EPROTO, "%s: the answer is empty", a->reducers[i].address);
		if (got != 1) {
			failed++;
			*e = why[i];
			rc = e->code;
		} else {
			take(a, i, answer);
			protobuf_c_message_free_unpacked(answer, NULL);
		}
		if (asks[i])
			a->rpc->query_free(asks[i]);
	}
	if (failed <= a->may_lack)
		rc = RS_OK;
	for (unsigned i = 0; i < a->reducers_n && a->reducers_n > 1; i++)
		if (why[i].code)
			fprintf(stderr, "reductionctl: %s%s\n", why[i].msg, rc ? "" : "; its slot may be empty");
	if (rc && a->reducers_n > 1)
		rs_fail(e, rc, "%u of %u reducers did not answer", failed, a->reducers_n);
out:
	free(asks);
	free(why);
	return rc;
}

void json_answer(const struct reducers *a, unsigned reducer, const ProtobufCMessage *m, FILE *out)
{
	flockfile(out); /* answers of several reducers may arrive at the same time */
	fputs("{\"reducer\":", out);
	json_string(a->reducers[reducer].name, out);
	fputs(",\"asked\":", out);
	json_string(a->reducers[reducer].address, out);
	json_fields(m, ",", out);
	fputs("}\n", out);
	fflush(out);
	funlockfile(out);
}
