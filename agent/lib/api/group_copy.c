/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lib/api/group_copy.h"

#include <stdlib.h>

/* One shared operation. It lives until done. */
struct group_copy {
	struct backend_request base;
	struct reduction_request *last; /* its tensors, the last one first */
};

static void group_copy_done(struct backend_request *base, const struct rs_err *err)
{
	struct group_copy *g = (struct group_copy *)base;
	struct reduction_request *last = g->last;
	struct rs_err e;

	if (err)
		comm_failed(last->comm, err, &e);
	free(g);
	request_complete_all(last, err ? &e : NULL);
}

int group_copy_start(struct reduction_comm *c, const struct backend_request *base, struct reduction_request *last,
		     unsigned block, struct rs_err *e)
{
	unsigned n = base->of.tensors, i = n;
	struct copier_tensor *tensors = calloc(n, sizeof *tensors);
	struct group_copy *g = malloc(sizeof *g);
	int rc;

	if (!g || !tensors) {
		rc = rs_oom(e, 0, "a group of %u tensors", n);
		comm_break(c, e);
		goto free_all;
	}
	g->base = *base;
	g->base.done = group_copy_done;
	g->last = last;
	for (struct reduction_request *req = last; req; req = req->next) {
		tensors[--i] = comm_tensor(&req->base);
		tensors[i].gap = (block - req->base.of.count % block) % block * req->base.of.size;
		req->copied = true;
	}
	rc = comm_submit_tensors(c, &g->base, tensors, n, e);
	if (rc)
		goto free_all;
	free(tensors);
	return RS_OK;

free_all:
	free(tensors);
	free(g);
	return rc;
}
