/* SPDX-License-Identifier: Apache-2.0 */
/* The control and health services over gRPC, on the accept loop. */
#ifndef RS_SERVER_CONTROL_CONTROL_UV_H
#define RS_SERVER_CONTROL_CONTROL_UV_H

#include "server/control/service.h"

#include <uv.h>

struct control_uv;

/* opt's wake is the driver's own, and not looked at. Errors: RS_ENOMEM, RS_EIO. */
int control_uv_new(struct control_uv **ret, uv_loop_t *loop, const struct rpc_api *rpc,
		   const struct service_options *opt, struct rs_err *e);
/* What a server of the module is to be started with. */
void control_uv_methods(struct control_uv *c, struct rpc_method methods[SERVICE_METHODS]);
/* For service_status, service_happened and service_draining. */
struct service *control_uv_service(struct control_uv *c);
/* Ends all calls, after what they have yet to tell, if their readers take it at once; calls from now on are refused.
 * Before the module's server is stopped. */
void control_uv_stop(struct control_uv *c);
/* After the module's server was stopped: closes its handle, which closes with the loop. */
void control_uv_close(struct control_uv *c);
/* After the loop has ended. */
void control_uv_free(struct control_uv *c);

#endif
