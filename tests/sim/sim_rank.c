/* SPDX-License-Identifier: Apache-2.0 */
/* A worker process around the real exchange: it opens connections, moves bytes, passes
 * the time, starts operations one by one or many at once, and ends. It does with
 * simulated connections what engine_uv.c and conn_tcp.c do with sockets. */
#include "tests/sim/sim.h"

#include "common/dtype.h"
#include "tests/sim/sim_retained.h"

#include <stdlib.h>
#include <string.h>

enum { RANK_IOVECS = 32 };

bool rank_stopped(const struct rank *k)
{
	return k->sim->now_us < k->stopped_until_us;
}

void rank_step_later(struct rank *k, uint32_t in_us)
{
	if (k->step_due)
		return;
	k->step_due = true;
	sim_in(k->sim, in_us, EV_RANK_STEP, k->process, 0);
}

/* ---- connections ---- */

static void forget(struct rank *k, struct conn *c)
{
	net_close(c, WORKER);
	c->rank = NULL;
	k->conn[c->link] = NULL;
}

static void lose(struct conn *c, const char *why)
{
	struct rank *k = c->rank;
	unsigned link = c->link;

	trace(k->sim, "%s rank %u loses connection %u: %s", k->team->job, k->index, c->id, why);
	forget(k, c);
	exchange_disconnected(k->x, link, why,
			      strstr(why, "timed out") ? RS_LOSS_SILENT
			      : strstr(why, "reset")   ? RS_LOSS_RESET
						       : RS_LOSS_OTHER,
			      sim_ms(k->sim));
}

/* Reads once; returns false if there is no more for now. */
static bool read_once(struct conn *c, const char **lost)
{
	struct rank *k = c->rank;
	struct iovec iov[2];
	unsigned n = exchange_recv_target(k->x, c->link, iov);
	ssize_t got;

	if (!n)
		return false;
	got = net_read(c, WORKER, iov, n);
	if (got == 0)
		*lost = "it closed the connection";
	else if (got == NET_BROKEN)
		*lost = c->timed_out ? "connection timed out" : "connection reset by peer";
	if (got <= 0)
		return false;
	exchange_received(k->x, c->link, (size_t)got, sim_ms(k->sim));
	return true;
}

static void give_signal(struct conn *c)
{
	struct sim *s = c->sim;
	uint32_t least_us = c->rank->team->rtt_us ? c->rank->team->rtt_us : 100;
	struct window_signal w = {.min_rtt_us = least_us,
				  .paced = sim_chance(s, 50),
				  .local_bytes = sim_chance(s, 5) ? WINDOW_LOCAL_BYTES : 0};

	if (exchange_wants_load(c->rank->x, c->link) && sim_chance(s, 90))
		exchange_load(c->rank->x, c->link, c->busy_us[WORKER] += sim_below(s, 600000), sim_ms(s));
	if (!exchange_wants_signal(c->rank->x, c->link))
		return;
	s->stats->signals++;
	w.rtt_us = least_us + sim_below(s, sim_chance(s, 50) ? 200 : 3000);
	w.lost = sim_chance(s, 10) ? sim_random(s) : 0;
	exchange_signal(c->rank->x, c->link, &w, sim_ms(s));
}

static void write_all(struct conn *c)
{
	struct rank *k = c->rank;
	struct iovec iov[RANK_IOVECS];
	const char *lost = NULL;
	unsigned n;

	give_signal(c);
	while ((n = exchange_send_target(k->x, c->link, iov, 3 + sim_below(k->sim, RANK_IOVECS - 2)))) {
		ssize_t sent = net_write(c, WORKER, iov, n);

		if (sent == NET_AGAIN)
			return;
		if (sent == NET_BROKEN) {
			/* the peer's last frame may be the reason */
			while (read_once(c, &lost))
				continue;
			lose(c, lost ? lost : "broken pipe");
			return;
		}
		exchange_sent(k->x, c->link, (size_t)sent, sim_ms(k->sim));
	}
}

/* Sometimes a rank tries to give the reducers other shares, or to connect to one anew, in
 * the middle of anything; only rank 0 can. */
static void move_shares(struct rank *k)
{
	uint32_t shares[SIM_REDUCERS];

	if (!k->team->moves_left || !sim_chance(k->sim, k->team->moves_shares))
		return;
	if (sim_chance(k->sim, 20)) {
		unsigned before, r = sim_below(k->sim, k->team->cfg.reducers_n);

		before = k->team->hit;
		if (before & ~(1u << r))
			return; /* with the last two others on their way out, none would be left for a moment */
		k->team->hit |= 1u << r;
		if (!exchange_connect_anew(k->x, r, "a path is slow", sim_ms(k->sim))) {
			k->team->hit = before;
			return;
		}
		trace(k->sim, "%s rank %u connects to reducer %u anew", k->team->job, k->index, r);
		k->team->moves_left--;
		k->sim->stats->anew++;
		return;
	}
	for (unsigned r = 0; r < k->sim->reducers_n; r++)
		shares[r] = 1 + sim_below(k->sim, sim_chance(k->sim, 50) ? 4 : CONTROL_SHARE_MAX);
	if (!exchange_set_shares(k->x, shares, sim_ms(k->sim)))
		return;
	trace(k->sim, "%s rank %u sets shares", k->team->job, k->index);
	k->team->moves_left--;
	k->sim->stats->reshared++;
}

void rank_readable(struct conn *c)
{
	struct rank *k = c->rank;
	const char *lost = NULL;

	if (rank_stopped(k) || !c->up)
		return;
	for (unsigned i = 1 + sim_below(k->sim, 4); i > 0 && read_once(c, &lost); i--)
		continue;
	if (lost)
		lose(c, lost);
	else
		write_all(c);
	if (k->team->moves_shares)
		move_shares(k);
	rank_settle(k);
}

void rank_writable(struct conn *c)
{
	struct rank *k = c->rank;

	if (rank_stopped(k) || !c->up)
		return;
	write_all(c);
	rank_settle(k);
}

static void begin_connect(struct rank *k, unsigned link)
{
	struct team *t = k->team;
	struct reducer *r = &k->sim->reducers[0];
	unsigned at = link;

	for (unsigned i = 0; at >= t->cfg.reducers[i].lanes; i++) {
		at -= t->cfg.reducers[i].lanes;
		r++;
	}
	exchange_connecting(k->x, link, sim_ms(k->sim));
	k->conn[link] = net_connect(k->sim, k, link, r);
	sim_in(k->sim, 1 + sim_below(k->sim, 2 * k->conn[link]->delay_us), EV_CONNECT, k->conn[link]->id, 0);
}

void rank_connect(struct conn *c)
{
	struct rank *k = c->rank;
	struct sim *s = c->sim;

	if (!k || !c->end[WORKER].open)
		return;
	if (rank_stopped(k)) {
		sim_at(s, k->stopped_until_us + 1, EV_CONNECT, c->id, 0);
		return;
	}
	if (c->reducer->state == REDUCER_GONE && c->reducer->silent)
		return;
	if (c->reducer->state != REDUCER_UP) {
		s->stats->retried++;
		lose(c, "connection refused");
	} else {
		c->up = true;
		c->end[REDUCER].open = true;
		sim_in(s, sim_below(s, 2 * c->delay_us), EV_ACCEPT, c->id, c->reducer->life);
		if (k->team->rtt_us)
			exchange_set_path(k->x, c->link,
					  &(struct window_signal){.min_rtt_us = sim_between(s, 1, k->team->rtt_us),
								  .paced = sim_chance(s, 50)});
		exchange_connected(k->x, c->link, sim_ms(s));
		write_all(c);
	}
	rank_settle(k);
}

static void service(struct rank *k, unsigned link)
{
	struct conn *c = k->conn[link];

	switch (exchange_want(k->x, link, sim_ms(k->sim))) {
	case EXCHANGE_CONNECT:
		if (!c)
			begin_connect(k, link);
		break;
	case EXCHANGE_SHUTDOWN:
		if (c && c->up)
			net_shutdown(c, WORKER);
		break;
	case EXCHANGE_CLOSE:
		if (c)
			forget(k, c);
		exchange_disconnected(k->x, link, "", RS_LOSS_OTHER, sim_ms(k->sim));
		break;
	case EXCHANGE_NOTHING:
		if (c && c->up)
			write_all(c);
		break;
	}
}

static void arm(struct rank *k)
{
	uint64_t next = exchange_next(k->x);

	if (next >= k->armed_ms)
		return;
	k->armed_ms = next;
	sim_at(k->sim, next > sim_ms(k->sim) ? next * 1000 : k->sim->now_us, EV_RANK_TICK, k->process, 0);
}

static void leave_if_done(struct rank *k)
{
	if (!k->sent_goodbye || exchange_state(k->x) != EXCHANGE_ENDED)
		return;
	for (unsigned i = 0; i < exchange_links(k->x); i++)
		if (k->conn[i])
			return;
	trace(k->sim, "%s rank %u has left", k->team->job, k->index);
	rank_end(k, RANK_ENDED);
}

/* Call it after every call of the exchange. Afterwards the rank may have left. */
void rank_settle(struct rank *k)
{
	unsigned first = sim_below(k->sim, 16);

	check_rank(k);
	while (exchange_links_changed(k->x))
		for (unsigned i = 0; i < exchange_links(k->x); i++)
			service(k, (first + i) % exchange_links(k->x));
	if (exchange_state(k->x) == EXCHANGE_RUNNING && !k->running_seen) {
		k->running_seen = true;
		rank_step_later(k, sim_below(k->sim, k->team->pause_us + 1));
	}
	if (exchange_state(k->x) == EXCHANGE_ENDED && !k->ended_seen) {
		k->ended_seen = true;
		if (k->done != k->submitted)
			sim_fail(k->sim, "%s rank %u: %u operations are pending after the end", k->team->job, k->index,
				 k->submitted - k->done);
		if (exchange_error(k->x)->code) {
			k->failed = true;
			check_error(k, exchange_error(k->x), "the exchange");
		}
		rank_step_later(k, sim_below(k->sim, k->team->pause_us + 1));
	}
	arm(k);
	leave_if_done(k);
}

/* ---- the process ---- */

static void on_reducer(void *user, const struct rs_reducer *r, enum exchange_change how, const char *why)
{
	bool lives = how == EXCHANGE_BACK || how == EXCHANGE_TAKEN;
	struct rank *k = *(struct rank **)user;

	trace(k->sim, "%s rank %u: reducer %s is %s%s", k->team->job, k->index, r->id,
	      lives ? "back" : "lost: ", lives ? "" : why);
	fault_view_changed(k->team);
	if (lives) {
		k->sim->stats->back++;
		check_back(k, (unsigned)strtoul(r->id + 1, NULL, 10)); /* "r1" */
		return;
	}
	k->sim->stats->lost++;
	check_lost(k, r, how == EXCHANGE_EMPTY, why);
}

static void on_shares(void *user, uint32_t epoch, const uint32_t *shares)
{
	struct rank *k = *(struct rank **)user;

	(void)shares;
	trace(k->sim, "%s rank %u: shares of epoch %u", k->team->job, k->index, epoch);
	fault_view_changed(k->team);
}

void rank_birth(struct rank *k)
{
	struct team *t = k->team;
	char run[24], evidence[24] = "";
	struct exchange_options opt = {
	    .params = rs_config_exchange(t->odd_rank == k->index && t->other_owner ? &t->other_cfg : &t->cfg),
	    .job = t->job,
	    .label = "simulated",
	    .run = run,
	    .evidence = evidence,
	    .generation = t->generation,
	    .rank = k->index,
	    .world_size = t->world,
	    .processes = t->processes[k->index],
	    .incarnation = sim_random(k->sim),
	    .connect_ms = t->connect_ms,
	    .features = t->offered[k->index],
	    .kernels = k->sim->kernels,
	    .adaptive = t->adaptive,
	    .reducer_changed = on_reducer,
	    .shares_changed = on_shares,
	};
	struct rs_err e;

	opt.params.lead_most = t->lead_most;
	opt.params.group = t->group_of[k->index];
	opt.params.relay_above = t->relay_above;
	opt.user = k->self = malloc(sizeof *k->self);
	if (!k->self)
		abort();
	*k->self = k;
	snprintf(run, sizeof run, "run-%u%s", t->evident ? 0 : t->run, fault_stranger(k) ? "-other" : "");
	if (t->evident)
		snprintf(evidence, sizeof evidence, "launcher=%u", t->run);
	guard_rank(k, &opt);
	if (exchange_new(&k->x, &opt, sim_ms(k->sim), &e)) {
		sim_fail(k->sim, "exchange_new: %s", e.msg);
		return;
	}
	trace(k->sim, "%s rank %u of %u, generation %u, is born", t->job, k->index, t->world, t->generation);
	k->state = RANK_ALIVE;
	t->born = true;
	k->armed_ms = UINT64_MAX;
	rank_step_later(k, sim_below(k->sim, t->pause_us + 1));
	fault_after_birth(k);
	rank_settle(k);
}

/* Goes on in the next generation, or says goodbye. */
static void leave(struct rank *k)
{
	struct rank *next = move_next(k);

	if (next)
		team_birth(next);
	else
		rank_goodbye(k);
}

/* Runs the next action of the program: operations, and GOODBYE after the last one. */
void rank_step(struct rank *k)
{
	k->step_due = false;
	if (k->state != RANK_ALIVE || k->sent_goodbye)
		return;
	if (rank_stopped(k)) {
		rank_step_later(k, (uint32_t)(k->stopped_until_us - k->sim->now_us));
		return;
	}
	if (exchange_state(k->x) >= EXCHANGE_ENDING) {
		if (k->submitted < k->todo && op_call(k))
			sim_fail(k->sim, "%s rank %u: an exchange that ends has taken an operation", k->team->job,
				 k->index);
		leave(k);
		return;
	}
	while (k->submitted < k->todo && k->submitted - k->done < k->pending_most && k->state == RANK_ALIVE) {
		if (!op_call(k))
			break;
		if (sim_chance(k->sim, 30)) {
			rank_step_later(k, sim_below(k->sim, k->team->pause_us + 1));
			break;
		}
	}
	if (k->state != RANK_ALIVE)
		return;
	rank_settle(k);
	/* opening a communicator returns after all ranks have joined: none leaves
	 * before */
	if (k->state == RANK_ALIVE && k->running_seen && k->done == k->todo && !k->hangs)
		leave(k);
}

void rank_goodbye(struct rank *k)
{
	trace(k->sim, "%s rank %u says goodbye", k->team->job, k->index);
	k->sent_goodbye = true;
	fault_after_goodbye(k);
	exchange_goodbye(k->x, sim_ms(k->sim));
	rank_settle(k);
}

void rank_abort(struct rank *k, int code, const char *message)
{
	trace(k->sim, "%s rank %u ends the job: %s", k->team->job, k->index, message);
	exchange_abort(k->x, code, message, sim_ms(k->sim));
	rank_settle(k);
}

void rank_tick(struct rank *k)
{
	if (k->state != RANK_ALIVE)
		return;
	if (rank_stopped(k)) {
		sim_at(k->sim, k->stopped_until_us + 1, EV_RANK_TICK, k->process, 0);
		return;
	}
	k->armed_ms = UINT64_MAX;
	check_credits(k);
	exchange_tick(k->x, sim_ms(k->sim));
	rank_settle(k);
}

void rank_stop(struct rank *k, uint32_t for_us)
{
	trace(k->sim, "%s rank %u is stopped for %u us", k->team->job, k->index, for_us);
	k->stopped_until_us = k->sim->now_us + for_us;
	sim_at(k->sim, k->stopped_until_us + 2, EV_RANK_RESUME, k->process, 0);
}

void rank_resume(struct rank *k)
{
	for (unsigned i = 0; i < SIM_LINKS && k->state == RANK_ALIVE; i++) {
		struct conn *c = k->conn[i];

		if (!c || !c->up)
			continue;
		c->end[WORKER].read_due = false;
		net_look_again(c, WORKER);
		sim_in(k->sim, 1, EV_WRITE, c->id, WORKER);
	}
}

void rank_end(struct rank *k, enum rank_state state)
{
	for (unsigned i = 0; i < SIM_OPS; i++)
		if (k->ops[i].submitted && !k->ops[i].done)
			op_free(&k->ops[i]);
	exchange_free(k->x);
	free(k->self);
	k->x = NULL;
	k->self = NULL;
	k->state = state;
	k->team->ended++;
	k->sim->ranks_ended++;
	accept_rank_ended(k);
	team_rank_ended(k);
}

void rank_kill(struct rank *k, bool silent)
{
	trace(k->sim, "%s rank %u %s", k->team->job, k->index, silent ? "loses power" : "is killed");
	for (unsigned i = 0; i < SIM_LINKS; i++) {
		struct conn *c = k->conn[i];

		if (!c)
			continue;
		if (silent)
			c->dark[WORKER] = c->dark[REDUCER] = true;
		else if (sim_chance(k->sim, 30))
			net_cut(c);
		forget(k, c);
	}
	rank_end(k, RANK_DEAD);
}

void rank_drop(struct rank *k)
{
	for (unsigned i = 0; i < SIM_OPS; i++)
		if (k->ops[i].submitted && !k->ops[i].done)
			op_free(&k->ops[i]);
	exchange_free(k->x);
	free(k->self);
}
