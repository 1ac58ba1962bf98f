/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the host use of each other. */
#ifndef RS_COMMON_HOST_HOST_STATE_H
#define RS_COMMON_HOST_HOST_STATE_H

#include "common/auth.h"
#include "common/host/host.h"
#include "config/tls_texts.h"

/* host_drain.c */
/* Returns the time of day in milliseconds since 1970. */
int64_t host_unix_ms(void);
/* Tells the service manager what the daemon does. */
void host_notify(struct host *h);
/* As service_options.drain. */
void host_on_drain(void *host, uint32_t timeout_ms, const char *because, struct service_drained *ret);

/* Drains if there is a notice. */
void host_notice_tick(struct host *h);
/* Tells the daemon to drain, if it is to and has not heard of it. May close the host. */
void host_tell_drain(struct host *h);

/* host_notice.c */
/* A notice that the machine ends. */
struct host_notice {
	char because[HOST_BECAUSE];
	uint32_t left_ms; /* that jobs may still run; 0: the notice has no time */
};
/* Reads the file of the notice. Returns whether there is one. */
bool host_notice_read(struct host *h, struct host_notice *ret);

/* host_reload.c */
/* As service_options.reload. */
int host_on_reload(void *host, char result[SERVICE_RESULT], struct rs_err *e);

/* host_renew.c */
/* Returns what the files of a configuration are now. */
void host_stamps(const struct rs_config *cfg, struct rs_stamp ret[HOST_STAMPS]);
/* A configuration was taken over, whose files were read after these stamps were taken. */
void host_renewal_take(struct host *h, const struct rs_config *cfg, const struct rs_stamp stamps[HOST_STAMPS]);
/* Looks, now and then, whether files have changed, and takes them over. */
void host_renewal_tick(struct host *h);

/* host_process.c */
/* Fills in what the kernel says of this process. */
void host_process(struct status_reply *to);

/* host_network.c */
/* Fills in what the kernel says of TCP, and the configured bandwidth. */
void host_network(struct status_reply *to, uint64_t bandwidth);

/* host_events.c */
/* Every line of level info and above becomes an event from now on. */
void host_events_start(struct host *h);
/* Stops that. No other thread logs any more. */
void host_events_stop(struct host *h);
/* Takes the lines that other threads have logged. */
void host_events_take(struct host *h);
void host_events_free(struct host *h);

/* host_answers.c */
/* Set the callbacks of the control service for statuses and traces. */
void host_answers_options(struct host *h, struct service_options *so);
void host_answers_init(struct host *h);
/* Requests a sample for the history when one is due. */
void host_answers_tick(struct host *h);
/* Passes on a status or a trace that has become complete. */
void host_answers_take(struct host *h);
void host_answers_close(struct host *h);
void host_answers_free(struct host *h);

/* host_files.c */
/* What a reload reads before anything changes. */
struct host_files {
	struct auth_secret read, admin;
	struct tls_texts texts;
};
/* Reads the files of a configuration for the ports that are open. *ret is to be released
 * with host_files_close, also after errors. Errors: RS_ECONFIG, RS_EIO, RS_ENOMEM. */
int host_files_read(const struct host *h, const struct rs_config *cfg, struct host_files *ret, struct rs_err *e);
void host_files_close(struct host_files *f);
/* Sets the tokens of the control service. */
void host_set_tokens(struct host *h, const struct host_files *f);
/* Sets the certificates of the gRPC port. Errors: RS_ENOMEM, RS_ECONFIG; then the old
 * ones stay. */
int host_set_certificates(struct host *h, const struct host_files *f, struct rs_err *e);

/* host_end.c */
/* Stops the gRPC server, which must exist. Ends the process if that takes too long. */
void host_end_grpc(struct host *h);

/* host_ports.c */
/* Reports the number of lines that were dropped. */
void host_ports_tick(struct host *h);

#endif
