/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: a thread for each reducer connects -> HELLO for no rank -> (CHALLENGE
 * -> PROOF) -> WELCOME. Failure modes: no connection, TLS, no answer in time; REFUSED,
 * whose sentence is passed on; a reducer that does not prove that it has the job's
 * secret. */
#include "deploy/ctl/probe.h"
#include "deploy/ctl/ctl.h"

#include "common/utf8.h"
#include "config/tls_texts.h"
#include "deploy/ctl/wire.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One question to a reducer, on a thread of its own. */
struct question {
	struct probe *probe;
	const struct rs_config *cfg;
	const struct wire_options *opt;
	const struct auth_secret *secret; /* of the job; len 0: there is none */
	unsigned reducer;
	uint32_t timeout_ms;
	pthread_t thread;
	struct wire wire;
	uint8_t hello[CONTROL_HELLO_LEN]; /* the payload as it was sent, for the proofs */
	uint32_t hello_len;
	uint8_t want[AUTH_MAC]; /* the reducer's proof */
	uint8_t in[FRAME_CONTROL_MAX];
	struct frame frame;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The job whose secret and certificate rules apply. */
static const char *job_name(const struct rs_config *cfg)
{
	const char *variable = getenv("REDUCTION_JOB");

	return variable && *variable ? variable : cfg->job.name[0] ? cfg->job.name : "default";
}

static int send_frame(struct question *q, unsigned type, const uint8_t *payload, uint32_t len, struct rs_err *e)
{
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];

	return wire_send(&q->wire, frame, control_frame(frame, type, 0, 0, payload, len), e);
}

static int send_hello(struct question *q, struct rs_err *e)
{
	uint8_t payload[FRAME_CONTROL_MAX];
	struct control_hello h = {.lanes = 1, .label = "reductionctl check", .has_nonce = q->secret->len > 0};
	int rc = RS_OK;

	snprintf(h.job, sizeof h.job, "%s", job_name(q->cfg));
	snprintf(h.reducer, sizeof h.reducer, "%s", q->cfg->reducers[q->reducer].id);
	if (h.has_nonce)
		rc = auth_random(h.nonce, sizeof h.nonce, e);
	if (rc)
		return rc;
	q->hello_len = control_pack_hello(payload, &h);
	memcpy(q->hello, payload, q->hello_len);
	return send_frame(q, FRAME_HELLO, q->hello, q->hello_len, e);
}

/* Receives a frame into q->frame and q->in. */
static int recv_frame(struct question *q, struct rs_err *e)
{
	uint8_t head[FRAME_HEADER];
	int rc = wire_recv(&q->wire, head, sizeof head, e);

	if (!rc)
		rc = frame_decode(head, &q->frame, e);
	if (!rc && q->frame.payload_len > sizeof q->in)
		rc = rs_fail(e, RS_EPROTO, "it sent a %s frame of %u bytes", frame_type_name(q->frame.type),
			     q->frame.payload_len);
	if (!rc)
		rc = wire_recv(&q->wire, q->in, q->frame.payload_len, e);
	if (!rc && !control_intact(&q->frame, q->in))
		rc = rs_fail(e, RS_EPROTO, "the checksum of its %s frame is wrong", frame_type_name(q->frame.type));
	return rc;
}

static int answer_challenge(struct question *q, struct rs_err *e)
{
	uint8_t nonce[AUTH_NONCE], mac[AUTH_MAC], payload[CONTROL_PROOF_LEN];
	const struct auth_transcript t = {
	    .binding = q->wire.binding,
	    .binding_len = q->wire.binding_len,
	    .hello = q->hello,
	    .hello_len = q->hello_len,
	    .challenge = q->in,
	    .challenge_len = q->frame.payload_len,
	};
	int rc = control_unpack_challenge(q->in, q->frame.payload_len, nonce, e);

	if (!rc)
		rc = auth_mac(mac, q->secret, AUTH_WORKER, &t, e);
	if (!rc)
		rc = auth_mac(q->want, q->secret, AUTH_REDUCER, &t, e);
	return rc ? rc : send_frame(q, FRAME_PROOF, payload, control_pack_proof(payload, mac), e);
}

static int take_welcome(struct question *q, bool challenged, struct rs_err *e)
{
	struct control_welcome w;
	int rc = control_unpack_welcome(q->in, q->frame.payload_len, &w, e);

	if (rc)
		return rc;
	if (q->secret->len && !(challenged && w.proven && auth_equal(w.mac, q->want)))
		return rs_fail(e, RS_EREFUSED,
			       "it has not proven that it has the secret of job %s: its server.secrets_dir is not set, "
			       "or another process listens at its address",
			       job_name(q->cfg));
	rs_utf8_clean(w.software);
	snprintf(q->probe->software, sizeof q->probe->software, "%s", w.software);
	q->probe->proven = challenged;
	return RS_OK;
}

static int fail_refused(struct question *q, struct rs_err *e)
{
	struct control_refused refused;
	int rc = control_unpack_refused(q->in, q->frame.payload_len, &refused, e);

	if (rc)
		return rc;
	rs_utf8_clean(refused.message);
	return rs_fail(e, RS_EREFUSED, "it refuses: %s", refused.message);
}

static int talk(struct question *q, struct rs_err *e)
{
	double sent_s = now_s();
	bool challenged = false;
	int rc = send_hello(q, e);

	if (!rc)
		rc = recv_frame(q, e);
	q->probe->round_trip_s = now_s() - sent_s;
	if (!rc && q->frame.type == FRAME_CHALLENGE && q->secret->len) {
		challenged = true;
		rc = answer_challenge(q, e);
		if (!rc)
			rc = recv_frame(q, e);
	}
	if (rc)
		return rc;
	if (q->frame.type == FRAME_REFUSED)
		return fail_refused(q, e);
	if (q->frame.type == FRAME_WELCOME)
		return take_welcome(q, challenged, e);
	return rs_fail(e, RS_EPROTO, "it answered with a %s frame", frame_type_name(q->frame.type));
}

static void *ask(void *arg)
{
	struct question *q = arg;
	const struct rs_reducer *r = &q->cfg->reducers[q->reducer];
	char name[RS_HOST_MAX];
	struct rs_err e;

	if (q->probe->why.code)
		return NULL;
	if (!q->probe->address[0]) {
		rs_fail(&q->probe->why, RS_EIO, "the configuration gives no address");
		return NULL;
	}
	rs_config_tls_name(r, name);
	if (wire_open(&q->wire, q->opt, q->probe->address, name, q->timeout_ms, &e)) {
		q->probe->why = e;
		return NULL;
	}
	q->probe->secure = q->wire.tcp.ssl || (q->opt->rpc && q->opt->tls);
	if (talk(q, &e))
		q->probe->why = e;
	wire_close(&q->wire);
	return NULL;
}

/* Starts a thread for each question, and waits for all of them. */
static int ask_all(struct question *all, unsigned n, struct rs_err *e)
{
	unsigned started = 0;

	while (started < n && pthread_create(&all[started].thread, NULL, ask, &all[started]) == 0)
		started++;
	for (unsigned i = 0; i < started; i++)
		pthread_join(all[i].thread, NULL);
	return started < n ? rs_fail(e, RS_ENOMEM, "a thread cannot be started") : RS_OK;
}

/* Makes what the connections share. The caller releases it, also after an error. */
static int open_options(struct wire_options *opt, struct tls_texts *texts, struct rpc_tls *tls,
			const struct rs_config *cfg, struct rs_err *e)
{
	int rc = RS_OK;

	if (cfg->security.tls != TLS_OFF && !cfg->job.grpc)
		return rs_config_tls_context(&opt->ctx, RS_TLS_WORKER, cfg, e);
	if (!cfg->job.grpc)
		return RS_OK;
	setenv("GRPC_VERBOSITY", "NONE", 0); /* failures are reported as sentences, not in gRPC's log too */
	rc = rs_config_tls_texts(texts, RS_TLS_WORKER, cfg, e);
	if (!rc)
		rc = rpc_load(&opt->rpc, e);
	if (!rc)
		rc = opt->rpc->client_new(&opt->client, e);
	*tls = (struct rpc_tls){texts->certificate, texts->key, texts->authority};
	opt->tls = cfg->security.tls != TLS_OFF ? tls : NULL;
	return rc;
}

int probe_all(struct probe **ret, const struct rs_config *cfg, uint32_t timeout_ms, struct rs_err *e)
{
	struct probe *probes = calloc(cfg->reducers_n, sizeof *probes);
	struct question *all = calloc(cfg->reducers_n, sizeof *all);
	struct tls_texts texts = {.certificate = NULL};
	struct shared_name last = {.n = 0};
	struct wire_options opt = {.ctx = NULL};
	struct auth_secret secret = {.len = 0};
	struct rpc_tls tls;
	int rc = RS_OK;

	if (!probes || !all)
		rc = rs_oom(e, 0, "%u reducers", cfg->reducers_n);
	if (!rc && cfg->security.secret[0])
		rc = auth_secret_load(&secret, cfg->security.secret, e);
	if (!rc)
		rc = open_options(&opt, &texts, &tls, cfg, e);
	for (unsigned i = 0; !rc && i < cfg->reducers_n; i++) {
		if (!cfg->reducers[i].shared ||
		    shared_address(&last, cfg, i, cfg->job.grpc, probes[i].address, &probes[i].why))
			snprintf(probes[i].address, sizeof probes[i].address, "%s",
				 rs_config_address(cfg, &cfg->reducers[i]));
		all[i] = (struct question){.probe = &probes[i],
					   .cfg = cfg,
					   .opt = &opt,
					   .secret = &secret,
					   .reducer = i,
					   .timeout_ms = timeout_ms};
	}
	if (!rc)
		rc = ask_all(all, cfg->reducers_n, e);
	if (opt.client)
		opt.rpc->client_free(opt.client);

	SSL_CTX_free(opt.ctx);
	shared_name_close(&last);
	tls_texts_free(&texts);
	auth_secret_clear(&secret);
	free(all);
	if (rc)
		free(probes);
	else
		*ret = probes;
	return rc;
}
