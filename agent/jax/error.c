/* SPDX-License-Identifier: Apache-2.0 */
/* The state of this process, and errors: each call keeps a sentence, for which XLA asks
 * right after it. */
#include "agent/jax/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct jax_state jax_state = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .idle = PTHREAD_COND_INITIALIZER,
    .world = {.broken = "the job is not open: call jax.distributed.initialize() after `import reduction.jax`"}};

/* The sentence of the last error on this thread: XLA asks for it right after the call. */
static _Thread_local char last[JAX_ERROR_TEXT];

int jax_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(last, sizeof last, format, args);
	va_end(args);
	pthread_mutex_lock(&jax_state.lock);
	if (!jax_state.failed[0])
		snprintf(jax_state.failed, sizeof jax_state.failed, "%.507s", last);
	pthread_mutex_unlock(&jax_state.lock);
	return JAX_ERROR;
}

int jax_fail_error(const char *what, const reduction_error *e)
{
	return jax_fail("%s: %s", what, e->message);
}

struct jax_comm *jax_comm_of(jax_handle comm)
{
	/* handles are pointers */
	return comm == MPIABI_COMM_WORLD ? &jax_state.world : (struct jax_comm *)comm;
}

bool jax_begin(jax_handle handle, struct jax_comm **ret)
{
	struct jax_comm *c = handle == MPIABI_COMM_NULL ? NULL : jax_comm_of(handle);
	char why[sizeof c->broken];

	if (!c) {
		jax_fail("this process is not in the communicator");
		return false;
	}
	pthread_mutex_lock(&jax_state.lock);
	memcpy(why, c->broken, sizeof why);
	jax_state.calls += !why[0];
	pthread_mutex_unlock(&jax_state.lock);
	if (why[0]) {
		jax_fail("%s", why);
		return false;
	}
	*ret = c;
	return true;
}

int jax_end(int rc)
{
	pthread_mutex_lock(&jax_state.lock);
	if (--jax_state.calls == 0)
		pthread_cond_broadcast(&jax_state.idle);
	pthread_mutex_unlock(&jax_state.lock);
	return rc;
}

JAX_EXPORT int MPIABI_Error_string(int code, char *text, int *len)
{
	*len = snprintf(text, JAX_ERROR_TEXT, "%s", code == JAX_SUCCESS ? "no error" : last);
	return JAX_SUCCESS;
}
