# SPDX-License-Identifier: Apache-2.0
"""A laboratory with racks: as lab.Lab, but hosts are joined to the switch of their rack, and racks by uplinks to one
spine switch.

  * Each switch is a bridge in a namespace of its own: r0, r1, ... for the racks, sw for the spine. A host whose rack is
    None is joined to the spine itself.
  * An uplink is a veth pair between a rack's switch and the spine. Both ends have a token bucket as switch ports have:
    `uplink` is the rate each way, `uplink_queue_ms` the queue at that rate, in which a packet is dropped that finds it
    full. So the ports of hosts and both ends of the uplink are queues of their own.
  * Super-packets of all hosts are at most half of the shortest queue, uplinks included (see lab.py).
  * With a delay, packets from the spine to a rack leave by a tap device, and delay_line.c carries them to the rack's
    switch. Each packet between two racks waits once, so a round trip takes two delays.
  * uplinks() reads the token buckets of both ends. They count packets that have left the queue, with all headers as on
    a wire, and super-packets as the packets they stand for. TCP payload is that without HEADERS of each packet;
    acknowledgements have none. Interface counters would not do: they count a super-packet as one packet.
"""

import lab
from lab import LabError


class RackLab(lab.Lab):
    """`rack_of` has the rack of each host, 0, 1, ... or None. Further arguments are those of Lab, without delays of
    hosts and without losses."""

    def __init__(self, rack_of, uplink, uplink_queue_ms=None, uplink_delay_us=0, **more):
        super().__init__(len(rack_of), **more)
        self.racks = max((r for r in rack_of if r is not None), default=-1) + 1
        if not self.racks or set(range(self.racks)) - set(rack_of):
            raise LabError(f"racks: found {rack_of}, expected a host in each rack from 0 on", 2)
        self.rack_of, self.uplink = list(rack_of), lab.parse_rate(uplink)
        if not self.uplink:
            raise LabError("uplink: found none, expected a rate", 2)
        self.uplink_queue_ms = uplink_queue_ms or self.queue_ms
        if uplink_delay_us and not 1 <= uplink_delay_us <= 1e6:
            raise LabError("the delay of an uplink is 0 or 1 to 1000000 us", 2)
        self.uplink_delay_us = uplink_delay_us
        self._introduces = True
        if uplink_delay_us:
            self._behind_tap = {i for i in range(self.hosts) if rack_of[i] is not None}

    def _rack(self, r):
        return f"{self.prefix}r{r}"

    def _switch(self, i):
        return super()._switch(i) if self.rack_of[i] is None else self._rack(self.rack_of[i])

    def _uplink_queue(self):
        return int(self.uplink / 8e3 * self.uplink_queue_ms)

    def _segments(self, queue):
        return super()._segments(min(queue, self._uplink_queue()))

    def _down(self, r):
        """Returns the spine's port from which packets go to rack r."""
        return f"d{r}" if self.uplink_delay_us else f"u{r}"

    def start(self):
        if self.uplink_delay_us:
            lab.check_delay(self.build)
        super().start()

    def _make_switch(self):
        super()._make_switch()
        for r in range(self.racks):
            self._make_bridge(self._rack(r))
        if self.uplink_delay_us:
            self._delay({self._rack(r): self.uplink_delay_us for r in range(self.racks)})
        for r in range(self.racks):
            self._make_uplink(r)

    def _make_uplink(self, r):
        spine, rack, queue = f"{self.prefix}sw", self._rack(r), self._uplink_queue()
        segments = self._segments(queue)
        lab.call(["ip", "-n", spine, "-batch", "-"],
                 f"link add u{r} type veth peer name out netns {rack}\n"
                 f"link set u{r} gso_max_segs {segments} master br0\nlink set u{r} up\n")
        lab.call(["ip", "-n", rack, "link", "set", "out", "gso_max_segs", str(segments), "master", "br0", "up"])
        if self.uplink_delay_us:
            self._lead_rack_through_delay(r, segments)
        self._shape(spine, self._down(r), self.uplink, queue, segments)
        self._shape(rack, "out", self.uplink, queue, segments)

    def _lead_rack_through_delay(self, r, segments):
        """Leads packets to rack r through delay-line: its hosts are at the spine's port d<r>, all others at the rack's
        port "out". Neither switch floods these ports or learns from what arrives at the other end."""
        spine, rack = f"{self.prefix}sw", self._rack(r)
        lab.call(["ip", "-n", spine, "link", "set", f"d{r}", "gso_max_segs", str(segments), "master", "br0", "up"])
        lab.call(["ip", "-n", rack, "link", "set", "in0", "master", "br0", "up"])
        quiet = "learning off flood off mcast_flood off bcast_flood off\n"
        inside = [i for i in range(self.hosts) if self.rack_of[i] == r]
        lab.call(["bridge", "-n", spine, "-batch", "-"],
                 f"link set dev u{r} {quiet}link set dev d{r} {quiet}" +
                 "".join(f"fdb add {self._hardware(i)} dev d{r} master static\n" for i in inside))
        lab.call(["bridge", "-n", rack, "-batch", "-"],
                 f"link set dev out {quiet}link set dev in0 {quiet}" +
                 "".join(f"fdb add {self._hardware(i)} dev out master static\n"
                         for i in range(self.hosts) if i not in inside))

    def uplinks(self):
        """Returns a dict for each rack: up and down, bytes with all headers from and to the rack; up_payload and
        down_payload, bytes without the headers of Ethernet, IP and TCP; dropped, packets that found a queue full."""
        rows, spine = [], self._link_counters(f"{self.prefix}sw", None)
        for r in range(self.racks):
            up, down = self._link_counters(self._rack(r), None)["out"], spine[self._down(r)]
            rows.append({"up": up["bytes"], "down": down["bytes"], "dropped": up["drops"] + down["drops"],
                         "up_payload": up["bytes"] - lab.HEADERS * up["packets"],
                         "down_payload": down["bytes"] - lab.HEADERS * down["packets"]})
        return rows
