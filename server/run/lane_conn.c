/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/lane_conn.h"
#include "server/run/lane_mail.h"

#include <stdlib.h>

enum {
	/* A lane reads pending input before it sends results, because each result brings
	 * the next contribution of its rank. Otherwise the contributions of a thousand
	 * ranks queue up beyond the caches, and the queue keeps its length. A lane sends
	 * only a few results at a time, so that it soon reads the answers to them. With
	 * 1,024 ranks and 4 chunks in flight this raises 2.0 to 2.6 GiB/s and needs a
	 * quarter less processor time, compared with one result after each read and 16 at
	 * the end. Some results are sent between reads, because a connection that sends
	 * without end would otherwise keep results from the others. */
	READS_PER_FLUSH = 4,   /* events with received bytes for each session that is served between them */
	SAMPLES_PER_TICK = 16, /* connections that are sampled in a tick */
	FLUSHES_PER_WAKE = 4,  /* sessions that are served after the last of these events */
};

/* Chooses where the loop sleeps. If all connections are streams, the loop sleeps in the
 * queue of the streams. This thread then reads and answers them itself, which takes three
 * quarters of the processor time of a handover. The loop cannot wait for TCP connections
 * there, so if there are any, threads of the gRPC module wake the loop. */
static void lane_conn_choose_wait(struct lane_conns *all)
{
	wakeups_serve(all->wakeups, all->streams_n && !all->tcp_n ? all->rpc : NULL, all->queue);
}

/* Lets the connections share the lane if they are of several jobs. */
static void lane_conns_weigh(struct lane_conns *all)
{
	const struct lane_conn *first = LIST_FIRST(&all->list), *c;
	double heaviest = 0;
	bool several = false;

	LIST_FOREACH(c, &all->list, link)
	{
		several |= c->job != first->job;
		heaviest = c->share.weight > heaviest ? c->share.weight : heaviest;
	}
	all->shares.heaviest = several ? heaviest : 0;
}

void lane_conns_add(struct lane_conns *all, struct lane_conn *c)
{
	++*(c->is_stream ? &all->streams_n : &all->tcp_n);
	lane_conn_choose_wait(all);
	LIST_INSERT_HEAD(&all->list, c, link);
	lane_conns_weigh(all);
}

void lane_conns_close(struct lane_conns *all, struct lane_conn *c)
{
	all->closed = c->closed;
	c->closed = NULL;
	if (c->session)
		session_free(c->session);
	c->session = NULL;
	LIST_REMOVE(c, link);
	lane_conns_weigh(all);
	--*(c->is_stream ? &all->streams_n : &all->tcp_n);
	c->ops->close(c);
	all->closed = NULL;
	lane_conn_choose_wait(all);
}

/* Serves at most n ready sessions. Returns false if no session is ready any more. */
static bool lane_conn_serve(struct lane_conns *all, unsigned n)
{
	for (; n; n--) {
		struct session *s = lane_next_ready(all->core);
		struct lane_conn *c;

		if (!s)
			return false;
		c = session_user(s);

		if (session_closed(s))
			lane_conns_close(all, c);
		else if (!c->write_wait || session_shut(s))
			lane_conn_flush(c);
	}
	return true;
}

void lane_conns_turn(struct lane_conns *all)
{
	if (++all->reads < READS_PER_FLUSH)
		return;
	all->reads = 0;
	lane_conn_serve(all, 1);
}

void lane_conn_received(struct lane_conn *c, size_t n)
{
	uint64_t before = uv_hrtime();

	c->all->moved += n;
	lane_set_us(c->all->core, before / 1000);
	session_received(c->session, n, uv_now(c->all->loop));
	c->all->now_ns = uv_hrtime();
	session_worked(c->session, c->all->now_ns - before);
}

uint64_t lane_conn_read_begin(struct lane_conn *c)
{
	c->all->moved = 0;
	c->all->began_ns = c->all->now_ns = uv_hrtime();
	return share_begin(&c->share, &c->all->shares);
}

static void lane_conn_charge(struct lane_conn *c, uint64_t ns)
{
	session_served(c->session, share_charge(&c->share, ns, c->all->moved));
}

void lane_conn_read_end(struct lane_conn *c)
{
	lane_conn_charge(c, c->all->now_ns - c->all->began_ns);
}

/* Gives the connection of an ended session back to the server. Without memory it closes
 * as others do. */
static void lane_conn_part(struct lane_conn *c)
{
	struct lane_parted *to = malloc(sizeof *to);

	if (!to)
		return;
	session_take_rest(c->session, &to->rest);
	c->ops->part(c, to);
	c->closed->parted = to;
	lane_conns_close(c->all, c);
}

void lane_conn_flush(struct lane_conn *c)
{
	uint64_t before = uv_hrtime();

	c->all->moved = 0;
	c->ops->flush(c);
	lane_conn_charge(c, uv_hrtime() - before);
	if (c->ops->part && session_parts(c->session))
		lane_conn_part(c);
}

void lane_conn_sent(struct lane_conn *c, size_t n)
{
	c->all->moved += n;
	lane_set_us(c->all->core, uv_hrtime() / 1000);
	session_sent(c->session, n, uv_now(c->all->loop));
}

void lane_conns_sample(struct lane_conns *all)
{
	unsigned n = 0;

	for (struct lane_conn *c = LIST_FIRST(&all->list); c && n < SAMPLES_PER_TICK; c = LIST_NEXT(c, link)) {
		if (c->sampled || !c->session || !c->ops->sample)
			continue;
		c->sampled = true;
		c->ops->sample(c);
		n++;
	}
	if (n == SAMPLES_PER_TICK)
		return;
	for (struct lane_conn *c = LIST_FIRST(&all->list); c; c = LIST_NEXT(c, link))
		c->sampled = false;
}

void lane_conns_look(struct lane_conns *all)
{
	struct lane_conn *c;

	LIST_FOREACH(c, &all->list, link)
	if (c->session && c->ops->look && session_quiet(c->session))
		c->ops->look(c);
}

bool lane_conns_flush(struct lane_conns *all)
{
	shares_next_round(&all->shares);
	return lane_conn_serve(all, FLUSHES_PER_WAKE);
}
