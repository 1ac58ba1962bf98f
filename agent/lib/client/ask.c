/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the agent that wait for its answer. */
#include "agent/lib/client/client.h"

#include <unistd.h>

int client_ask(struct client *c, const union local_message *m, enum local_type type, union local_message *ret,
	       int *ret_fd, struct rs_err *e)
{
	int rc = RS_OK, fd = -1;
	bool broken;

	pthread_mutex_lock(&c->ask_lock);
	pthread_mutex_lock(&c->lock);
	c->replied = false;
	broken = c->broken; /* then the last question may have no reply yet */
	pthread_mutex_unlock(&c->lock);
	if (!broken)
		client_send(c->fd, m); /* a failure means that the agent is lost, which the reader finds, too */

	pthread_mutex_lock(&c->lock);
	while (!c->replied && !c->broken)
		pthread_cond_wait(&c->changed, &c->lock);
	if (!c->replied) {
		*e = c->err;
		rc = e->code;
	} else {
		fd = c->reply_fd;
		c->reply_fd = -1;
		c->replied = false;
		if (c->reply.head.type != type)
			rc = rs_fail(e, RS_EPROTO, "the agent at %s answered with %s, expected %s", c->path,
				     local_type_name(c->reply.head.type), local_type_name(type));
		else
			*ret = c->reply;
	}

	pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&c->ask_lock);
	if (rc && fd >= 0)
		close(fd);
	else if (!rc)
		*ret_fd = fd;
	return rc;
}
