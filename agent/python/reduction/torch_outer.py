# SPDX-License-Identifier: Apache-2.0
"""Outer: training on several sites that average their progress every so many steps (DiLoCo, arXiv 2311.08105; with
fragments and overlap Streaming DiLoCo, arXiv 2501.18512). `reduction.torch.Outer` is this class.

The happy path, for one fragment of the model: after a multiple of `sync_every` inner steps the site's leader starts an
all-reduce of what the fragment has changed since the last outer step. Training goes on. `fragment_sync_delay` steps
later the leader waits for the average, makes an outer step, and gives the result to its site. Failure modes: with a
Communicator the first error is raised on all ranks of a site. With Members the leader leaves that communicator, joins
the next one in the background while training goes on, and then receives what it lacks from a rank that has it. Nothing
of a site's progress is lost: it is part of the fragment's next all-reduce.
"""

import concurrent.futures
import contextlib
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed

from . import _buffers, errors
from .comm import Communicator, Request
from .torch_members import Members

_Spec = Union[torch.nn.Module, Iterable[torch.nn.Parameter]]

# what a rank does with a fragment when its leader has spoken
_KEEP, _MERGE, _REPLACE = 0, 1, 2
_FAILED = -1  # instead of the number of steps: the leader raises an error


class _Fragment:
    """Parameters that are averaged together; on the leader also their outer copy and its momentum, as vectors.

    Each element-wise operation below rounds once, so that sites with different processors get the same bits.
    """

    def __init__(self, parameters: List[torch.nn.Parameter], device: Optional[torch.device], leads: bool):
        if not parameters:
            raise ValueError("a fragment has no parameter that requires a gradient")
        places = {p.device for p in parameters}
        if len(places) > 1:
            names = ", ".join(sorted(map(str, places)))
            raise ValueError(f"a fragment's parameters are on {names}; one device was expected")
        self.parameters = parameters
        self.steps = 0  # outer steps so far
        self.dtype = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
        self.place = places.pop()  # of the parameters
        self.count = sum(p.numel() for p in parameters)
        if leads:
            self.outer, self.momentum, self.change = (
                torch.zeros(self.count, dtype=self.dtype, device=device or self.place) for _ in range(3)
            )
            self._gather(self.outer)

    def _pieces(self, vector: torch.Tensor) -> Iterable[Tuple[torch.nn.Parameter, torch.Tensor]]:
        pieces = torch.split(vector, [p.numel() for p in self.parameters])
        return ((p, piece.view_as(p)) for p, piece in zip(self.parameters, pieces))

    def _gather(self, vector: torch.Tensor) -> None:
        for p, piece in self._pieces(vector):
            piece.copy_(p.detach())

    def take(self) -> None:
        """Stores in `change` how far the parameters are behind the outer ones, as a gradient would say it."""
        self._gather(self.change)
        torch.sub(self.outer, self.change, out=self.change)

    def advance(self, lr: float, momentum: float, nesterov: bool) -> None:
        """Makes an outer step with the average in `change`, as torch.optim.SGD does."""
        self.momentum.mul_(momentum).add_(self.change)
        step = self.change.add_(self.momentum * momentum) if nesterov else self.momentum
        self.outer.sub_(step * lr)
        self.steps += 1

    def put(self, outer: torch.Tensor, alpha: float) -> None:
        """Stores the outer parameters in the model; of what the model has learned meanwhile the part alpha stays."""
        for p, piece in self._pieces(outer):
            target = p.detach()
            if alpha:
                piece = torch.lerp(piece, target.to(piece.dtype), alpha)
            target.copy_(piece)


def _split(fragments: Union[torch.nn.Module, Sequence[_Spec]]) -> List[List[torch.nn.Parameter]]:
    """Returns the parameters of each fragment. One module is one fragment."""
    found, owner = [], {}
    for index, spec in enumerate([fragments] if isinstance(fragments, torch.nn.Module) else fragments):
        if isinstance(spec, torch.nn.Module):
            found.append([p for p in spec.parameters() if p.requires_grad])
        else:
            found.append(list(spec))
        for p in found[-1]:
            first = owner.setdefault(id(p), index)
            if first != index:
                raise ValueError(f"a parameter is in the fragments {first} and {index}; one of them was expected")
    if not found:
        raise ValueError("there are no fragments; a module or a list of modules was expected")
    return found


def _in_background(call: Callable[[], Any]) -> "concurrent.futures.Future[Any]":
    """Calls `call` in a thread of its own, which does not keep the process from ending."""
    future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()

    def body() -> None:
        try:
            future.set_result(call())
        except BaseException as exc:
            future.set_exception(exc)

    threading.Thread(target=body, name="reduction-join", daemon=True).start()
    return future


def _close_result(future: "concurrent.futures.Future[Communicator]") -> None:
    """Closes a communicator that was joined too late."""
    if future.exception() is None:
        with contextlib.suppress(errors.ReductionError):
            future.result().close()


class Outer:
    """Outer steps of a training on several sites. Call step() after each step of the inner optimizer:

        outer = reduction.torch.Outer(model, comm, sync_every=30, fragment_sync_delay=5, wire="int8")
        while outer.steps < 10_000:
            loss(model(batch())).backward()
            optimizer.step()
            optimizer.zero_grad()
            outer.step()
        outer.synchronize()                                   # now all sites' models are equal
        outer.close()

    All sites make the same calls. A site is one process, or the ranks of a process group whose parameters are always
    equal, as after DistributedDataParallel. Its rank 0, the leader, alone talks to the other sites and keeps three
    vectors as large as the model. The words are those of torchft's DiLoCo.

    Args:
        fragments: the model, or modules or lists of parameters that are averaged one after the other. Parameters of
            modules that require no gradient, and buffers, stay with their site.
        comm: the leader's connection to the other sites: a Communicator, whose ranks are the sites and which the
            caller closes, or Members, if sites may be lost and come back. None on the other ranks of a site.
        sync_every: inner steps between two outer steps of a fragment, a multiple of the number of fragments.
        fragment_sync_delay: inner steps during which the all-reduce of a fragment has time, less than sync_every.
        fragment_update_alpha: part of what the model has learned since the last outer step that stays beside the new
            outer parameters: 0, none of it, to 1. Streaming DiLoCo has 0.5.
        lr, momentum, nesterov: of the outer optimizer, SGD. `lr` may be changed between steps, on all sites.
        wire: how changes are written on the network, as in Communicator.all_reduce().
        group: the process group of the site's ranks; None: the site is this process.
        backup_device: where the leader keeps its vectors; None: where the parameters are.

    The constructor copies parameters, momentum and the number of steps from a site that has them to sites that join.

    Raises:
        ReductionError: the other sites cannot be reached; the message says why.
    """

    def __init__(
        self,
        fragments: Union[torch.nn.Module, Sequence[_Spec]],
        comm: Union[Communicator, Members, None],
        *,
        sync_every: int,
        fragment_sync_delay: int = 0,
        fragment_update_alpha: float = 0.0,
        lr: float = 0.7,
        momentum: float = 0.9,
        nesterov: bool = True,
        wire: Optional[str] = None,
        group: Optional[Any] = None,
        backup_device: Union[torch.device, str, None] = None,
    ):
        parts = _split(fragments)
        if sync_every < 1 or sync_every % len(parts):
            raise ValueError(f"sync_every is {sync_every}; a multiple of the {len(parts)} fragments was expected")
        if not 0 <= fragment_sync_delay < sync_every:
            raise ValueError(f"fragment_sync_delay is {fragment_sync_delay}; 0 to {sync_every - 1} was expected")
        if not 0 <= fragment_update_alpha <= 1:
            raise ValueError(f"fragment_update_alpha is {fragment_update_alpha}; 0 to 1 was expected")
        _buffers.wire_code(wire)
        self._group = group
        self._leads = group is None or torch.distributed.get_rank(group) == 0
        if self._leads != (comm is not None):
            raise ValueError("comm is for rank 0 of `group`, the site's leader, and None on the site's other ranks")
        device = None if backup_device is None else torch.device(backup_device)
        self._fragments = [_Fragment(part, device, self._leads) for part in parts]
        self._every, self._slot = sync_every, sync_every // len(parts)
        self._delay, self._alpha = fragment_sync_delay, fragment_update_alpha
        self.lr, self.momentum, self.nesterov, self.wire = lr, momentum, nesterov, wire
        self._steps = 0
        self._fresh = True  # this site has nothing that the others need
        self._pending: Dict[int, Tuple[Request, Request, torch.Tensor]] = {}
        self._error: Optional[errors.ReductionError] = None  # of an operation that could not start
        #: Seconds that step() and synchronize() have waited: communication that training did not hide.
        self.waited = 0.0
        self._members = comm if isinstance(comm, Members) else None
        self._comm: Optional[Communicator] = None if isinstance(comm, Members) else comm
        self._joining: "Optional[concurrent.futures.Future[Communicator]]" = None
        if self._members is not None:
            self._joining = _in_background(self._members.join)
        self._in_site(self._meet)

    @property
    def steps(self) -> int:
        """Inner steps so far, equal on all sites that take part. A site that comes back gets the others' number."""
        return self._steps

    @property
    def outer_steps(self) -> int:
        """Outer steps of the first fragment so far."""
        return self._fragments[0].steps

    def _due(self, step: int) -> Optional[int]:
        """Returns the fragment whose all-reduce starts at this step, if any. They are evenly staggered."""
        if step < 1 or step % self._slot:
            return None
        return (step // self._slot - 1) % len(self._fragments)

    def step(self) -> None:
        """Counts a step of the inner optimizer, and does what is due after it.

        Raises:
            ReductionError: an operation has failed, and there are no Members.
        """
        began = time.monotonic()
        self._steps += 1
        self._begin(self._due(self._steps))
        due = self._due(self._steps - self._delay)
        if due is not None:
            self._in_site(lambda codes: self._settle(due, codes))
        self.waited += time.monotonic() - began

    def synchronize(self) -> None:
        """Makes an outer step of all fragments at once and waits for it: then all sites have the outer parameters.

        All sites call it after the same step, for example before a validation or a checkpoint.
        """
        began = time.monotonic()
        self._in_site(self._settle_all)
        self.waited += time.monotonic() - began

    # The leader's part

    def _begin(self, index: Optional[int]) -> None:
        """Starts the all-reduce of a fragment. An error is that of the next _settle(), where the site is told."""
        if index is None or self._comm is None or self._error is not None:
            return
        fragment = self._fragments[index]
        fragment.take()
        wanted = self._members is not None and self._members.wanted
        change = torch.tensor([int(wanted)], dtype=torch.int64)
        try:
            average = self._comm.all_reduce(
                fragment.change, "avg", async_op=True, name=f"outer-{index}", wire=self.wire
            )
            leave = self._comm.all_reduce(change, "max", async_op=True, name="outer-members")
        except errors.ReductionError as exc:
            self._error = exc
            return
        self._pending[index] = average, leave, change

    def _finish(self, index: int, codes: List[int]) -> bool:
        """Waits for a fragment's average and makes its outer step. Returns True if a site waits for a new communicator:
        all sites learn it with the same operation."""
        if self._error is not None:
            raise self._error
        if index not in self._pending:
            return False
        average, leave, change = self._pending.pop(index)
        average.wait()
        fragment = self._fragments[index]
        fragment.advance(self.lr, self.momentum, self.nesterov)
        codes[index] = _MERGE
        leave.wait()
        return bool(change.item())

    def _settle(self, index: int, codes: List[int]) -> None:
        if self._joining is not None:
            if self._joining.done():
                self._meet(codes)
                self._begin(self._due(self._steps))
            if self._delay:
                return
        try:
            if self._comm is not None and self._finish(index, codes):
                self._leave(None)
        except errors.ReductionError as exc:
            self._leave(exc)

    def _settle_all(self, codes: List[int]) -> None:
        while True:
            if self._joining is not None:
                self._meet(codes)
            try:
                for index in list(self._pending):
                    self._finish(index, codes)
                for index in range(len(self._fragments)):
                    self._begin(index)
                left = [self._finish(index, codes) for index in range(len(self._fragments))]
                break
            except errors.ReductionError as exc:
                self._leave(exc)
        codes[:] = [_REPLACE] * len(codes)
        if any(left):
            self._leave(None)

    def _leave(self, why: Optional[errors.ReductionError]) -> None:
        """Leaves the communicator, and joins the next one in the background. Without Members raises the error."""
        if self._members is None:
            assert why is not None
            raise why
        if why is not None:
            print(f"reduction: outer steps pause after step {self._steps}: {why}", file=sys.stderr, flush=True)
        self._close_comm()
        self._joining = _in_background(self._members.join)

    def _close_comm(self) -> None:
        comm, self._comm, self._error = self._comm, None, None
        self._pending.clear()
        if comm is not None:
            with contextlib.suppress(errors.ReductionError):  # the error that ended it is known
                comm.close()

    def _meet(self, codes: List[int]) -> None:
        """Waits for the communicator that is being joined, and until all its sites have the same."""
        while True:
            if self._joining is not None:
                self._comm, self._joining = self._joining.result(), None
            assert self._comm is not None
            try:
                return self._copy(self._comm, codes)
            except errors.ReductionError as exc:
                self._leave(exc)

    def _copy(self, comm: Communicator, codes: List[int]) -> None:
        """Copies fragments from a site that has made most outer steps to the sites that lack some of them.

        A fragment changes only when all of it is here: an error leaves it as it was.
        """
        # the largest of a column is the state that counts, and the lowest rank that has it
        mine = [0 if self._fresh else 1 + f.steps for f in self._fragments]
        table = torch.tensor(
            [self._steps, int(self._fresh)] + [(state << 20) + (1 << 20) - 1 - comm.rank for state in mine],
            dtype=torch.int64,
        )  # fmt: skip
        least = torch.tensor([-state for state in mine], dtype=torch.int64)
        comm.all_reduce(table, "max", name="outer-state")
        comm.all_reduce(least, "max", name="outer-state-least")
        steps, any_fresh, *best = table.tolist()
        for index, (fragment, entry, low) in enumerate(zip(self._fragments, best, least.tolist())):
            state, root = entry >> 20, (1 << 20) - 1 - (entry & ((1 << 20) - 1))
            if state == -low and not any_fresh:
                continue
            self._receive(comm, fragment, root, state > 1)
            fragment.steps = max(0, state - 1)
            if mine[index] != state or self._fresh:
                codes[index] = _REPLACE if self._fresh else _MERGE
        self._steps, self._fresh = steps, False

    @staticmethod
    def _receive(comm: Communicator, fragment: _Fragment, root: int, has_momentum: bool) -> None:
        sends = comm.rank == root
        outer = fragment.outer if sends else torch.empty_like(fragment.outer)
        momentum = fragment.momentum if sends else torch.zeros_like(fragment.momentum)
        comm.broadcast(outer, root, name="outer-parameters")
        if has_momentum:
            comm.broadcast(momentum, root, name="outer-momentum")
        fragment.outer, fragment.momentum = outer, momentum

    # The site's part

    def _in_site(self, lead: Callable[[List[int]], None]) -> None:
        """The leader calls `lead`, which says what becomes of each fragment; then all ranks of the site do that."""
        codes = [_KEEP] * len(self._fragments)
        failure: Optional[BaseException] = None
        if self._leads:
            try:
                lead(codes)
            except BaseException as exc:
                failure = exc
        self._tell(codes, failure)
        for fragment, code in zip(self._fragments, codes):
            if code == _KEEP:
                continue
            outer = fragment.outer.to(fragment.place) if self._leads else None
            outer = torch.empty(fragment.count, dtype=fragment.dtype, device=fragment.place) if outer is None else outer
            if self._group is not None:
                self._broadcast(outer)
            fragment.put(outer, self._alpha if code == _MERGE else 0.0)

    def _broadcast(self, tensor: torch.Tensor) -> None:
        root = torch.distributed.distributed_c10d.get_global_rank(self._group, 0)
        torch.distributed.broadcast(tensor, root, group=self._group)

    def _tell(self, codes: List[int], failure: Optional[BaseException]) -> None:
        """Gives the leader's decision to the site's other ranks."""
        if self._group is not None:
            place = self._fragments[0].place
            word = [_FAILED if failure else self._steps, *codes, *(f.steps for f in self._fragments)]
            told = torch.tensor(word, dtype=torch.int64, device=place)
            self._broadcast(told)
            steps, *rest = told.tolist()
            if steps == _FAILED and failure is None:
                raise errors.ReductionError(
                    errors.EPEER, "the leader of this site (rank 0 of `group`) has failed: its own message says why"
                )
            self._steps, codes[:] = steps, rest[: len(codes)]
            for fragment, count in zip(self._fragments, rest[len(codes) :]):
                fragment.steps = count
        if failure is not None:
            raise failure

    # State

    def state_dict(self) -> Dict[str, Any]:
        """Returns the number of steps and, on a site's leader, outer parameters and momentum of each fragment."""
        kept = ("outer", "momentum") if self._leads else ()
        return {
            "steps": self._steps,
            "fragments": [
                {"steps": f.steps, **{name: getattr(f, name).clone() for name in kept}} for f in self._fragments
            ],
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restores what a leader's state_dict() has returned. The model's parameters are loaded with the model.

        All ranks of all sites call it, with the same state, before the first step.
        """
        saved = state["fragments"]
        if len(saved) != len(self._fragments):
            raise ValueError(f"the state has {len(saved)} fragments; {len(self._fragments)} were expected")
        for index, (fragment, one) in enumerate(zip(self._fragments, saved)):
            if not self._leads:
                fragment.steps = one["steps"]
                continue
            if "outer" not in one:
                raise ValueError("the state is not that of a site's leader: it has no outer parameters")
            if one["outer"].numel() != fragment.count:
                raise ValueError(
                    f"fragment {index} of the state has {one['outer'].numel()} elements; {fragment.count} were expected"
                )
            fragment.steps = one["steps"]
            fragment.outer.copy_(one["outer"])
            fragment.momentum.copy_(one["momentum"])
        self._steps = state["steps"]

    def close(self) -> None:
        """Leaves the other sites. Does not close a Communicator that the caller opened. May be called again."""
        if self._members is not None:
            self._members.close()
            self._close_comm()
        if self._joining is not None:
            self._joining.add_done_callback(_close_result)
        self._comm = self._joining = None

    def __enter__(self) -> "Outer":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close()
