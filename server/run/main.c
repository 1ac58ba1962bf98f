/* SPDX-License-Identifier: Apache-2.0 */
/* reduction-server: command line, configuration, log. */
#include "common/host/process.h"
#include "server/run/server_uv.h"

#include <stdio.h>
#include <stdlib.h>

static int main_take_listen(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	return cmdline_address(cfg->server.listen, sizeof cfg->server.listen, "--listen", arg, e);
}

static int main_take_grpc(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	return cmdline_address(cfg->server.grpc, sizeof cfg->server.grpc, "--grpc", arg, e);
}

static int main_take_http(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	return cmdline_address(cfg->server.http, sizeof cfg->server.http, "--http", arg, e);
}

static int main_take_notice(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	return cmdline_string(cfg->server.notice, sizeof cfg->server.notice, "--notice", arg, e);
}

static int main_take_cpu(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	return cmdline_string(cfg->server.cpu, sizeof cfg->server.cpu, "--cpu", arg, e);
}

static int main_take_lanes(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	char *end;
	unsigned long n = strtoul(arg, &end, 10);

	if (*end || end == arg || n < 1 || n > RS_LANES_MAX)
		return rs_fail(e, RS_EINVAL, "found \"%s\", expected a number from 1 to %d", arg, RS_LANES_MAX);
	cfg->server.lanes = (unsigned)n;
	return RS_OK;
}

static int main_take_insecure(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	(void)arg;
	(void)e;
	cfg->server.insecure = true;
	return RS_OK;
}

static int main_take_http_insecure(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	(void)arg;
	(void)e;
	cfg->server.http_insecure = true;
	return RS_OK;
}

static const struct cmdline_flag flags[] = {
    {"listen", "HOST:PORT", "TCP address for workers [127.0.0.1:7600]; port 0: any free port, shown in the log",
     main_take_listen},
    {"grpc", "HOST:PORT", "gRPC address for workers, control and health [no gRPC]; port 0: as --listen",
     main_take_grpc},
    {"http", "HOST:PORT", "HTTP address for metrics, status page and health [no HTTP]; port 0: as --listen",
     main_take_http},
    {"lanes", "N", "threads that receive, sum and send, 1 to 64 [one for each CPU, at most 8]", main_take_lanes},
    {"cpu", "NAME", "instruction set for sums: auto, scalar, avx2, avx512 or neon [auto: the fastest]", main_take_cpu},
    {"notice", "FILE", "drain while this file exists: the machine is about to end (reductionctl notice) [no file]",
     main_take_notice},
    {"insecure", NULL, "permit other addresses than loopback without authentication [not permitted]",
     main_take_insecure},
    {"http-insecure", NULL, "permit --http without TLS on other addresses than loopback [not permitted]",
     main_take_http_insecure},
};

static const struct cmdline cmdline = {
    .program = "reduction-server",
    .purpose = "Receives gradient shards from workers, sums them and sends the sums back.",
    .notes = "SIGTERM and SIGINT stop the reducer: it accepts no new jobs, and running jobs may finish within\n"
	     "timeouts.drain [30s]. A second signal exits at once. SIGPWR drains too, and does not count.\n"
	     "Without --config and --listen it finds its place in CLUSTER_SPEC, TF_CONFIG or a heterogeneous\n"
	     "job of Slurm, if there is one.\n"
	     "SIGHUP reads the configuration again: access, limits, logging.level, names of files. Certificates\n"
	     "and tokens are read again when their files change.\n",
    .flags = flags,
    .flags_n = sizeof flags / sizeof flags[0],
    .refuses = check_server_start,
    .check = check_server,
    .role = CHECK_SERVER,
    .cluster_role = RS_CLUSTER_REDUCER,
    .without_cluster = "listen",
};

/* Disables TLS 1.2 for gRPC, whose C API cannot set the version. It can set the ciphers
 * of TLS 1.2, before the first use. The only cipher here requires a pre-shared key, which
 * does not exist. The ciphers of TLS 1.3 do not change. */
static void main_only_tls13_over_grpc(void)
{
	setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES128-GCM-SHA256", 1);
}

int main(int argc, char **argv)
{
	struct host_process p;
	struct server *server;
	struct rs_err e;
	int rc;

	main_only_tls13_over_grpc();
	if (!host_process_open(&p, &cmdline, argc, argv, &rc))
		return rc;
	rc = server_init(&server,
			 &(struct server_options){.cfg = &p.start.cfg,
						  .config_file = p.start.file,
						  .as_read = &p.start.as_read,
						  .log = &p.log,
						  .notify = &p.notify},
			 &e);
	if (!rc) {
		server_run(server);
		server_close(server);
		rs_log(&p.log, RS_LOG_INFO, "stopped", rs_kv_s("result", "clean"));
	}
	return host_process_close(&p, rc ? &e : NULL);
}
