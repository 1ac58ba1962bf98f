/* SPDX-License-Identifier: Apache-2.0 */
/* The control and health services on a libuv loop, and their calls over gRPC. */
#ifndef RS_COMMON_HOST_SERVICE_CONTROL_UV_H
#define RS_COMMON_HOST_SERVICE_CONTROL_UV_H

#include "common/host/service/service.h"

#include <uv.h>

struct control_uv;

/* Creates the service; opt->wake is ignored. rpc NULL: no calls come over gRPC. Errors:
 * RS_ENOMEM, RS_EIO. */
int control_uv_new(struct control_uv **ret, uv_loop_t *loop, const struct rpc_api *rpc,
		   const struct service_options *opt, struct rs_err *e);
/* Fills the methods with which the gRPC server has to be started. */
void control_uv_methods(struct control_uv *c, struct rpc_method methods[SERVICE_METHODS]);
/* Returns the service, for service_status, service_event_added and service_draining. */
struct service *control_uv_service(struct control_uv *c);
/* Sets a function that continues the calls of another transport, on the loop, whenever
 * calls can continue; advance NULL: there is none any more. control_uv_wake, on any
 * thread, makes the loop call it. */
void control_uv_also(struct control_uv *c, void (*advance)(void *user), void *user);
void control_uv_wake(struct control_uv *c);
/* Ends all calls, after the messages that their clients accept at once, and refuses new
 * calls. To be called before the gRPC server is stopped. */
void control_uv_stop(struct control_uv *c);
/* Closes the handle, after the gRPC server was stopped. It closes with the loop. */
void control_uv_close(struct control_uv *c);
/* Frees the service, after the loop has ended. */
void control_uv_free(struct control_uv *c);

#endif
