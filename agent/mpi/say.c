/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mpi/shim.h"

#include <stdarg.h>
#include <stdio.h>

void shim_say(const struct shim *s, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fprintf(stderr, "reduction-mpi: rank %d: %s\n", s->rank, text);
}
