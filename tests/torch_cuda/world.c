/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/torch_cuda/fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
_Thread_local int device_now;
static _Thread_local int last_error;

long setting(const char *name, long otherwise)
{
	const char *text = getenv(name);
	return text && *text ? strtol(text, NULL, 10) : otherwise;
}

int devices(void)
{
	long n = setting("FAKE_DEVICES", 1);
	return n < 0 ? 0 : n > DEVICES ? DEVICES : (int)n;
}

bool answered(const char *function, int *code)
{
	const char *at = getenv("FAKE_RETURN");
	size_t length = strlen(function);
	for (; at && *at; at = strchr(at, ','), at = at ? at + 1 : NULL)
		if (strncmp(at, function, length) == 0 && at[length] == '=') {
			*code = (int)strtol(at + length + 1, NULL, 10);
			return true;
		}
	return false;
}

int noted(int error)
{
	if (error)
		last_error = error;
	return error;
}

int cudaPeekAtLastError(void);
int cudaPeekAtLastError(void)
{
	return last_error;
}

int cudaGetLastError(void);
int cudaGetLastError(void)
{
	int error = last_error;
	last_error = OK;
	return error;
}

long fake_missing(const char *name)
{
	static const char *said[512];
	static size_t said_n;
	bool again = false;
	pthread_mutex_lock(&fake.lock);
	for (size_t i = 0; i < said_n; i++)
		again |= strcmp(said[i], name) == 0;
	if (!again && said_n < sizeof said / sizeof *said)
		said[said_n++] = name;
	pthread_mutex_unlock(&fake.lock);
	if (!again)
		fprintf(stderr, "[fake CUDA %d] %s is not there: returns %d\n", (int)getpid(), name, UNSUPPORTED);
	return UNSUPPORTED;
}

void *host_waits(void)
{
	static int (*has)(void);
	static void *(*give)(void);
	if (!has) {
		*(void **)&give = dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
		*(void **)&has = dlsym(RTLD_DEFAULT, "PyGILState_Check");
	}
	int (*running)(void) = NULL;
	*(void **)&running = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
	return has && give && running && running() && has() ? give() : NULL;
}

void host_goes_on(void *state)
{
	void (*take)(void *) = NULL;
	if (!state)
		return;
	*(void **)&take = dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
	take(state);
}
