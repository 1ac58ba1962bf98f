#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mutations.sh [NAME ...]: breaks one rule of the protocol at a time, in a copy of the
# tree, and expects the simulator to find each mutation. Prints the first seed that fails.
# SEEDS=N: maximal number of seeds (default 150000). Without names: all mutations. Takes
# some minutes; not part of 'make test'. mutations.sh --check: only checks, as 'make lint'
# does, that each of them still changes its file.
set -u
cd "$(dirname "$0")/../.." || exit 1
[ "${1-}" = --check ] && seeds=0 || seeds=${SEEDS:-150000}
copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT

# three lines each: name, file, Perl substitution, which must change the file
mutations() {
	cat <<'LIST'
result before all have contributed
	server/core/stripe.c
	s/unsigned n = slot->contributed;/unsigned n = slot->contributed + (st->p.world_size > 2);/
slot used again one result too early
	server/core/stripe.c
	s/--slot->unsent == 0/--slot->unsent == (st->p.world_size > 1)/
ranks out of step are not noticed
	server/core/contribution.c
	s/started == slot->order\)/1)/
counts are not compared
	server/core/contribution.c
	s/o->count == first->count && //
names are not compared
	server/core/contribution.c
	s/o->name_hash == first->name_hash && //
encodings are not compared
	server/core/contribution.c
	s/o->up == first->up && o->down == first->down/1/
the rest of a block is not added
	server/core/session_rx.c
	s/last \? slot->elems - s->pos : //
a sum is not encoded
	server/core/slot.c
	s/if \(o->down && s->elems\)/if (0)/
a chunk is sent before it is in its stage
	agent/worker/core/stream.c
	s/memory_order_acquire\) < at\.staged \+ elems/memory_order_acquire) < at.staged/
a contribution is retained in a ring that is used again
	agent/worker/core/link_io.c
	s/\? !op->send_ring && /? /
a full ring counts as a late submitter
	agent/worker/core/exchange_tick.c
	s/ && op->chunks - op->chunks_left >= ready \/ stride//
an encoded chunk is overwritten before it is sent
	agent/worker/core/encoded.h
	s/s->tail - s->sent < ENCODED_STAGE/1/
an encoded result is received over the contribution
	agent/worker/core/link_io.c
	s/ && !f->op->of\.down//
an error is corrected again when a chunk is sent again
	agent/worker/core/encoded.c
	s/op->residual && part->first_time/op->residual/
results are retained decoded
	agent/worker/core/link_io.c
	s/: operation_down_bytes\(&f->head\.of, at\.elems\)/: at.elems * f->head.of.size/
wrong divisor of an average
	server/core/contribution.c
	s/kernels, st->processes, st->stable/kernels, st->p.world_size, st->stable/
ABORT is not sent to the other ranks
	server/core/stripe_fail.c
	s/session_queue_frame\(s, FRAME_ABORT, payload, len\);//
deterministic sums in order of arrival
	server/core/session_rx.c
	s/\? RX_STASH\s+: RX_ADD/? RX_ADD : RX_ADD/
bytes of a split element are lost
	server/core/session_rx.c
	s/s->carry_n = \(unsigned\)rest/s->carry_n = 0/
a rank leaves while others wait for it
	server/core/session_control.c
	s/stripe_needs_rank\(st, s->rank, s->in.ack\)/0/
an overtaken chunk counts as outside the window
	server/core/session_rx.c
	s/t->outstanding >= p->window\)/s->outstanding >= p->window && t->outstanding >= frame_reserve(p->window))/
a partly sent result is dropped
	server/core/session_queue.c
	s/unsigned keep = [^;]+;/unsigned keep = 0;/
a silent worker is never lost
	server/core/lane.c
	s/now_ms - s->last_rx_ms > l->opt.detect_ms/0/
reducers send no heartbeats
	server/core/lane.c
	s/now_ms - s->last_tx_ms >= session_ping_ms\(s\)/0/
START although a rank has left
	server/core/lane.c
	s/st->sessions\[r\] && !st->sessions\[r\]->draining && !st->sessions\[r\]->lost/st->sessions[r]/
START before the last rank
	server/jobs/registry.c
	s/j->complete < j->first.world_size/j->complete + 1 < j->first.world_size/
a newer generation ends no older one
	server/jobs/registry_admit.c
	s/\n\t\t\tregistry_end_job\(r, j, &why, NULL\);\n\t\t\} else/\n\t\t} else/
a generation that ends is refused without retry
	server/jobs/registry_admit.c
	s/(->ended\) *\n\s*return registry_refuse\(\s*no, RS_EREFUSED, )true/$1false/
memory of a job is freed with its first session
	server/jobs/registry.c
	s/if \(!j->sessions\)\n\t\tjob_closed/job_closed/
the window is ignored
	agent/worker/core/stream.c
	s/if \(\(l->chunks_owed < [^;]+;\n\treturn owed < frame_reserve\(l->window\.limit\);/return true || (owed \&\& bytes);/
a priority has no reserve
	agent/worker/core/stream.c
	s/return owed < frame_reserve\(l->window\.limit\);/return l->chunks_in_flight == 0;/
an operation ends one chunk too early
	agent/worker/core/link_io.c
	s/--op->chunks_left > 0/--op->chunks_left > (op->chunks > 2)/
acks cover operations that have not completed
	agent/worker/core/stream.c
	s/l->x->first \? l->x->first->of.seq : l->x->next_seq/f->head.of.seq/
the cursor skips own chunks
	agent/worker/core/stream.c
	s/s->chunk \+= list->shards\[at\] - list->shards\[at - 1\];/s->chunk += list->shards[at] - list->shards[0];/
ABORT is not passed on
	agent/worker/core/exchange_end.c
	s/link_queue_abort\(l, &x->abort_reason, &x->abort_cause\);/link_queue_empty(l, FRAME_GOODBYE);/
a silent reducer is never lost
	agent/worker/core/exchange_tick.c
	s/now_ms - l->last_rx_ms >= detect_ms/0/
workers send no heartbeats
	agent/worker/core/exchange_tick.c
	s/now_ms - l->last_tx_ms >= ping_ms/0/
operations never time out
	agent/worker/core/exchange_tick.c
	s/now_ms >= exchange_op_deadline\(x, now_ms\)/0/
pending operations are not failed
	agent/worker/core/exchange_end.c
	s/\n\texchange_end_ops\(x\);//
operations end before ABORT has been sent
	agent/worker/core/exchange_end.c
	s/(x->links\[i\].state == LINK_ENDING && link_has_output\(&x->links\[i\]\))/0 \&\& $1/
a refused attempt is not repeated
	agent/worker/core/link_control.c
	s/if \(refused.retry \|\| /if (/
chunks are sent before they are filled
	agent/worker/core/stream.c
	s/if \(op->ready && /if (0 \&\& op->ready \&\& /
an attempt after a lost WELCOME is a violation
	server/jobs/registry_joins.c
	s/RS_EREFUSED, true,(\s*"lane %u of rank %u of job %s is still)/RS_EPROTO, false,$1/
completed operations are not repeated after a loss
	agent/worker/core/stream.c
	s/while \(s->replay < cursor && s->replay < s->replay_end\)/while (0)/
a rank contributes although it has the result
	agent/worker/core/stream.c
	s/if \(cursor < s->replay_end\)/if (0)/
HAVE for a partial result
	agent/worker/core/retain.c
	s/\]\.tag = 0;/].tag = position + 1;/
HAVE for an overwritten result
	agent/worker/core/retain.c
	s/k->tag == position \+ 1 \?/k->tag ?/
the rest of a result of the previous view is accepted
	agent/worker/core/link.c
	s/\n\tl->skip \|= [^;]+;//
results of the previous view are a violation
	agent/worker/core/link_io.c
	s/if \(l->state == LINK_RUNNING && l->view != l->x->view_number\)/if (0)/
the rest of a frame of the previous view is lost
	agent/worker/core/link.c
	s/\n\t\tlink_save_frame\(l\);/ l->sent_off = 0;/
ranks resume at the smallest of their starts
	server/core/stripe_view.c
	s/st->view.start\[p\] < s->start/st->view.start[p] > s->start/
ranks resume at their own starts
	agent/worker/core/view.c
	s/stream_begin\(l, p, v->start\[p\]\)/stream_begin(l, p, x->view.start[p])/
reducers do not forward views
	server/core/stripe_view.c
	s/other->view_due = true;//
RESUME before all views agree
	server/core/stripe_view.c
	s/!s->paused \|\| s->view != st->view_number/!s->paused/
RESUME while a result has been sent in part
	server/core/stripe_view.c
	s/if \(s && s->results_n\)\n\t\t\treturn false;\n//
contributions of the previous view count
	server/core/stripe_view.c
	s/\n\tstripe_clear\(st\);\n/\n/
the last view replaces the merged one
	proto/control_view.c
	s/from->lives\[i\] <= to->lives\[i\]/from->lives[i] == to->lives[i]/
an older view is accepted
	agent/worker/core/view.c
	s/v->lives\[r\] <= x->view.lives\[r\]/v->lives[r] == x->view.lives[r]/
a rank other than 0 sets shares
	agent/worker/core/view_change.c
	s/if \(x->opt.rank \|\| !x->retaining/if (!x->retaining/
connections to the last reducer are made anew
	agent/worker/core/view_change.c
	s/exchange_alive\(x\) < 3/exchange_alive(x) < 1/
shares of an older epoch win
	agent/worker/core/view.c
	s/if \(v->epoch > x->view.epoch\) \{/if (v->epoch != x->view.epoch) {/
the epoch is not in the number of a view
	proto/control_view.c
	s/uint64_t sum = v->epoch;/uint64_t sum = 0;/
a rank places shards without the shares
	agent/worker/core/view.c
	s/x->view.epoch \? x->view.shares : NULL/x->opt.rank ? NULL : x->view.epoch ? x->view.shares : NULL/
a rank takes shares without stopping its links
	agent/worker/core/view.c
	s/(view_take_shares\(x, v->epoch, v->shares\);)\n\t\tchanged = true;/$1/
a reducer does not forward shares
	server/core/stripe_view.c
	s/other->view_due = true;/other->view_due |= !v->epoch;/
retained results are overwritten too early
	agent/worker/core/retain.c
	s/r->size = max_lead \+ 1;/r->size = max_lead \/ 2 + 1;/
ranks run further ahead than results are retained
	agent/worker/core/stream.c
	s/<= x->max_lead && \(!x->pace/<= 2 * x->max_lead \&\& (!x->pace/
a rank places shards by its own features
	agent/worker/core/view.c
	s/features_known\(x\) & FEATURE_SLOTS/x->opt.features & FEATURE_SLOTS/
shards are not placed again when the features are fixed
	agent/worker/core/view.c
	s/\n\tview_assign_again\(x\);//
a stream stays where it was when shards are placed again
	agent/worker/core/view.c
	s/stream_begin\(&x->links\[i\], p, x->links\[i\].streams\[p\].replay\);/;/
a rank bounds its lead alone
	agent/worker/core/lead.c
	s/uint64_t base = lead_base\(x\);\n\n\tif \(base > x->own_lead/uint64_t base = 0;\n\n\tif (base > x->own_lead/
a lead without bound is retained in the room of a bounded one
	agent/worker/core/lead.c
	s/if \(lead_retain\(x, base, e\)\)/if (0)/
one rank places shards by another rule
	agent/worker/core/view.c
	s/(exchange_params_place)_slots : /x->opt.rank == 1 ? $1 : ${1}_slots : /
fewer results are retained than the lead of long links needs
	agent/worker/core/lead.c
	s/x->params->priorities, lead, lead_ret/x->params->priorities, lead_base(x), lead_ret/
a rank keeps its own lead of long links
	agent/worker/core/lead.c
	s/min64\(lead, x->own_lead\)/x->own_lead/
the cursor stays at a completed operation
	agent/worker/core/stream.c
	s/if \(s->op == op\)\n/if (0)\n/
results overtake one that is fetched
	server/core/result.c
	s/if \(st->fetching\[slot->header.of.priority\]\)/if (0)/
results behind a fetched one lose their order
	server/core/retained.c
	s/if \(missing && missing->order < next->order\)/if (0)/
a fetched result is the contribution
	server/core/contribution.c
	s/if \(slot->have_n \|\| slot->contributed/if (slot->have_n == st->p.world_size || slot->contributed/
goodbye before all have the results
	agent/worker/core/exchange_end.c
	s/!x->first &&\s+x->stable < x->next_seq/0/
contributions are filled in twice
	agent/worker/core/stream.c
	s/if \(first_time && op->fill/if (op->fill/
a truncated result overwrites the contribution
	agent/worker/core/link_io.c
	s/f->op->disjoint && !f->op->recv_ring/!f->op->recv_ring/
what was sent is retained without a copy
	agent/worker/core/link_io.c
	s/return link_copy_sent\([^;]+;/return at;/
a rank says that it has the part of another one
	agent/worker/core/retain.h
	s/return operation_is_scatter\(&k->head\.of\) && /return 0 \&\& /
an encoded contribution is copied from where another one is
	agent/worker/core/link_io.c
	s/if \(!f->op->of\.up\)/if (1)/
all ranks get the sum of a part
	server/core/result.c
	s/if \(operation_is_scatter\(&slot->header\.of\)\)/if (0)/
a part waits for its owner, which has left
	server/core/stripe.c
	s/slot->have_n \|\| \(operation_is_scatter\(&slot->header\.of\) && !slot->roots\)/slot->have_n/
float32 sums of a node have no room to be kept
	agent/worker/core/lead.c
	s/x->opt.processes > 1 && x->opt.features & FEATURE_SHARDED && //; s/most < 2 \* \(size_t\)p->chunk_bytes/0/
a kept float32 sum is sent again as one of the dtype
	agent/worker/core/stream.c
	s/(another number \*\/\n\tif \(retained_is_contribution\(k\)\) \{)/$1\n\t\tf->head.flags \&= (uint8_t)~FRAME_WIDE;/
parts are not repeated after a rank has left
	server/core/stripe_depart.c
	s/ \|\| operation_is_scatter\(&f->of\) \|\| view/ || view/
the owner of a part gets it a second time
	server/core/result.c
	s/return root && !slot->have_n/return root/
results are lent beyond their operation
	agent/worker/core/retain.c
	s/end - position > r->size/end - position >= r->size/
KEPT carries another chunk's result
	agent/worker/core/link_io.c
	s/had->head.of.seq == f->of.seq && had->head.chunk == f->chunk/had->head.of.seq == f->of.seq/
a rank that has left is waited for
	server/core/stripe.c
	s/\n\tfor \(unsigned r = 0; r < st->p.world_size; r\+\+\)\n\t\tn \+= stripe_has_departed[^;]+;//
rejoining ranks join ranks that start
	server/jobs/registry_joins.c
	s/if \(h->rejoin != f->rejoin\)/if (0)/
a rank that has its place is not asked
	server/core/lane.c
	s/\n\ts->question = question;//
an answer to an earlier question counts
	server/jobs/registry_joins.c
	s/ && c->question <= ev->question//
a rank lost to one reducer counts as lost to all
	server/core/stripe.c
	s/return st->p.retain \? RS_ECUT : RS_EPEER;/return RS_EPEER;/
the worker's proof is not checked
	server/join/handshake.c
	s/!auth_equal\(mac, c->want\)/0/
every challenge is the same
	server/join/handshake.c
	s/if \(h->policy->random\(.*?&e\)\)/if (!memset(nonce, 7, sizeof nonce))/
the reducer's proof is not checked
	agent/worker/core/link_control.c
	s/w->proven && auth_equal\(w->mac, l->reducer_mac\)/w->proven/
a reducer without CHALLENGE is trusted
	agent/worker/core/link_control.c
	s/return l->x->opt.secret && !\(l->proven && w->proven/return l->proven && !(w->proven/
both sides have the same proof
	common/auth.c
	s/side == AUTH_WORKER \? worker : reducer/side == AUTH_WORKER ? worker : worker/
evidence is not compared
	server/jobs/registry_admit.c
	s/same_run \? rs_evidence_check\([^)]*\)/same_run ? 0/
a reducer comes back over a path that loses large messages
	server/jobs/registry_admit.c
	s/return h->rejoin && \(h->features/return 0 && (h->features/
a stopped rank counts as lost
	server/core/lane.c
	s/if \(!s->direct \|\| /if (1 || /
a machine that is gone counts as stopped
	server/core/lane.c
	s/now_ms - s->last_ack_ms > opt->detect_ms \|\|\s+//
a worker without a secret is admitted
	server/join/handshake.c
	s/if \(!p->secret\)/if (!p->secret || !hello->has_nonce)/
frames of the last generation are taken
	agent/worker/core/link_io.c
	s/if \(link_is_stale\(l\)\)/if (0)/
stable operations of the last generation count
	agent/worker/core/exchange_rejoin.c
	s/x->start = x->stable = /x->start = /
a frame that is partly sent is dropped to reconfigure
	agent/worker/core/exchange_rejoin.c
	s/if \(!x->saved \|\| x->links\[i\]\.state != LINK_ENDING\)/if (1)/
connections are kept by a rank that leaves
	agent/worker/core/exchange_end.c
	s/ && !x->leaving;/;/
frames of the last generation are taken for HELLO
	server/join/handshake.c
	s/h->again && !h->claim && f->type != FRAME_HELLO/0/
the rest of HELLO is lost with the session
	server/core/session_rest.c
	s/hello \? FRAME_HEADER \+ s->pos : s->raw_have/s->raw_have/
a wider window leaves slots as they were
	server/core/lane.c
	s/\treturn stripe_widen\([^;]*;/\treturn RS_OK;/
a window that HELLO does not allow is taken
	agent/worker/core/lead.c
	s/ \|\| window > l->most_window//
a window below that of HELLO is taken
	agent/worker/core/lead.c
	s/ \|\| window < p->ahead//
memory of a wider window is not counted
	server/jobs/registry_window.c
	s/r->memory \+= bound - j->bound;//
partial averages are sent without a scale
	agent/worker/core/encoded.c
	s/op->of\.up = RS_WIRE_FP16;/;/
partial averages are refused
	server/core/contribution.c
	s/!rs_wire_fits_up\(o->up/!rs_wire_fits(o->up/
a block of fp16 overflows
	common/kernels/encode.h
	s/\? exponent - 14/? exponent - 16/
a scale of 8 bits is rounded down
	common/kernels/encode.h
	s/ \+ 0xffff\) & 0xffff0000/) & 0xffff0000/
the second code of a byte is lost
	common/kernels/encode.h
	s/ \| codes\[2 \* i \+ 1\] << 4\)/)/
codes of 4 bits have no sign
	common/kernels/encode.h
	s/\(\(pair >> 4\) \^ 8\) - 8/pair >> 4/
encoded chunks end within blocks
	proto/operation.c
	s/ & ~\(uint32_t\)\(RS_WIRE_BLOCK - 1\)//
the own part of an all-gather is not copied
	agent/worker/core/link_io.c
	s/if \(operation_is_gather\(&f->head.of\) && outgoing_is_root\(f\)\)/if (0)/
the result of a part is put among all parts
	agent/worker/core/exchange_op.h
	s/operation_is_scatter\(&op->of\) \? at->offset : at->first/at->first/
an owner contributes the part that it has
	agent/worker/core/retain.h
	s/ && !\(k->head.flags & FRAME_ROOT\);/;/
the result of a part is fetched
	server/core/retained.c
	s/ \|\| operation_is_scatter\(&slot->header.of\)//
room for decoded chunks is ignored
	proto/operation.c
	s/\(n < most \? n : most\)/n/
a chunk counts as added when it begins
	server/core/session_tx.c
	s/\.of\.count = t->added,/.of.count = t->started,/
reducers do not say what they have added
	server/core/session_queue.c
	s/\.added\+\+;\n\ts->credit_due = true;/.added++;/
reducers go on counting what they have added at RESUME
	server/core/stripe_view.c
	s/ = t->added = t->credited = 0;/ = t->credited = 0;/
CREDIT of an earlier view counts
	agent/worker/core/credit.c
	s/l->view != l->x->view_number\)/0)/
chunks that were added are done
	agent/worker/core/credit.c
	s/(s->credited - s->head < added\)\n\t\tcredit_landed\(l, s, now_ms\);)/$1\n\ts->head = s->credited;/
a chunk leaves the window by CREDIT and by its result
	agent/worker/core/link_io.c
	s/if \(s->credited == s->head\)/if (1)/
a chunk that was added counts as begun by all ranks
	agent/worker/core/stream.c
	s/added \? s->credited : s->head/s->credited + 0 * added/
more chunks lack a result than the reducer has slots for
	agent/worker/core/stream.c
	s/\(l->chunks_owed < ahead \|\| owed < frame_reserve\(ahead\)\) &&\s+//
decoupled ranks retain as few results as others
	agent/worker/core/lead.c
	s/x->params->priorities, lead, lead_ret/x->params->priorities, lead < 512 ? lead \/ 2 : lead, lead_ret/
chunks that ranks may have go through relays
	agent/worker/core/stream.c
	s/return border > op->position \? border - op->position : 0;/return 0;/
chunks that came through relays are repeated at the home
	agent/worker/core/stream.c
	s/l->x->relaying \? l->x->border\[priority\] : //
each rank has a border of its own
	agent/worker/core/view.c
	s/memcpy\(x->border, v->begun, sizeof x->border\);/memcpy(x->border, x->view.begun, sizeof x->border);/
HAVE says the home of a chunk in place of the generation
	agent/worker/core/stream.c
	s/\n\tf->head.generation = l->x->opt.generation;[^\n]*//
shards of a lost relay stay there
	config/exchange_params.c
	s/relay\[s\] = \(uint16_t\)relays_least\(p, map, lives, load\);/lane[s] = 0;/
a contribution of an uplink covers one rank
	server/core/groups.c
	s/return s->relay \? st->group_n\[s->group\] : 1;/return 1;/
a relay waits for all ranks
	server/core/groups.c
	s/slot->relay \? st->group_n\[s->group\] : st->p.world_size;/st->p.world_size;/
results leave in the order in which chunks began
	server/core/groups.c
	s/while \(older && slot_is_before\(&slot->header, &older->header\)\)\s+older = older->older;//
results leave as soon as they are there
	server/core/result.c
	s/while \(st->oldest\[p\] && st->oldest\[p\]->waiting\) \{\s+slot = st->oldest\[p\];/{/
a far relay gets a result twice
	server/core/result.c
	s/!slot_bit\(slot->early, r\)/true/
what only far relays wait for keeps its slot
	server/core/result.c
	s/if \(!slot->unsent\)/if (false)/
a place of an uplink counts as told as the one before
	server/core/groups.c
	s/\n\t\t\tslot_bit_clear\(s->early, place\);//
sums of groups are not rounded when the home adds
	server/core/groups.c
	s/\n\t\tslot_finish_partial\(&part, [^;]+;/\n\t\tpart.header.of.up = 0; wide = part.header.of.size == 2;/
RESUME before the uplinks have sent the view
	server/core/stripe_view.c
	s/if \(s && \(s->results_n \|\| s->lost \|\| s->draining \|\| !s->paused \|\| s->view != st->view_number\)\)/if (0)/
a home is told of a view after its uplinks have told the relay
	server/core/stripe_view.c
	s/\tuplinks_tell\(st\);\n(\tif \(!view_is_agreed_by_relays\(st\)\)\n\t\treturn;\n)/$1\tuplinks_tell(st);\n/
a home is told of a view before all ranks have it
	server/core/stripe_view.c
	s/(if \(!st->running[^;]+;)\n\tuplinks_tell\(st\);/uplinks_tell(st);\n\t$1/
an uplink's results of an earlier view are taken
	server/core/uplink_rx.c
	s/u->skip = u->view != u->stripe->resumed_view;/u->skip = false;/
the uplink of a lost relay stays
	server/core/stripe_view.c
	s/\n\t\tview_drop_relays\(st\);//
chunks are sent again on a new uplink in the same view
	server/core/uplink.c
	s/u->outstanding \? UPLINK_BROKEN : UPLINK_IDLE/UPLINK_IDLE/
a relay stays without a connection to a home
	server/core/uplink_tx.c
	s/now_ms - u->failing_ms < patience_ms/true/
the window of a home is ignored
	server/core/uplink_tx.c
	s/q->outstanding < u->window &&\s+\(u->outstanding < u->window \|\| q->outstanding < frame_reserve\(u->window\)\)/true/
a relay says nothing of operations that ranks of other groups call otherwise
	server/core/stripe_late.c
	s/\n\tif \(st->watch.slot->relay\)\n\t\tuplink_tell_late\([^;]+;//
a place of an uplink gets the results of the one before
	server/core/lane.c
	s/\n\tif \(s->relay\)\n\t\tgroups_forget\(st, s->rank\);//
LIST
}

build() { make -C "$copy" -j2 CFLAGS='-O1 -g' BUILD=out out/default/tests/sim/test_sim >"$copy/log" 2>&1; }
# 100 seeds a second, on a busy machine; a run that takes longer does not end
simulate() { timeout $((60 + seeds / 100)) "$copy/out/default/tests/sim/test_sim" --seeds "$seeds" >"$copy/log" 2>&1; }

if [ "$seeds" = 0 ]; then
	bad=0
	while read -r name && read -r file && read -r change; do
		perl -0pe "$change" "$file" | cmp -s - "$file" || continue
		echo "mutations: $name: the text that it changes is not in $file"
		bad=1
	done < <(mutations)
	exit $bad
fi
cp -r Makefile common config proto server agent bench tests deploy "$copy" || exit 1
if ! { build && simulate; }; then
	tail -5 "$copy/log"
	echo "mutations: the simulator does not pass as it is"
	exit 1
fi
printf '%-48s  %s\n' mutation 'found'
missed=0
while read -r name && read -r file && read -r change; do
	[ $# = 0 ] || printf '%s\n' "$@" | grep -qxF "$name" || continue
	cp "$copy/$file" "$copy/unbroken"
	perl -0pi -e "$change" "$copy/$file"
	if cmp -s "$copy/unbroken" "$copy/$file"; then
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
	cp "$copy/unbroken" "$copy/$file"
done < <(mutations)
[ $missed = 0 ]
