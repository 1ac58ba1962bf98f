/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mpi/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *variable(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

/* Where libreduction finds reducers. Without any of them it would look on loopback. */
static int configured(void)
{
	static const char *const names[] = {"REDUCTION_CONFIG", "REDUCTION_REDUCERS", "REDUCTION_AGENT",
					    "CLUSTER_SPEC",     "TF_CONFIG",          "SLURM_HET_SIZE"};

	for (size_t i = 0; i < COUNT(names); i++)
		if (variable(names[i]))
			return 1;
	return 0;
}

int settings_read(struct settings *ret, char *why, size_t room)
{
	static const char *const uses[] = {"off", "auto", "required"};
	const char *use = variable("REDUCTION_MPI"), *bytes = variable("REDUCTION_MPI_MIN_BYTES");
	char *end = "";

	*ret = (struct settings){.use = SETTINGS_AUTO,
				 .min_bytes = SETTINGS_MIN_BYTES,
				 .deterministic = variable("REDUCTION_DETERMINISTIC") ? -1 : 1,
				 .configured = configured()};
	if (use) {
		size_t i = 0;

		while (i < COUNT(uses) && strcmp(use, uses[i]) != 0)
			i++;
		if (i == COUNT(uses)) {
			snprintf(why, room, "REDUCTION_MPI is \"%s\", off, auto or required was expected", use);
			return -1;
		}
		ret->use = (enum settings_use)i;
	}
	errno = 0;
	if (bytes)
		ret->min_bytes = strtoll(bytes, &end, 10);
	if (errno || *end || ret->min_bytes < 1) {
		snprintf(why, room, "REDUCTION_MPI_MIN_BYTES is \"%s\", a number of bytes from 1 on was expected",
			 bytes);
		return -1;
	}
	return 0;
}
