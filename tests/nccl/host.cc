// SPDX-License-Identifier: Apache-2.0
// A program that exports functions with libuv's names, as some programs that contain libuv do. The plugin must not call
// them: they end the process. It is linked with the objects of the exerciser, which has main().
#include <cstdio>
#include <cstdlib>

#define FOREIGN(name)                                                                                                  \
	extern "C" int name(...)                                                                                       \
	{                                                                                                              \
		std::fprintf(stderr, "the program's own " #name " was called\n");                                      \
		std::abort();                                                                                          \
	}

FOREIGN(uv_async_init)
FOREIGN(uv_async_send)
FOREIGN(uv_backend_fd)
FOREIGN(uv_close)
FOREIGN(uv_hrtime)
FOREIGN(uv_loop_close)
FOREIGN(uv_loop_init)
FOREIGN(uv_now)
FOREIGN(uv_poll_init)
FOREIGN(uv_poll_start)
FOREIGN(uv_poll_stop)
FOREIGN(uv_run)
FOREIGN(uv_strerror)
FOREIGN(uv_timer_init)
FOREIGN(uv_timer_start)
FOREIGN(uv_timer_stop)
FOREIGN(uv_update_time)
