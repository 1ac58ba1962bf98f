/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's lists of nodes: "gpu[01-03,7],login" is gpu01, gpu02, gpu03, gpu7 and login.
 * Names may have several brackets: "rack[0-1]n[0-9]". */
#ifndef RS_CONFIG_NODELIST_H
#define RS_CONFIG_NODELIST_H

#include "common/error.h"
#include "config/config.h"

enum { NODELIST_MAX = RS_WORLD_MAX }; /* nodes in one list */

/* The names of a list in its order. Invariant: 1 <= n <= NODELIST_MAX. */
struct nodelist {
	unsigned n;
	char (*name)[RS_HOST_MAX]; /* owned */
};

/* Reads the text of an environment variable, or with variable NULL another text. Release
 * *ret with nodelist_close(). Errors: RS_ECONFIG naming the variable, its text, where it
 * is wrong and what was expected; RS_ENOMEM. */
int nodelist_read(struct nodelist *ret, const char *variable, const char *text, struct rs_err *e);
void nodelist_close(struct nodelist *l);

/* Returns the position of a name; -1 if it is not in the list. */
int nodelist_find(const struct nodelist *l, const char *name);

#endif
