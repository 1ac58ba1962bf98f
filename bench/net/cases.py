# SPDX-License-Identifier: Apache-2.0
"""The table of bench-net: its cases, the mode in which each runs, and their targets."""

import dataclasses

import lab as net
from placement import Placement
from rack_maps import FLAT, RackPlacement, Racks

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RINGS = ("gloo", "ompi-ring")
TCP_PEERS = ("gloo", "ompi-ring", "ompi", "mpich")
SHARED_MEMORY = ("ompi-shm",)  # not over TCP: shown beside the others, never used for a target
LESS = ("gloo", "torch-bf16", "torch-fp8")
WIRES = ("bf16", "fp8", "int8", "2x16")
SECURED = ("tls", "grpc", "grpc+tls")
# Systems on one machine that do the same work: tables and plots compare only systems of
# one group.
COMPARABLE = {
    "memory": ("shared memory", ("reduction/local+malloc", "reduction/local", *SHARED_MEMORY)),
    "node": ("shared memory, then reducers", ("reduction/node+malloc", "reduction/node", "reduction/agent")),
    "tcp": ("each rank over TCP", ("reduction", *TCP_PEERS, "bare-loop")),
}
SHAPED, LOOPBACK, LATENCY, KERNELS = "shaped", "loopback", "latency", "kernels"


@dataclasses.dataclass
class Case:
    """A row of the table: a laboratory, sizes and systems. `more_*` are added in full mode."""

    name: str
    n: int = 0
    k: int = 0
    kind: str = SHAPED
    rate: str = "1gbit"
    queue_ms: float = 5
    delay_us: float = 0
    # milliseconds of a round trip of each connection, between two workers or to a
    # reducer; 0: that of the machine
    rtt_ms: float = 0
    far_ms: float = 0  # the same for those of worker 0
    random_loss: int = 0  # each packet with data is lost with the chance 1/n
    cc: str = None  # congestion control
    iters: int = 0  # timed operations; 0: as many as the time allows
    warmup: int = 1  # operations before them, if `iters` is given
    sizes: tuple = (4 * MIB, 16 * MIB)
    more_sizes: tuple = ()
    peers: tuple = RINGS
    more_peers: tuple = ()
    ways: tuple = ()  # names in systems.WAYS: ours is also measured over these transports
    mixed: bool = False  # also with reducers on the workers' hosts, and the shard map of `reductionctl plan`
    racks: Racks = None  # hosts are in racks; ours is measured with the configurations that it names
    half: bool = False  # the first reducer's link has half the rate; shard map of `reductionctl plan`
    only_full: bool = False
    asked: bool = False  # runs only if --cases names it
    targets: dict = dataclasses.field(default_factory=dict)

    def delays_us(self, peer):
        """Returns the delays on the way to each host: of reducers none, so that workers are as far from them as workers
        of a peer system from each other."""
        if not self.rtt_ms:
            return self.delay_us
        far_ms = self.far_ms or self.rtt_ms
        if not peer:
            return {w: 1e3 * (self.rtt_ms if w else far_ms) for w in range(self.n)}
        return {w: 1e3 * (self.rtt_ms / 2 if w else far_ms - self.rtt_ms / 2) for w in range(self.n)}

    @property
    def loopback(self):
        return self.kind in (LOOPBACK, LATENCY)

    def rates(self):
        """Returns host -> rate, for hosts whose rate differs."""
        return {self.n: f"{net.parse_rate(self.rate) / 2e3:g}kbit"} if self.half else {}

    def placement(self, mixed):
        """Returns where ranks and reducers are. mixed: False places only the dedicated reducers, as for the peers."""
        if self.racks:
            return RackPlacement(self)
        rate = net.parse_rate(self.rate)
        hosts = self.n + self.k
        payload = None
        if rate and not self.loopback:
            payload = [net.payload_bits(net.parse_rate(self.rates().get(h, self.rate))) for h in range(hosts)]
        return Placement(self.n, self.k, mixed, self.loopback, payload, uses_plan=mixed or self.half)

    def in_racks(self):
        """Returns (name of the configuration, placement) for each of ours in racks."""
        return [(name, RackPlacement(self, name)) for name in (FLAT, *self.racks.systems)]

    def in_full(self):
        """Returns the case as full mode runs it."""
        return dataclasses.replace(self, sizes=self.sizes + self.more_sizes, peers=self.peers + self.more_peers)


# Targets of a row, by key:
#   line    share of a plain TCP flow in the same laboratory
#   bound   share of the throughput that `reductionctl plan` predicts from the links
#   plain   ours over each other transport, divided by ours over plain TCP, from `plain_from` bytes on
#   peer    ours divided by the best TCP peer of the case, from `peer_from` bytes on
#   memory  ours by default divided by Open MPI in shared memory, for ordinary memory and for that of
#           reduction_buffer_alloc()
#   ring    ours divided by the better ring: more than this
#   wire    bytes of TCP payload on a worker's link divided by the bytes reduced, each way, at `wire_at` bytes
#   cpu     reducers' CPU time for a GiB divided by that of the bare loop, from `cpu_from` bytes on
#   racks   the best of ours with groups divided by the better ring, from `racks_from` bytes on, as are:
#   allowed   it, divided by what `plan` expects
#   uplinks   bytes of TCP payload on the busiest uplink divided by the bytes reduced, each way
#   declared  ours with groups without relays divided by ours without groups
#   p50     median time divided by that of Open MPI over TCP; `goal` is the long-term target
#   kernel  speed divided by that of a plain add with both buffers in the same places: {dtype: share}
WIRE = {"wire": 1.02, "wire_at": 16 * MIB}
CPU = {"cpu": 1.15, "cpu_from": 16 * MIB}
WAN = {"n": 4, "k": 4, "rate": "500mbit", "queue_ms": 50, "sizes": (256 * MIB,), "peers": ("gloo", "bare-loop"),
       "iters": 5, "asked": True}


def rings(times, **more):
    """Returns the targets of a case with racks: ours is at least so many times as fast as the better ring, and what
    plan expects of it."""
    return {"racks": times, "racks_from": 16 * MIB, "allowed": 0.9, **more}


RACKS = {"rate": "250mbit", "peers": (*RINGS, "gloo-2d"), "more_peers": ("gloo-2d-phased",), "asked": True}
TABLE = [
    Case("n4", 4, 4, sizes=(MIB, 4 * MIB, 16 * MIB), more_sizes=(64 * MIB,), peers=RINGS + ("ompi", "bare-loop"),
         more_peers=("mpich",), targets={"line": 0.95, "peer": 1.5, "peer_from": 4 * MIB, **WIRE, **CPU}),
    Case("n8", 8, 8, rate="250mbit", more_peers=("ompi", "mpich"),
         targets={"line": 0.93, "peer": 1.65, **WIRE}),
    Case("n16", 16, 16, rate="100mbit", peers=("gloo",), only_full=True, targets={"line": 0.90, "peer": 1.65, **WIRE}),
    Case("queue-1ms", 4, 4, queue_ms=1, peers=("gloo",), more_peers=("ompi-ring",), targets={"line": 0.90, **WIRE}),
    Case("queue-50ms", 4, 4, queue_ms=50, peers=("gloo",), more_peers=("ompi-ring",),
         targets={"line": 0.90, **WIRE}),
    Case("mixed", 6, 2, rate="250mbit", sizes=(16 * MIB,), mixed=True, targets={"bound": 0.90, "ring": 1.0}),
    Case("half", 4, 4, sizes=(16 * MIB,), half=True, targets={"bound": 0.90, **WIRE}),
    Case("scale-2", 2, 2, rate="250mbit", sizes=(4 * MIB,)),
    Case("scale-4", 4, 4, rate="250mbit", sizes=(4 * MIB,)),
    Case("scale-6", 6, 6, rate="250mbit", sizes=(4 * MIB,), only_full=True),
    Case("delay-200us", 4, 4, rate="250mbit", delay_us=200, only_full=True,
         targets={"line": 0.90, **WIRE}),
    Case("delay-2ms", 4, 4, rate="250mbit", delay_us=2000, only_full=True, targets={"line": 0.90, **WIRE}),
    Case("loopback", 4, 2, LOOPBACK, "none", sizes=(MIB, 4 * MIB, 16 * MIB), more_sizes=(64 * MIB,),
         peers=RINGS + ("ompi", "bare-loop"), more_peers=("mpich", "ompi-shm"),
         ways=("local+malloc", "local", "node+malloc", "node", "agent"), targets={"peer": 1.0, "memory": 1.0, **CPU}),
    Case("latency", 4, 2, LATENCY, "none", sizes=(4 * KIB,), peers=("gloo", "ompi", "ompi-shm"),
         more_peers=("mpich",), ways=("local", "node", "agent"), targets={"p50": 2.0, "goal": 1.0}),
    Case("transports", 4, 2, LOOPBACK, "none", sizes=(64 * KIB, 4 * MIB, 64 * MIB), peers=(), ways=SECURED,
         targets={"plain": 0.5, "plain_from": 4 * MIB}, asked=True),
    Case("transports-link", 4, 2, sizes=(64 * KIB, 4 * MIB, 64 * MIB), peers=(), ways=SECURED,
         targets={"plain": 0.95, "plain_from": 4 * MIB}, asked=True),
    Case("wire-n4", 4, 4, sizes=(16 * MIB, 64 * MIB), peers=LESS, ways=WIRES, asked=True),
    Case("wire-n4-250", 4, 4, rate="250mbit", sizes=(16 * MIB, 64 * MIB), peers=LESS, ways=WIRES, asked=True),
    Case("wire-n8", 8, 8, rate="250mbit", sizes=(16 * MIB, 64 * MIB), peers=LESS, ways=WIRES, asked=True),
    *(Case(f"wan-{rtt_ms}ms-{cc}", rtt_ms=rtt_ms, cc=cc, targets={"line": 0.90}, **WAN)
      for rtt_ms in (20, 100, 200) for cc in ("cubic", "bbr")),
    Case("wan-loss-bbr", rtt_ms=100, cc="bbr", random_loss=1000, targets={"line": 0.80}, **WAN),
    Case("wan-loss-cubic", rtt_ms=100, cc="cubic", random_loss=1000, **WAN),
    Case("wan-far", rtt_ms=1, far_ms=100, cc="cubic", targets={"line": 0.90}, **WAN),
    Case("racks2-full", 8, 8, racks=Racks(over=1, systems=("groups", "declared")),
         targets={"racks_from": 16 * MIB, "declared": 0.95}, **RACKS),
    Case("racks2-2to1", 8, 8, racks=Racks(over=2, systems=("groups", "mixture-2to1")), targets=rings(1.45), **RACKS),
    Case("racks2-4to1", 8, 8, racks=Racks(over=4, systems=("groups", "mixture-4to1")), targets=rings(1.35), **RACKS),
    Case("racks2-8to1", 8, 8, racks=Racks(over=8), targets=rings(1.65), **RACKS),
    *(Case(f"racks2-k10-{over}to1", 8, 10, racks=Racks(over=over, each=5), targets=rings(1.6), **RACKS)
      for over in (2, 4, 8)),
    Case("racks2-mixed-4to1", 8, 8, racks=Racks(on_workers=True), targets=rings(1.5), **RACKS),
    Case("racks3-4to1", 12, 15, racks=Racks(count=3, spine=3), targets=rings(1.37, uplinks=1.05), **RACKS),
    *(Case(f"zones-20ms-{cc}", 8, 8, cc=cc, queue_ms=20, iters=5, warmup=5, racks=Racks(over=1, rtt_ms=20),
           targets={"racks_from": 16 * MIB, "allowed": 0.9, "uplinks": 1.05}, **RACKS) for cc in ("cubic", "bbr")),
    Case("kernels", kind=KERNELS, sizes=(), peers=(),
         targets={"kernel": {"float32": 0.9, "float16": 0.8, "bfloat16": 0.8}}),
]
BY_NAME = {case.name: case for case in TABLE}


def closed_form_over_S(n, k, mixed):
    """The least time by (bytes / rate) where all links are equal: 2n(n-1) / (n^2 + kn - 2k) with a reducer on each
    worker's host beside k < n dedicated ones, n / k or 1 with k dedicated reducers alone."""
    return 2 * n * (n - 1) / (n * n + k * n - 2 * k) if mixed else max(1.0, n / k)


def size_text(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def rate_text(rate):
    """"250mbit" -> "250 Mbit/s"."""
    for unit in ("kbit", "mbit", "gbit"):
        rate = rate.replace(unit, f" {unit.capitalize()}/s")
    return rate
