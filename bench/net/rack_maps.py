# SPDX-License-Identifier: Apache-2.0
"""The cases racks-* of bench-net: which hosts are in which rack, the configurations of ours, and what links and uplinks
allow.

Ranks are numbered rack by rack. Hosts 0 to n-1 are the workers, the next ones the reducers of rack 0 (r0, r1, ...), of
rack 1 and so on, and at last the reducers at the spine. With `on_workers` each worker's host has another reducer.
Rack g is the group "rack<g>" of the configuration.
"""

import dataclasses
import json

import lab as net
import racks
from placement import PORT, Placement

FLAT = "flat"  # the configuration without groups


@dataclasses.dataclass
class Map:
    """Which reducer sums which shard. `homes` has the index of the home of each shard. `relays` has for each group the
    index of the relay of each shard, None for those that go straight home; None if no groups are declared. `lists` has
    the relays of each group if these relays are what the configuration means by such a list."""

    homes: list
    relays: list = None
    lists: list = None

    def sections(self):
        """Returns the sections of the configuration."""
        found = {"sharding": {"shards": len(self.homes), "map": ranges(self.homes)}}
        if self.lists:
            found["groups"] = [{"name": f"rack{g}", "relays": [f"r{j}" for j in of]} for g, of in enumerate(self.lists)]
        elif self.relays is not None:
            found["groups"] = [{"name": f"rack{g}"} | ({"relays": ranges(of)} if any(r is not None for r in of) else {})
                               for g, of in enumerate(self.relays)]
        return found


def ranges(owners):
    """[0, 0, 1, None, 0] -> {"0-1,4": "r0", "2": "r1"}."""
    found = {}
    for owner in sorted({o for o in owners if o is not None}):
        runs = []
        for shard in (s for s, o in enumerate(owners) if o == owner):
            if runs and runs[-1][1] == shard - 1:
                runs[-1][1] = shard
            else:
                runs.append([shard, shard])
        found[",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)] = f"r{owner}"
    return found


def deal(counts):
    """{"a": 2, "b": 1} -> ["a", "b", "a"]: each as often as stated, spread evenly."""
    turns = [((turn + 0.5) / count, at, owner) for at, (owner, count) in enumerate(counts.items())
             for turn in range(count)]
    return [owner for _, _, owner in sorted(turns)]


@dataclasses.dataclass
class Racks:
    """How the hosts of a case are joined. The workers of a rack together have `over` times the rate of its uplink."""

    count: int = 2
    over: float = 4
    each: int = 4  # reducers in each rack
    spine: int = 0  # reducers at the spine
    on_workers: bool = False
    rtt_ms: float = 0  # of two hosts in different racks
    systems: tuple = ("groups",)  # names in MAPS: ours is measured with these configurations, besides flat

    def worker_rack(self, rank, n):
        return rank * self.count // n

    def reducer_racks(self, n):
        """Returns the rack of each reducer, None at the spine."""
        found = [r for r in range(self.count) for _ in range(self.each)] + [None] * self.spine
        return found + ([self.worker_rack(rank, n) for rank in range(n)] if self.on_workers else [])

    def uplink_bits(self, n, rate):
        return n // self.count * rate / self.over


# The configurations. Each is a function of Racks and n that returns a Map. A new mixture of
# flat and relayed shards is a further function in MAPS, named in Racks.systems.


def weighted(of, n, dedicated, other):
    """Returns a Map in which a dedicated reducer is home of `dedicated` shards, one on a worker's host of `other`."""
    k = of.count * of.each + of.spine
    reducers = len(of.reducer_racks(n))
    return Map(deal({j: dedicated if j < k else other for j in range(reducers)}))


def relayed(of, n, homes, flat=0):
    """Adds relays: the reducers of each rack, each as often as it is home if it is; of each home's shards, `flat` go
    straight home from other racks too. Shards whose home is in the rack itself always do."""
    racks_of, each_home = of.reducer_racks(n), {j: homes.homes.count(j) for j in set(homes.homes)}
    turn, far = {j: 0 for j in each_home}, []
    for home in homes.homes:  # spreads the flat shards of a home over its shards
        turn[home] += 1
        far.append(turn[home] * flat // each_home[home] == (turn[home] - 1) * flat // each_home[home])
    relays, lists = [], []
    for g in range(of.count):
        shards = [s for s, home in enumerate(homes.homes) if racks_of[home] != g and far[s]]
        own = [j for j, r in enumerate(racks_of) if r == g]
        weights = {j: each_home.get(j, 1) for j in own}
        turns = deal({j: -(-len(shards) * w // sum(weights.values())) for j, w in weights.items()})
        chosen = dict(zip(shards, turns))
        relays.append([chosen.get(s) for s in range(len(homes.homes))])
        lists += [own] if not flat and len(set(weights.values())) == 1 else []
    return Map(homes.homes, relays, lists if len(lists) == of.count else None)


def flat_map(of, n):
    """Homes alternate over all reducers of the racks; with reducers at the spine, these are the only homes."""
    if of.spine:
        k = of.count * of.each
        return Map(deal({k + j: 60 // of.spine for j in range(of.spine)}))
    if of.on_workers:  # the best at 4:1: a worker's host relays 1/32 of what its rack reduces
        return weighted(of, n, 7, 1)
    return weighted(of, n, 8, 0)


def groups(of, n):
    """All shards of other racks are relayed."""
    return relayed(of, n, flat_map(of, n))


def declared(of, n):
    """Groups without relays."""
    homes = flat_map(of, n).homes
    return Map(homes, [[None] * len(homes)] * of.count)


def mixture_2to1(of, n):
    """6 of 14 shards go straight home: the busiest link and the uplinks need the same time at 2:1."""
    return relayed(of, n, weighted(of, n, 14, 0), 6)


def mixture_4to1(of, n):
    """1 of 13 shards goes straight home: the same at 4:1."""
    return relayed(of, n, weighted(of, n, 13, 0), 1)


MAPS = {FLAT: flat_map, "groups": groups, "declared": declared, "mixture-2to1": mixture_2to1,
        "mixture-4to1": mixture_4to1}


class RackPlacement(Placement):
    """Places ranks and reducers in racks. `name` is the configuration, in MAPS. All processes read one file, because
    reducers connect to each other."""

    server_file = "job.yaml"

    def __init__(self, case, name=FLAT):
        self.racks, self.bits = case.racks, net.parse_rate(case.rate)
        rate = net.payload_bits(self.bits)
        super().__init__(case.n, case.k, payload=[rate] * (case.n + case.k))
        if case.racks.on_workers:
            self.reducers += [(i, PORT) for i in range(case.n)]
        self.map = MAPS[name](case.racks, case.n)
        self.mixed = case.racks.on_workers

    def rack_of(self):
        """Returns the rack of each host, None at the spine."""
        return [self.racks.worker_rack(rank, self.n) for rank in range(self.n)] + \
            self.racks.reducer_racks(self.n)[:self.k]

    def make_lab(self, case, cc, build):
        return racks.RackLab(self.rack_of(), f"{self.racks.uplink_bits(self.n, self.bits) / 1e3:.3f}kbit",
                             uplink_delay_us=self.racks.rtt_ms * 500, rate=case.rate, queue_ms=case.queue_ms,
                             cc=cc, build=build)

    def yaml(self, address_of, sections=None):
        """As Placement.yaml(). The sections of the map are JSON, which YAML contains."""
        given, mine = dict(sections or {}), self.map.sections()
        mine["sharding"] |= given.pop("sharding", {})
        mine["server"] = {"insecure": True}
        return super().yaml(address_of, given) + "".join(f"{name}: {json.dumps(of)}\n" for name, of in mine.items())

    def environment(self, rank):
        return {"REDUCTION_GROUP": f"rack{self.racks.worker_rack(rank, self.n)}"} if self.map.relays else {}

    def uplink_per_S(self):
        """Returns what the busiest uplink carries each way, in units of S."""
        return max(self.loads()[1])

    def loads(self):
        """Returns what all links carry for S bytes, each way, in units of S: of hosts, and of uplinks."""
        homes, share = self.map.homes, 1 / len(self.map.homes)
        hosts, uplinks, rack_of = [0.0] * self.hosts, [0.0] * self.racks.count, self.rack_of()

        def flow(a, b):  # there and back: results take the way of contributions
            if a != b:
                hosts[a] += share
                hosts[b] += share
            if rack_of[a] != rack_of[b]:
                for r in (rack_of[a], rack_of[b]):
                    if r is not None:
                        uplinks[r] += share

        for s, home in enumerate(homes):
            relays = [of[s] for of in self.map.relays or [[None] * len(homes)] * self.racks.count]
            for w in self.workers:
                relay = relays[rack_of[w]]
                flow(w, self.reducers[home if relay is None else relay][0])
            for relay in relays:
                if relay is not None:
                    flow(self.reducers[relay][0], self.reducers[home][0])
        return hosts, uplinks

    def _seconds(self, size, host, uplink):
        """Returns the time that the busiest host's link and the busiest uplink need, whose loads are in units of S."""
        up = net.payload_bits(self.racks.uplink_bits(self.n, self.bits))
        return size * 8 * max(host / self.payload[0], uplink / up)

    def plan(self, build, size):
        """Returns the times that links and uplinks allow, for this map, a ring and a 2-D ring. It calculates them
        without `reductionctl plan`. Of ours the time includes a round trip between racks: the last contribution goes
        to another rack, and its result comes back."""
        hosts, uplinks = self.loads()
        ring, between = 2 * (self.n - 1) / self.n, 2 * (self.racks.count - 1) / self.racks.count
        return {"time_s": self._seconds(size, max(hosts), max(uplinks)) + self.racks.rtt_ms / 1e3,
                "ring_s": self._seconds(size, ring, ring),
                "ring_2d_s": self._seconds(size, ring, between)}
