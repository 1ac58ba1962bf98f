#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mutations.sh [NAME ...]: breaks the protocol on purpose, one rule at a time, in a copy of the tree, and expects the
# simulator to find each break. Prints how many seeds that took. SEEDS=N: most seeds to try (default 150000).
# Without names: all. Takes some minutes; not part of 'make test'.
set -u
cd "$(dirname "$0")/../.." || exit 1
seeds=${SEEDS:-150000}
copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT

# three lines each: name, file, Perl substitution, which has to change the file
mutations() {
	cat <<'LIST'
result before all have contributed
	server/stripe.c
	s/\+\+slot->contributed < st->p.world_size/++slot->contributed + (st->p.world_size > 2) < st->p.world_size/
slot used again one result too early
	server/stripe.c
	s/--slot->unsent > 0/--slot->unsent != (st->p.world_size > 1)/
ranks out of step are not noticed
	server/stripe.c
	s/begun == slot->nth\)/1)/
counts are not compared
	server/stripe.c
	s/ f->count != g->count \|\|//
names are not compared
	server/stripe.c
	s/f->name_hash != g->name_hash\)/0)/
wrong divisor of an average
	server/stripe.c
	s/kernels, st->processes, st->stable/kernels, st->p.world_size, st->stable/
ABORT says nothing to other ranks
	server/stripe.c
	s/session_queue_frame\(s, FRAME_ABORT, payload, len\);//
deterministic sums in order of arrival
	server/session.c
	s/RX_STASH : RX_ADD/RX_ADD : RX_ADD/
bytes of a split element are lost
	server/session.c
	s/s->carry_n = \(unsigned\)\(have % size\)/s->carry_n = 0/
a rank leaves while others wait for it
	server/session.c
	s/s->outstanding \|\| stripe_waits_for\(st, s->rank\)/0/
an overtaken chunk counts as beyond the window
	server/session.c
	s/t->outstanding >= p->window\)/s->outstanding >= p->window && t->outstanding >= frame_reserve(p->window))/
a result that is partly out is dropped
	server/session_tx.c
	s/unsigned keep = [^;]+;/unsigned keep = 0;/
a silent worker is never lost
	server/lane.c
	s/now_ms - s->last_rx_ms > l->opt.detect_ms/0/
reducers send no heartbeats
	server/lane.c
	s/now_ms - s->last_tx_ms >= s->peer_detect_ms \/ 4/0/
START although a rank has gone
	server/lane.c
	s/st->sessions\[r\] && !st->sessions\[r\]->draining && !st->sessions\[r\]->lost/st->sessions[r]/
START before the last rank
	server/registry.c
	s/j->complete < j->first.world_size/j->complete + 1 < j->first.world_size/
a newer generation ends no older one
	server/registry.c
	s/\n\t\t\tjob_end\(r, j, &why\);\n\t\t\} else/\n\t\t} else/
a generation that ends is refused for good
	server/registry.c
	s/(ended\) *\n\s*return refuse\(no, RS_EREFUSED, )true/$1false/
memory of a job is freed with its first session
	server/registry.c
	s/\tif \(j->sessions\)\n\t\treturn;//
the window is ignored
	agent/link.c
	s/return window_open\(&l->window, l->chunks, l->flying, bytes\)/return true/
a priority has no reserve
	agent/link.c
	s/ \|\|\n\s*s->tail - s->head < frame_reserve\(l->window.limit\)/ || (l->chunks == 0 \&\& s)/
an operation ends one chunk too early
	agent/link.c
	s/--op->chunks_left == 0/--op->chunks_left == (op->chunks > 2)/
acks say more than is done
	agent/link.c
	s/\.ack = x->first->seq/.ack = op->seq/
the cursor skips own chunks
	agent/link.c
	s/s->chunk \+= l->own\[at\] - l->own\[at - 1\];/s->chunk += l->own[at] - l->own[0];/
ABORT is not passed on
	agent/exchange.c
	s/link_queue_abort\(l, &x->farewell\);/link_queue_bare(l, FRAME_GOODBYE);/
a silent reducer is never lost
	agent/exchange.c
	s/now_ms - l->last_rx_ms >= detect_ms/0/
workers send no heartbeats
	agent/exchange.c
	s/now_ms - l->last_tx_ms >= ping_ms/0/
operations never time out
	agent/exchange.c
	s/now_ms - x->first->started_ms >= op_ms/0/
pending operations are forgotten
	agent/exchange.c
	s/x->sweep = true;\n\top = x->first;/x->sweep = true;\n\top = NULL;/
operations end before the last words are out
	agent/exchange.c
	s/(x->links\[i\].state == LINK_ENDING && link_has_output\(&x->links\[i\]\))/0 \&\& $1/
a refused attempt is not repeated
	agent/link_control.c
	s/else if \(refused.retry\)/else if (refused.retry \&\& 0)/
chunks are sent before they are there
	agent/link.c
	s/if \(op->ready && /if (0 \&\& op->ready \&\& /
an attempt after a lost WELCOME is a violation
	server/registry.c
	s/RS_EREFUSED, true,(\s*"lane %u of rank %u of job %s is still)/RS_EPROTO, false,$1/
LIST
}

cp -r Makefile common config proto server agent bench tests deploy "$copy" || exit 1
build() { make -C "$copy" -j2 CFLAGS='-O1 -g' BUILD=out out/default/tests/sim/test_sim >"$copy/log" 2>&1; }
simulate() { timeout 300 "$copy/out/default/tests/sim/test_sim" --seeds "$seeds" >"$copy/log" 2>&1; }

if ! { build && simulate; }; then
	tail -5 "$copy/log"
	echo "mutations: the simulator does not pass as it is"
	exit 1
fi
printf '%-48s  %s\n' mutation 'found'
missed=0
while read -r name && read -r file && read -r change; do
	[ $# = 0 ] || printf '%s\n' "$@" | grep -qxF "$name" || continue
	perl -0pe "$change" "$file" >"$copy/$file"
	if cmp -s "$file" "$copy/$file"; then
		verdict="NOT APPLICABLE: the text that it changes is not there"
	elif ! build; then
		verdict="NOT APPLICABLE: $(grep -m1 'error:' "$copy/log")"
	elif simulate 2>/dev/null; then
		verdict="MISSED after $seeds seeds"
	else
		status=$?
		verdict=$(sed -n 's/^seed \([0-9]*\) failed: \(.*\)/seed \1: \2/p' "$copy/log" | cut -c1-150)
		[ -n "$verdict" ] || verdict="crash or endless loop (status $status)"
	fi
	case $verdict in NOT* | MISSED*) missed=$((missed + 1)) ;; esac
	printf '%-48s  %s\n' "$name" "$verdict"
	cp "$file" "$copy/$file"
done < <(mutations)
[ $missed = 0 ]
