/* SPDX-License-Identifier: Apache-2.0 */
/* A server and a client over gRPC on loopback, in this process, and what its handlers and wakers leave for the test. */
#ifndef RS_TESTS_UNIT_FAKE_RPC_H
#define RS_TESTS_UNIT_FAKE_RPC_H

#include "proto/rpc/rpc.h"

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FRPC_HANDSHAKE_MS = 300, FRPC_CALLS_MAX = 3 };

extern struct fake_rpc {
	const struct rpc_api *api;
	struct rpc_server *server; /* on `address`, with the methods /test.Bytes/Exchange and /test.Ask/Ask */
	struct rpc_client *client;
	char address[64];
	struct rpc_queue *_Atomic served; /* by the test's own thread; NULL: the module's threads serve all */
} frpc;

/* Fixtures: the module's threads serve both ends, or the test's own thread serves one. */
void frpc_setup(void);
void frpc_setup_client_served(void);
void frpc_setup_server_served(void);
void frpc_teardown(void);
/* The module in the build's lib, as seen from its tests/unit; the fixtures do so too. */
void frpc_load(void);

/* Runs a suite, not forked, which gRPC does not take, and apart from the main thread: at the end GCC's LeakSanitizer
 * crashes on what gRPC has stored for that one. Returns whether all is good. */
bool frpc_run(Suite *s);

extern const struct rpc_waker frpc_waker;
unsigned frpc_wakes(void);
/* Waits for a waker that was called after `seen` calls; returns how many there were. */
unsigned frpc_woken_after(unsigned seen);
/* The same, for so long, where the module's threads serve; false: there was none. */
bool frpc_woken_within(unsigned *seen, int ms);

int64_t frpc_now_ms(void);
void frpc_pass_ms(int ms);

/* Waits for the stream or the call that comes to the server next. */
struct rpc_stream *frpc_stream(void);
struct rpc_call *frpc_call(void);

/* The client's: a stream to the server, to another address or method, and a question. */
struct rpc_stream *frpc_open(void);
struct rpc_stream *frpc_open_at(const char *where, const char *path);
struct rpc_query *frpc_query(const void *request, size_t len, uint32_t timeout_ms);

#endif
