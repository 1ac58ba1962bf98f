/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/render/render.h"

#include "config/value.h"

#include <string.h>

void render_yaml(const struct render *r, FILE *out)
{
	if (r->json)
		tree_write_json(r->tree.doc.root, out);
	else
		tree_write(r->tree.doc.root, out);
}

/* "100 Gbit/s" */
static const char *rate_text(double bits, char buf[static 32])
{
	snprintf(buf, 32, "%.4g Gbit/s", bits / 1e9);
	return buf;
}

static const char *plural(unsigned n)
{
	return n == 1 ? "" : "s";
}

static void explain_number(const struct render *r, FILE *out)
{
	char one[32], all[32];

	fprintf(out, "%u worker%s x %s (%s) = %s\n", r->workers, plural(r->workers),
		rate_text((double)r->worker_rate, one), r->worker_type,
		rate_text((double)r->worker_rate * r->workers, all));
	fprintf(out, "%u reducer%s x %s (%s) = %s: ", r->reducers, plural(r->reducers),
		rate_text((double)r->reducer_rate, one), r->reducer_type,
		rate_text((double)r->reducer_rate * r->reducers, all));
	if (r->reducers == r->needed)
		fputs("the least number whose links together are as fast as the workers'\n", out);
	else if (r->reducers < r->needed)
		fprintf(out, "their links are the bottleneck; %u would be as fast as the workers'\n", r->needed);
	else
		fprintf(out, "more than needed; %u are as fast as the workers'\n", r->needed);
}

static void explain_time(const struct render *r, FILE *out)
{
	double n = r->workers, link = 8e9 / (double)r->worker_rate;
	double reducers = 8e9 * n / ((double)r->reducer_rate * r->reducers), ring = 2 * (n - 1) / n * link;

	if (reducers < link)
		reducers = link;
	fprintf(out, "1 GB of gradients takes %.3g ms through the reducers, %.3g ms in a ring", reducers * 1e3,
		ring * 1e3);
	if (ring > reducers)
		fprintf(out, ": %.2f times as long\n", ring / reducers);
	else
		fprintf(out, ": reducers do not help this job%s\n", r->workers < 3 ? ", it has too few nodes" : "");
}

void render_explain(const struct render *r, FILE *out)
{
	fputs(r->notes_text, out);
	if (!r->enabled) {
		fputs("enable: false: the job has no reducers\n", out);
		return;
	}
	if (r->google)
		fprintf(out, "worker pool 2: the image of Google's reducers (line %u) is replaced\n", r->google->line);
	if (r->split)
		fprintf(out, "pool 0 may have one replica: the other %u are pool 1 now\n", r->workers - 1);
	if (r->needed) {
		explain_number(r, out);
		explain_time(r, out);
	} else {
		fprintf(out, "%u worker%s, %u reducer%s: not compared, since the bandwidth of %s is not known\n",
			r->workers, plural(r->workers), r->reducers, plural(r->reducers),
			r->worker_rate ? r->reducer_type : r->worker_type);
	}
	if (r->workers == 1)
		fputs("warning: a job of one worker exchanges no gradients with others: reducers do not help it\n",
		      out);
	if (r->opt.price_worker > 0) {
		double workers = r->opt.price_worker * r->workers, more = r->opt.price_reducer * r->reducers;

		fprintf(out,
			"an hour costs %.2f for the workers and %.2f for the reducers: it pays if steps become more "
			"than %.1f %% shorter\n",
			workers, more, 100 * more / (workers + more));
	}
	if (r->without_secret)
		fputs("warning: no secret: every machine in the job's network may join or change the sums. Put a file "
		      "into all replicas, and name it with --secret PATH\n",
		      out);
	fprintf(out,
		"bandwidths are from a table of %s unless given (--bandwidth, --reducer-bandwidth, --machines); "
		"measure yours, since one TCP connection may reach less\n",
		render_machines_date);
}
