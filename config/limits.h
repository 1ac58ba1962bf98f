/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that the configuration, the protocol and the cores have in common, and the form
 * of names. */
#ifndef RS_CONFIG_LIMITS_H
#define RS_CONFIG_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

enum {
	RS_NAME_MAX = 64,      /* bytes of a job or reducer name, terminator included */
	RS_ADDRESS_MAX = 264,  /* bytes of "host:port" or "[v6]:port", terminator included */
	RS_HOST_MAX = 256,     /* bytes of a machine's name, terminator included */
	RS_PATH_LEN = 1024,    /* bytes of a file or socket path, terminator included */
	RS_REDUCERS_MAX = 256, /* reducers in one file */
	RS_SHARDS_MAX = 4096,  /* shards in one map */
	RS_GROUPS_MAX = 64,    /* groups of workers in one file */
	RS_NETWORKS_MAX = 64,  /* networks of one group */
	RS_LANES_MAX = 64,     /* lanes of one reducer, that is, connections of one worker to one reducer */
	RS_WORLD_MAX = 4096,   /* ranks of one job */
	RS_WINDOW_MAX = 1024,  /* chunks without a result on one lane */
	RS_PRIORITIES_MAX = 4, /* priorities of operations */
	RS_ACCESS_MAX = 1024,  /* access rules */
	RS_GLOB_MAX = 256,     /* bytes of a pattern of names, terminator included */
	RS_LONG_US = 10000,    /* round trip from which a link is long, in microseconds */
	RS_CHUNK_MIN = 1024,
	RS_CHUNK_MAX = 4 << 20, /* limits of the bytes of a chunk in the dtype of the operation; a multiple of 64 */
};

/* Returns whether the character may be in the name of a job or reducer. */
static inline bool rs_name_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
	       c == '-';
}

/* Returns whether this is the name of a job or reducer: 1 to RS_NAME_MAX - 1 of those
 * characters. */
static inline bool rs_name_valid(const char *name)
{
	size_t n = 0;

	while (n < RS_NAME_MAX && rs_name_char(name[n]))
		n++;
	return n > 0 && n < RS_NAME_MAX && !name[n];
}

#endif
