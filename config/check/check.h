/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of a configuration before a process uses it. A daemon calls the same
 * functions at its start, for its option --check, and `reductionctl check` calls them for
 * any role. They change nothing: they bind no port, create no file and take no lock, so a
 * running daemon is not disturbed. One thread.
 *
 *     check_init(&c); if (check_load(&c, &cfg, file)) check_server(&c); ... check_close(&c); */
#ifndef RS_CONFIG_CHECK_CHECK_H
#define RS_CONFIG_CHECK_CHECK_H

#include "config/cluster.h"
#include "config/config.h"
#include "config/tls_texts.h"
#include "config/ydoc.h"

#include <dirent.h>
#include <netdb.h>

enum { CHECK_KEY = 64 /* bytes of a key's path, terminator included */ };

/* A set of roles. */
enum check_role { CHECK_SERVER = 1, CHECK_AGENT = 2, CHECK_WORKER = 4 };

enum check_severity {
	CHECK_ERROR,   /* the process or its jobs would fail */
	CHECK_WARNING, /* it works, but probably not as intended, or not for long */
	CHECK_NOTE,    /* something was not checked */
	CHECK_FACT,    /* something was found good */
};

/* One line of the result. */
struct check_line {
	enum check_severity severity;
	bool of_file;          /* it is about what the file says or leaves out */
	unsigned line, column; /* in the file, from 1; 0: not known */
	char key[CHECK_KEY];   /* "server.listen", "reducers[2].address"; "": of no key */
	struct rs_err what;    /* the sentence, which begins with the key if there is one */
};

/* A check. Invariant: `errors` of the lines are errors; no two lines are equal. */
struct check {
	char name[256];                  /* of the file; "": there is none */
	const struct rs_config *cfg;     /* borrowed; set by check_load, or by the caller after it */
	const struct rs_config *as_read; /* cfg without the command line; NULL: there is none */
	bool elsewhere;           /* the file may be for another machine: what depends on the machine is skipped */
	bool connects;            /* names are not looked up here, since connections to the reducers follow */
	struct ydoc doc;          /* the file, for positions */
	struct check_line *lines; /* owned */
	unsigned lines_n, errors;
	bool no_memory; /* lines are missing */
};

/* list.c */
void check_init(struct check *c);
void check_close(struct check *c);
/* Reads a file (NULL: the defaults; with `standard_input` "-" is standard input) and adds
 * a line for each problem. Returns whether *ret was set; release it with
 * rs_config_close(). */
bool check_load(struct check *c, struct rs_config *ret, const char *file, bool standard_input);
/* Does the same without a file, with what rs_cluster_load() finds, else the defaults. */
bool check_load_cluster(struct check *c, struct rs_config *ret, enum rs_cluster_role role, struct rs_cluster *cluster);
/* Adds a line about a key; NULL: about the section. index: of the element if the section
 * is a list, else -1. The position comes from the file, unless the command line has
 * changed the value. */
void check_add(struct check *c, enum check_severity severity, const char *section, int index, const char *key,
	       const struct rs_err *e);
/* Adds an error whose cause is not in the file. */
void check_add_other(struct check *c, const char *key, const struct rs_err *e);
void check_fact(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns whether the file has a value for a key, or with key NULL whether it has the
 * section. */
bool check_has(const struct check *c, const char *section, const char *key);
/* Writes a line as a sentence with its position: "file:3:9: warning: key: ...". Returns
 * buf. */
const char *check_text(const struct check *c, const struct check_line *l, char *buf, size_t size);
/* Writes what was checked and found good: several lines. roles: a set of enum
 * check_role. */
void check_print_good(const struct check *c, unsigned roles, FILE *out);

/* roles.c */
/* Adds an error for everything that makes the daemon refuse to start. The daemons call
 * these at their start. */
void check_server_start(struct check *c);
void check_agent_start(struct check *c);
/* Add, beyond these, what makes jobs fail later, and warnings. */
void check_server(struct check *c);
void check_agent(struct check *c);
void check_worker(struct check *c);
/* Returns the roles that a file is made for, according to its sections. */
unsigned check_roles_of(const struct check *c);

/* files.c */
void check_secret(struct check *c);
/* Checks server.secret, and server.secrets_dir as a directory, and with `each` the
 * secrets in it. */
void check_secrets(struct check *c, bool each);
void check_tokens(struct check *c);
/* Checks that the configuration names the files of security.tls that one side needs. */
void check_tls_named(struct check *c, enum rs_tls_side side);
/* Checks the files of security.tls for one side. */
void check_tls(struct check *c, enum rs_tls_side side);
/* Checks the files of an HTTP port with TLS. */
void check_http_tls(struct check *c, const char *section, int mode);
/* Opens the directory with the secrets of jobs; the caller closes *ret. Errors:
 * RS_ECONFIG. */
int check_secrets_open(DIR **ret, const char *path, struct rs_err *e);

/* certificate.c */
/* Adds warnings about the own certificate of a context: its dates, its names and who has
 * signed it. */
void check_certificate(struct check *c, enum rs_tls_side side, SSL_CTX *ctx);

/* listen.c */
/* Resolves the address of a listening socket. Errors: RS_ECONFIG if it is not an address
 * or cannot be resolved, or if an address is not loopback and not_loopback_ok is false.
 * The caller frees *ret with freeaddrinfo(). */
int check_listen(struct addrinfo **ret, const char *address, bool not_loopback_ok, struct rs_err *e);
/* Stores the error of a socket that cannot be made. Returns RS_EIO; RS_EUNSUPPORTED: the
 * kernel lacks IPv4 or IPv6. */
int check_listen_no_socket(struct rs_err *e, int sys, const char *address);
/* Stores the error of a socket that cannot listen. Returns RS_EIO. */
int check_listen_failed(struct rs_err *e, int sys, const char *address);
/* Returns whether workers must authenticate, so that a reducer may listen on other
 * addresses than loopback. */
bool check_authenticates(const struct rs_config *cfg);
/* An HTTP port in the configuration. */
struct check_http_port {
	const char *section, *address;
	int tls;       /* enum tls_mode */
	bool insecure; /* it may serve other machines without TLS */
};
/* Checks the address and the certificates of an HTTP port. */
void check_http(struct check *c, const struct check_http_port *port);
/* Checks server.listen, server.grpc and server.http. */
void check_listens(struct check *c);

/* socket.c */
/* Checks that an agent can make its socket at a path: its folder, and what is there.
 * Errors: RS_EIO. */
int check_socket(const char *path, struct rs_err *e);

/* machine.c */
/* Warns if a number of bytes exceeds the memory that this machine gives to a process. */
void check_memory(struct check *c, const char *section, const char *key, uint64_t bytes);
/* Checks that this machine is in a group and that one has relays, if there are groups. */
void check_group(struct check *c);
/* Looks up the names in the addresses of all reducers. */
void check_names(struct check *c);

#endif
