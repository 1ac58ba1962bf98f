/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process: gRPC never ends, as if it waited for a thread that
 * could not be started. */
#include <unistd.h>

#pragma GCC visibility push(default)

void grpc_shutdown_blocking(void);
void grpc_shutdown_blocking(void)
{
	for (;;)
		pause();
}
