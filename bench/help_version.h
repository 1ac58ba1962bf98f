/* SPDX-License-Identifier: Apache-2.0 */
/* --help, -h and --version of benchmark programs without an option table; each main()
 * calls this first. C and C++. */
#ifndef RS_BENCH_HELP_VERSION_H
#define RS_BENCH_HELP_VERSION_H

#include "common/version.h"

#include <stdio.h>
#include <string.h>

/* Prints the help or the version to standard output if an argument asks for it. Returns 1
 * if it did: exit with 0. */
static inline int bench_help_or_version(int argc, char **argv, const char *program, const char *usage)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return fputs(usage, stdout), 1;
		if (!strcmp(argv[i], "--version"))
			return printf("%s %s\n", program, RS_VERSION), 1;
	}
	return 0;
}

#endif
