/* SPDX-License-Identifier: Apache-2.0 */
/* Output of what long links cost and need. */
#include "deploy/ctl/plan/plan.h"

#include <inttypes.h>

static void print_sockets(const struct plan_far *far, const struct plan *p, const char *prefix, FILE *out)
{
	const struct plan_sockets *s = &far->sockets;
	char holds[32], needs[32], time[32];
	uint64_t buffer = plan_far_buffer(p);

	plan_format_bytes(far->socket, holds, sizeof holds);
	plan_format_bytes(far->product_each, needs, sizeof needs);
	fprintf(out,
		"%s  a connection needs %s in flight; socket buffers %s hold %s: half of the third number of\n"
		"%s    net.ipv4.tcp_rmem or tcp_wmem, %s\n",
		prefix, needs, s->read ? "of this machine" : "with Linux's defaults", holds, prefix,
		far->socket_time > 0 ? "too little" : "which is enough");
	if (far->socket_time == 0)
		return;
	plan_format_time(far->socket_time, time, sizeof time);
	fprintf(out, "%s    so this all-reduce takes %s; ", prefix, time);
	if (far->lanes)
		fprintf(out, "set `lanes: %u` for each reducer, or on workers and reducers\n", far->lanes);
	else
		fprintf(out, "more than %d lanes would be needed; set on workers and reducers\n", RS_LANES_MAX);
	fprintf(out,
		"%s    sysctl -w net.ipv4.tcp_rmem=\"%" PRIu64 " %" PRIu64 " %" PRIu64 "\" net.ipv4.tcp_wmem=\"%" PRIu64
		" %" PRIu64 " %" PRIu64 "\"\n",
		prefix, s->rmem[0], s->rmem[1], s->rmem[2] > buffer ? s->rmem[2] : buffer, s->wmem[0], s->wmem[1],
		s->wmem[2] > buffer ? s->wmem[2] : buffer);
}

void plan_print_far(const struct plan *p, const struct rs_config *cfg, const char *prefix, FILE *out)
{
	const struct plan_far *far = &p->far;
	char rtt[32], time[32], product[32], flight[32], retained[32];

	if (far->rtt == 0)
		return;
	plan_format_time(far->rtt, rtt, sizeof rtt);
	plan_format_time(far->time, time, sizeof time);
	plan_format_bytes(far->product, product, sizeof product);
	plan_format_bytes(far->flight, flight, sizeof flight);
	plan_format_bytes((double)far->retained, retained, sizeof retained);
	fprintf(out, "%slong links, round trip %s: this all-reduce takes %s, a small one at least %s\n", prefix, rtt,
		time, rtt);
	fprintf(
	    out,
	    "%s  a worker needs %s in flight (bandwidth x round trip) and may have %s, up to %u chunks on each of %u\n"
	    "%s    connections, with reducers.rtt%s in the file\n",
	    prefix, product, flight, far->window, far->connections, prefix,
	    cfg->plan.bandwidth ? " and plan.bandwidth" : "");
	if (far->product > far->flight)
		fprintf(out, "%s    that limits the speed: set %s\n", prefix,
			cfg->plan.bandwidth ? "a larger sharding.chunk_bytes, or more lanes"
					    : "plan.bandwidth in the file");
	if (far->retained)
		fprintf(out, "%s  each worker: %s of memory for retained results\n", prefix, retained);
	if (p->needs.memory > cfg->server.memory_bytes && !p->needs.ahead)
		fprintf(out, "%s  server.memory is too little for these windows: reducers give smaller ones\n", prefix);
	print_sockets(far, p, prefix, out);
	fprintf(
	    out,
	    "%s  with BBR workers use all of this, else they shrink windows when queues fill: on workers and reducers\n"
	    "%s    sysctl -w net.ipv4.tcp_congestion_control=bbr\n",
	    prefix, prefix);
}

void plan_print_far_json(const struct plan *p, FILE *out)
{
	const struct plan_far *far = &p->far;

	if (far->rtt == 0) {
		fputs("\"long_links\":null,", out);
		return;
	}
	fprintf(
	    out,
	    "\"long_links\":{\"rtt_s\":%.9g,\"time_s\":%.9g,\"product_bytes\":%.0f,\"in_flight_bytes\":%.0f,\"window\":"
	    "%u,\"connections\":%u,\"retained_bytes\":%" PRIu64 ",",
	    far->rtt, far->time, far->product, far->flight, far->window, far->connections, far->retained);
	fprintf(out, "\"connection_bytes\":%.0f,\"socket_bytes\":%.0f,\"sockets_suffice\":%s,", far->product_each,
		far->socket, far->socket_time > 0 ? "false" : "true");
	if (far->socket_time > 0)
		fprintf(out, "\"socket_time_s\":%.9g,", far->socket_time);
	else
		fputs("\"socket_time_s\":null,", out);
	if (far->lanes)
		fprintf(out, "\"lanes\":%u,", far->lanes);
	else
		fputs("\"lanes\":null,", out);
	fprintf(out, "\"buffer_bytes\":%" PRIu64 "},", plan_far_buffer(p));
}
