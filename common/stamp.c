/* SPDX-License-Identifier: Apache-2.0 */
#include "common/stamp.h"

#include <sys/stat.h>

struct rs_stamp rs_stamp(const char *path)
{
	struct stat st;

	if (!path[0] || stat(path, &st))
		return (struct rs_stamp){.inode = 0};
	return (struct rs_stamp){.device = st.st_dev,
				 .inode = st.st_ino,
				 .bytes = (uint64_t)st.st_size,
				 .changed_ns = (uint64_t)st.st_ctim.tv_sec * 1000000000 + (uint64_t)st.st_ctim.tv_nsec};
}
