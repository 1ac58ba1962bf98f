/* SPDX-License-Identifier: Apache-2.0 */
/* A server and a client over gRPC on loopback, in this process, with records of handlers
 * and wakers for the test. */
#ifndef RS_TESTS_UNIT_FAKE_RPC_H
#define RS_TESTS_UNIT_FAKE_RPC_H

#include "proto/rpc/rpc.h"

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FRPC_HANDSHAKE_MS = 3000, FRPC_CALLS_MAX = 3 };

extern struct fake_rpc {
	const struct rpc_api *api;
	struct rpc_server *server; /* on `address`, with the methods /test.Bytes/Exchange and /test.Ask/Ask */
	struct rpc_client *client;
	char address[64];
	struct rpc_queue *_Atomic served; /* served by the test thread; NULL: by the module */
} frpc;

/* Fixtures: the module's threads serve both ends, or the test's own thread serves one
 * end. */
void frpc_setup(void);
void frpc_setup_client_served(void);
void frpc_setup_server_served(void);
void frpc_teardown(void);
/* Loads the module from the lib folder of the build that this program belongs to; the
 * fixtures load it too. */
void frpc_load(void);

/* Runs a suite without fork, which gRPC does not support, and on another thread than the
 * main thread: GCC's LeakSanitizer crashes at the end on what gRPC has stored for the
 * main thread. Returns true if all tests pass. */
bool frpc_run(Suite *s);

extern const struct rpc_waker frpc_waker;
unsigned frpc_wakes(void);
/* Waits for a waker call after the first `seen` ones; returns the number of calls. */
unsigned frpc_woken_after(unsigned seen);
/* The same with a time limit, if the module's threads serve; returns false if there was
 * no call. */
bool frpc_woken_within(unsigned *seen, int ms);

int64_t frpc_now_ms(void);
void frpc_pass_ms(int ms);

/* Waits for the next stream or call on the server. */
struct rpc_stream *frpc_stream(void);
struct rpc_call *frpc_call(void);

/* Client side: opens a stream to the server, or to another address or method, and sends a
 * query. */
struct rpc_stream *frpc_open(void);
struct rpc_stream *frpc_open_at(const char *where, const char *path);
struct rpc_query *frpc_query(const void *request, size_t len, uint32_t timeout_ms);

#endif
