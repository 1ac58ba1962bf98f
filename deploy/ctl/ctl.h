/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of reductionctl, and what the commands that query reducers share. A
 * command is in the file of its name, `drain` and `reload` in admin.c; the work of plan
 * and render is done in their folders. doctor_rules.c and timeline*.c do no I/O.
 * Everything that comes from the network is cleaned (common/utf8.h) before it is printed.
 *
 * The main thread runs a command. `events` and `check --connect` have a thread for each
 * reducer, because one reducer may be silent while another answers; such a thread writes
 * only to what belongs to its reducer, and the main thread waits for all of them. A
 * command owns what it opens.
 *
 * A command returns an error with its sentence, and main.c prints it: RS_EINVAL is wrong
 * usage (exit status 2), all others are exit status 1. A command that has printed several
 * errors itself returns an empty sentence. */
#ifndef RS_DEPLOY_CTL_CTL_H
#define RS_DEPLOY_CTL_CTL_H

#include "common/host/http/json.h"
#include "common/tls.h"
#include "config/config.h"
#include "proto/reduction.pb-c.h"
#include "proto/rpc/rpc.h"

#include <protobuf-c/protobuf-c.h>

enum file_arg {
	FILE_NONE,
	FILE_OPTIONAL,
	FILE_REQUIRED,
	FILE_OR_ENVIRONMENT,
	ADDRESS_OR_ENVIRONMENT, /* or a file */
	FILE_OR_ADDRESS,
	FILES_OR_ADDRESSES,
	FILES_OR_ADDRESSES_REQUIRED,
};

enum { OPTIONS_MAX = 20, FILES_MAX = 16, COMMAND_FOUND = 1 };

/* An option of a command. */
struct option {
	const char *name, *arg; /* without dashes; arg NULL: it takes no argument */
	const char *help;
};

/* The arguments of a command. */
struct call {
	const char *file;             /* the first one; NULL: not given */
	const char *files[FILES_MAX]; /* of FILES_OR_ADDRESSES..., all of them; files_n 0: only `file` */
	unsigned files_n;
	const char *value[OPTIONS_MAX]; /* of each option of the command, NULL: not given */
};

/* A command of reductionctl. */
struct command {
	const char *name;
	enum file_arg file;
	const char *help;
	/* Runs the command: writes to standard output; errors to *e, with an empty
	 * sentence if they are printed already. RS_EINVAL: wrong usage. COMMAND_FOUND:
	 * success, and something was found to be wrong. */
	int (*run)(const struct call *call, struct rs_err *e);
	const struct option *options; /* may be NULL */
	unsigned options_n;
};

/* Reads the configuration of a call; "-" is standard input. Without a file it is that of
 * REDUCTION_CONFIG or REDUCTION_REDUCERS, else the defaults. Errors: those of
 * rs_cluster_load_or_file. */
int load_config(struct rs_config *ret, const struct call *call, struct rs_err *e);
/* The addresses of the name that was looked up last, so that each name is looked up once
 * for all its slots. All zero: none was. */
struct shared_name {
	char name[RS_ADDRESS_MAX];
	char (*sorted)[RS_ADDRESS_MAX]; /* owned */
	unsigned n;
	int rc; /* of getaddrinfo */
};

/* Writes the address that stands for a reducer whose name is shared, of its gRPC port or
 * of the one for workers. Looks the name up if it is another one than `last`, and may
 * wait for name servers. Errors: RS_EIO, with a sentence; RS_ENOMEM. */
int shared_address(struct shared_name *last, const struct rs_config *cfg, unsigned reducer, bool grpc,
		   char ret[RS_ADDRESS_MAX], struct rs_err *e);
void shared_name_close(struct shared_name *last);
/* Returns the name of a call's file for messages. */
const char *file_name(const struct call *call);

/* Reads the value of an option; NULL, it was not given: *ret stays. `option` is its name
 * without dashes. Errors: RS_EINVAL, which names the option, what was found and what was
 * expected. */
int take_number(const char *given, const char *option, uint32_t least, uint32_t most, uint32_t *ret, struct rs_err *e);
int take_seconds(const char *given, const char *option, double least, double most, double *ret, struct rs_err *e);

/* map.c */
int map_run(const struct call *call, struct rs_err *e);

extern const struct command check_command, plan_command, status_command, events_command, drain_command, reload_command,
    render_command, doctor_command, jobs_command, bundle_command, trace_command, page_command, notice_command;

/* The first options of every command that queries reducers. */
enum reducers_option {
	REDUCERS_TOKEN,
	REDUCERS_AUTHORITY,
	REDUCERS_CERTIFICATE,
	REDUCERS_KEY,
	REDUCERS_QUERY_OPTIONS,
	REDUCERS_JSON = REDUCERS_QUERY_OPTIONS,
	REDUCERS_OPTIONS
};
#define REDUCERS_QUERY_ROWS                                                                                            \
	[REDUCERS_TOKEN] = {"token", "FILE",                                                                           \
			    "file with the token of read_token or admin_token of the reducer or agent"},               \
	[REDUCERS_AUTHORITY] = {"authority", "FILE",                                                                   \
				"use TLS; certificates (PEM) of the authorities that sign those of reducers"},         \
	[REDUCERS_CERTIFICATE] = {"certificate", "FILE", "own certificate (PEM), for reducers with `tls: mutual`"},    \
	[REDUCERS_KEY] = {"key", "FILE", "and its key"}
#define REDUCERS_OPTION_ROWS                                                                                           \
	REDUCERS_QUERY_ROWS, [REDUCERS_JSON] = {"json", NULL, "print JSON, one line with an object for each answer"}

/* The reducers that a command queries. Invariant: all pointers that are not NULL are
 * owned. */
struct reducers {
	struct {
		char name[RS_NAME_MAX]; /* as in the file; "" without one */
		char address[RS_ADDRESS_MAX];
		char tls_name[RS_ADDRESS_MAX]; /* the name that its certificate must be for */
		char relays[120];              /* "r1, r2": the reducers that relay its shards; "": none */
	} * reducers;
	unsigned reducers_n;
	unsigned may_lack; /* so many need not answer: their slots may be empty */
	const struct rpc_api *rpc;
	struct rpc_client *client;
	char *bearer; /* value of the header "authorization" */
	bool secure;  /* use TLS, with: */
	struct tls_texts texts;
};

/* Reads what the call names: addresses or a file, a token, certificates. At most one
 * file, whose certificates are for all. `admin`: from a file take admin_token, else
 * read_token. Errors: RS_EINVAL (usage), RS_ECONFIG, RS_EIO, RS_EUNSUPPORTED (no
 * gRPC). */
int reducers_open(struct reducers *a, const struct call *call, bool admin, struct rs_err *e);
void reducers_close(struct reducers *a);
/* Writes the name of a reducer for messages and tables: "r0 (127.0.0.1:7601)", or its
 * address alone. Returns buf. */
const char *reducers_name(const struct reducers *a, unsigned reducer, char *buf, size_t size);

/* Sends a request; the caller releases *ret with a->rpc->query_free(). timeout_ms 0: no
 * limit. Errors: as those of the module. */
int reducers_send(struct reducers *a, unsigned reducer, const char *path, const ProtobufCMessage *request,
		  uint32_t timeout_ms, struct rpc_query **ret, struct rs_err *e);
/* Waits for the next message, which the caller frees. 1: *ret is set; 0: the answer is
 * complete; else an error. */
int reducers_next(struct reducers *a, unsigned reducer, struct rpc_query *query, const ProtobufCMessageDescriptor *type,
		  ProtobufCMessage **ret, struct rs_err *e);
/* Queries all reducers at the same time, and passes each answer to `take`, in the order
 * of the reducers. Of several reducers, each that fails is printed to standard error.
 * Returns RS_OK, or the code of the last one that failed; then *e is about all of
 * them. */
int reducers_all(struct reducers *a, const char *path, const ProtobufCMessage *request,
		 const ProtobufCMessageDescriptor *type,
		 void (*take)(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer), struct rs_err *e);

/* status_agent.c */
/* Prints the status of an agent. */
void show_agent(struct reducers *a, unsigned reducer, const Reduction__V1__StatusReply *m);
/* Prints that a reducer or an agent drains, if it does. */
void show_drain(const Reduction__V1__StatusReply *m);
/* Prints a line about the reducers that a job has lost, if there are any. now_ms: the
 * clock of the reducer. */
void show_lost(const Reduction__V1__JobStatus *job, int64_t now_ms);

/* Writes the object of one answer on a line: "reducer", "address" and the fields of the
 * message. */
void json_answer(const struct reducers *a, unsigned reducer, const ProtobufCMessage *m, FILE *out);

#endif
