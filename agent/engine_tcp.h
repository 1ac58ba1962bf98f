/* SPDX-License-Identifier: Apache-2.0 */
/* Apart from the other connection code, since <linux/tcp.h>, which knows the whole TCP_INFO, and <netinet/tcp.h>, which
 * <uv.h> brings along, do not go together. */
#ifndef RS_AGENT_ENGINE_TCP_H
#define RS_AGENT_ENGINE_TCP_H

#include "agent/window.h"

/* What the kernel knows of a connection. False when it does not say. */
bool tcp_signal(int fd, struct window_signal *ret);

#endif
