/* SPDX-License-Identifier: Apache-2.0 */
/* reduction-load: the report. */
#include "bench/load.h"

#include "common/host/cmdline.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* The measurements, in the units of the report. */
struct figures {
	double start_s;       /* from the first connection to the last START */
	double seconds;       /* measured */
	double gib;           /* contributed in these seconds, over all ranks */
	double load_s;        /* processor time of this process */
	double user_s, sys_s; /* processor time of the reducer */
};

static struct figures figures_of(const struct load *l)
{
	const struct load_mark *a = &l->from, *b = &l->to;

	return (struct figures){
	    .start_s = l->started.at - l->begin.at,
	    .seconds = b->at - a->at,
	    .gib = (double)(b->counts.bytes - a->counts.bytes) / (1 << 30),
	    .load_s = b->load_s - a->load_s,
	    .user_s = b->server.user_s - a->server.user_s,
	    .sys_s = b->server.system_s - a->server.system_s,
	};
}

static void print_json(const struct load *l, const struct figures *f)
{
	const struct load_options *o = &l->opt;

	printf("{\"ranks\": %u, \"jobs\": %u, \"bytes\": %" PRIu64
	       ", \"chunk\": %u, \"window\": %u, \"dtype\": \"%s\", ",
	       o->ranks, o->jobs, o->bytes, o->chunk, o->window, rs_dtype_name(o->dtype));
	printf("\"silent\": %u, \"silent_closed\": %" PRIu64 ", \"start_s\": %.4f, \"seconds\": %.4f, \"gib\": %.6f, ",
	       o->silent, l->silent_closed, f->start_s, f->seconds, f->gib);
	printf("\"gib_per_s\": %.6f, \"load_cpu_s\": %.4f, \"results\": %" PRIu64 ", \"wrong\": %" PRIu64,
	       f->gib / f->seconds, f->load_s, l->counts.results, l->counts.wrong);
	if (o->server_pid)
		printf(", \"server_user_s\": %.2f, \"server_system_s\": %.2f, \"server_cpu_s_per_gib\": %.6f, "
		       "\"rss_before\": %" PRIu64 ", \"rss_after\": %" PRIu64 ", \"rss_peak\": %" PRIu64,
		       f->user_s, f->sys_s, (f->user_s + f->sys_s) / f->gib, l->begin.server.rss, l->to.server.rss,
		       l->to.server.rss_peak);
	printf("}\n");
}

static void print_text(const struct load *l, const struct figures *f)
{
	const struct load_options *o = &l->opt;

	printf("%u jobs of %u ranks, all-reduce of %" PRIu64 " bytes %s, %u chunks of %u bytes in flight\n", o->jobs,
	       o->ranks, o->bytes, rs_dtype_name(o->dtype), o->window, o->chunk);
	printf("all had joined after %.3f s; %.3f GiB were contributed in %.3f s: %.3f GiB/s\n", f->start_s, f->gib,
	       f->seconds, f->gib / f->seconds);
	if (o->server_pid)
		printf("the reducer's processor time: %.3f s a GiB (user %.2f s, system %.2f s); resident MiB: %.1f "
		       "before, "
		       "%.1f now, %.1f at most\n",
		       (f->user_s + f->sys_s) / f->gib, f->user_s, f->sys_s, (double)l->begin.server.rss / (1 << 20),
		       (double)l->to.server.rss / (1 << 20), (double)l->to.server.rss_peak / (1 << 20));
	if (o->silent)
		printf("%u connections without a HELLO; %" PRIu64 " of them were closed and opened anew\n", o->silent,
		       l->silent_closed);
	printf("this process took %.2f s; %" PRIu64 " results, %" PRIu64 " of them wrong\n", f->load_s,
	       l->counts.results, l->counts.wrong);
}

int main(int argc, char **argv)
{
	struct load l = {.epoll = -1};
	struct figures f;
	struct rs_err e;
	int status;

	if (load_options_parse(&l.opt, argc, argv, &status))
		return status;
	signal(SIGPIPE, SIG_IGN);
	cmdline_raise_descriptors();
	if (load_run(&l, &e)) {
		fprintf(stderr, "reduction-load: %s\n", e.msg);
		load_close(&l);
		return EXIT_FAILURE;
	}
	f = figures_of(&l);
	if (l.opt.json)
		print_json(&l, &f);
	else
		print_text(&l, &f);
	status = l.counts.wrong ? EXIT_FAILURE : EXIT_SUCCESS;
	load_close(&l);
	return status;
}
