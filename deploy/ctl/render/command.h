/* SPDX-License-Identifier: Apache-2.0 */
/* A command `gcloud ai custom-jobs create ...`, or its options --worker-pool-spec alone,
 * as a CustomJob. */
#ifndef RS_DEPLOY_CTL_RENDER_COMMAND_H
#define RS_DEPLOY_CTL_RENDER_COMMAND_H

#include "deploy/ctl/render/tree.h"

/* What a command says that is no field of a job. NULL: nothing. Texts belong to the
 * tree. */
struct command_place {
	const char *region, *project;
};

/* Returns whether a text is such a command, perhaps after comments, or printed by
 * `sh -x`. */
bool command_is(const char *text, size_t len);

/* Reads a command. On success release ret->doc with ydoc_close(). Errors: RS_ECONFIG
 * "file:line:column: option: what was found, what was expected"; RS_ENOMEM. */
int command_read(struct tree *ret, struct command_place *place, const char *name, const char *text, size_t len,
		 struct rs_err *e);

#endif
