/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a support bundle, from which the bytes of known secrets are removed. */
#ifndef RS_DEPLOY_CTL_BUNDLE_H
#define RS_DEPLOY_CTL_BUNDLE_H

#include "config/config.h"
#include "deploy/ctl/archive.h"

#include <stdbool.h>
#include <stdio.h>

enum {
	BUNDLE_SECRET_MIN = 8,       /* bytes: shorter text occurs by chance */
	BUNDLE_NAME = 56,            /* bytes of its name, terminator included */
	BUNDLE_FILE_MAX = 256 << 10, /* bytes that are copied from one file or program of this machine */
};

/* A text that must not occur in the bundle. */
struct bundle_secret {
	struct bundle_secret *next;
	size_t n;
	char text[];
};

/* A bundle. One file at a time is made as text: between bundle_begin and bundle_end. All
 * secrets are known before the first one begins. */
struct bundle {
	struct archive *archive;
	char name[BUNDLE_NAME]; /* of the folder with all files in it */
	int64_t unix_s;
	struct bundle_secret *secrets; /* owned */
	FILE *out;                     /* of the file that is being made */
	char *text;
	size_t text_n;
	bool no_memory; /* a file is missing, or a secret is not known: then no file is added */
};

/* Remembers a text that must not occur in the bundle. */
void bundle_secret(struct bundle *b, const char *text, size_t n);
/* Frees all of them. */
void bundle_forget_secrets(struct bundle *b);
/* Remembers the content of a file, if it can be read and is short enough for a secret or
 * a token. */
void bundle_secret_file(struct bundle *b, const char *path);
/* Remembers the secrets and tokens that a configuration names. Then replaces the value of
 * each key that should name a file and does not, since it may be the secret itself. */
void bundle_secrets_of(struct bundle *b, struct rs_config *cfg, const char *file);
/* Returns whether a variable of the environment may have a secret as its value, because
 * of its name. */
bool bundle_is_secret_name(const char *name);

/* Overwrites with '*' what of the text is part of a secret, as it is or escaped as in
 * JSON. False: there is no memory, and the text is unchanged. */
bool bundle_redact(char *text, size_t n, const struct bundle_secret *secrets);

/* Begins a file. Returns where to write it; NULL: no memory. */
FILE *bundle_begin(struct bundle *b);
/* Adds the file, whose name is made as by printf. */
void bundle_end(struct bundle *b, const char *name, ...) __attribute__((format(printf, 2, 3)));

/* Adds what is to be said of this machine: versions, the kernel's settings of the
 * network, links, processors, memory, limits, the daemons that run here, their log. */
void bundle_machine(struct bundle *b);

#endif
