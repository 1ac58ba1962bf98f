/* SPDX-License-Identifier: Apache-2.0 */
/* Tells whether a file has other contents than before, without reading it. */
#ifndef RS_COMMON_STAMP_H
#define RS_COMMON_STAMP_H

#include <stdint.h>

/* Identifies the contents of a file; all 0: there is none. Two are compared with
 * memcmp. */
struct rs_stamp {
	uint64_t device, inode, bytes, changed_ns;
};

/* Returns the stamp of a file, also if other files were put in its place, or in that of
 * a link on the way to it. `path` "": there is none. Any thread. */
struct rs_stamp rs_stamp(const char *path);

#endif
