#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A network of N hosts inside this machine: network namespaces, each joined by a veth pair to one bridge, which sits
in a namespace of its own. Nothing outside these namespaces is touched, and addresses (10.99.0.0/16) exist only inside.

The happy path is: `with Lab(8, rate="1gbit", queue_ms=5) as lab: lab.run(0, ["ping", ...])`. Leaving the block ends
the processes in the hosts and deletes the namespaces with their links and queues. Failure modes are: an exception or a
signal (the same cleanup), a program of the lab that outlives its host (ended with the namespace), and SIGKILL of this
process. Then the kernel sends SIGTERM to its programs and its namespaces stay; the next Lab or `netlab clean` removes
them, because the lock of their owner is free.

How the links are shaped, with the reasons:
  * Both ends of each veth pair have a token bucket (tbf). The one on the bridge's side is the switch's port: its queue
    is `queue_ms` long at the link's rate; a packet that finds it full is dropped, as in a switch. The one on the host's
    side is the host's own interface: it holds 1,000 full packets, as Linux's default queue does.
  * tbf counts what a wire would carry: each packet of at most 1,514 bytes with its Ethernet, IP and TCP headers, also
    when the kernel handles several at once. A plain TCP flow on a 1 Gbit/s link therefore carries 1448/1514 of 125
    MB/s = 119.6 MB/s, as the frames of this length would.
  * Linux hands TCP's data on in super-packets of up to 64 KiB, and a real interface cuts them into packets. Cutting
    them here would cost more CPU time than two cores have: 8 flows of 1 Gbit/s, measured, fall from 113 MB/s each to 8
    with single packets, to 50 with 10 packets to a super-packet, and the incast traffic of 4 workers and 4 reducers
    loses half of its speed with 22. So super-packets are not cut. This makes loss coarser: a full queue drops up to
    44 packets at once. In short queues (gso_max_segs) a super-packet is at most half of the queue, but not below
    SUPER_MIN packets.
  * The bucket of tbf holds one super-packet, because tbf cuts larger ones. A packet in a full queue waits `queue_ms`:
    the bucket is empty then and adds nothing.
  * With a delay, packets to a host leave the switch by a port of their own, a tap device, and delay_line.c carries
    super-packets from there to a second interface of the host. What the host sends takes the veth pair. So a packet
    waits between the switch's port and the host, and a round trip takes two delays. delay_line copies each byte twice,
    which netem, if the kernel had it, would not do. Hosts know the hardware addresses of all others from the start.
  * Congestion control is the machine's default for new namespaces unless `cc` names another; it is set on the hosts'
    routes, which needs no change outside the lab.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

NETNS = pathlib.Path("/run/netns")
LOCKS = pathlib.Path("/run/netlab")
PREFIX = "rsl"
NETWORK = "10.99.0.0/16"
MTU = 1500
FRAME = MTU + 14  # bytes that tbf counts for a full packet: Ethernet's header without checksum, preamble and gap
HEADERS = 14 + 20 + 32  # bytes of Ethernet, IPv4 and TCP with time stamps: of each packet with data
SUPER, SUPER_MIN = 44, 24  # packets in one super-packet, at most (64 KiB) and at least
HOST_QUEUE = 1000 * FRAME
MAX_HOSTS = 250
NO_IPV6 = {"net/ipv6/conf/all/disable_ipv6": 1, "net/ipv6/conf/default/disable_ipv6": 1}


class LabError(Exception):
    """An error whose text is for the user. `code` is the exit status."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


CANNOT_RUN_HERE = 77  # exit status: not root, or the kernel lacks something; nothing was changed


def parse_rate(text):
    """"1gbit", "250mbit", "64kbit" -> bits per second; "none" -> None: not shaped."""
    if text == "none":
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", text)
    if not found or float(found[1]) <= 0:
        raise LabError(f'rate: found "{text}", expected a number with kbit, mbit or gbit such as 1gbit, or none', 2)
    return int(float(found[1]) * {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}[found[2]])


def payload_bits(rate):
    """Returns the bound that headers set: bit/s of TCP payload on a link of `rate` bit/s."""
    return rate * (MTU - 52) / FRAME


def call(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def check_machine():
    """Raises LabError(CANNOT_RUN_HERE) if this machine cannot make a lab."""
    if os.geteuid() != 0:
        raise LabError("making network namespaces needs root: run this with sudo", CANNOT_RUN_HERE)
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            raise LabError(f"the program {tool} is missing: install the package iproute2", CANNOT_RUN_HERE)
    prefix = f"{PREFIX}{os.getpid()}"
    with _own(prefix):
        try:
            _probe(f"{prefix}t")
        finally:
            (LOCKS / prefix).unlink()


def _own(prefix, wait=True):
    """Takes the lock of all namespaces of this prefix. Returns the open file, or None if another process holds it and
    wait is False. Only the holder of the lock removes the file, so a lock on a removed file is taken again on the new
    one."""
    LOCKS.mkdir(exist_ok=True)
    while True:
        lock = open(LOCKS / prefix, "a", encoding="ascii")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.path.exists(lock.name) and os.path.samestat(os.stat(lock.name), os.fstat(lock.fileno())):
                return lock
        except BlockingIOError:
            lock.close()
            return None
        except FileNotFoundError:
            pass
        lock.close()


def _probe(probe):
    """Makes a namespace with a shaped link, and removes it."""
    try:
        call(["ip", "netns", "add", probe])
    except LabError as e:
        raise LabError(f"this machine does not let root make network namespaces ({e})", CANNOT_RUN_HERE) from e
    try:
        call(["ip", "-n", probe, "link", "add", "v0", "type", "veth", "peer", "name", "v1"])
        call(["tc", "-n", probe, "qdisc", "add", "dev", "v0", "root", "tbf", "rate", "1gbit", "burst", "32k",
               "limit", "64k"])
    except LabError as e:
        raise LabError(f"this kernel cannot make veth and tbf: {e}", CANNOT_RUN_HERE) from e
    finally:
        subprocess.run(["ip", "netns", "del", probe], check=False)


def check_neighbours(hosts):
    """Raises LabError(CANNOT_RUN_HERE) if half of the hosts cannot reach the other half: the kernel has one neighbour
    table for all of them, and drops packets if the table is too small."""
    room = int(pathlib.Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3").read_text(encoding="ascii"))
    if hosts * hosts / 2 > room:
        raise LabError(f"hosts: {hosts} of them need {hosts * hosts // 2} entries in the kernel's table of neighbours, "
                       f"which has room for {room}: sysctl -w net.ipv4.neigh.default.gc_thresh3={hosts * hosts}",
                       CANNOT_RUN_HERE)


def check_delay(build):
    """Raises LabError(CANNOT_RUN_HERE) if links cannot be delayed."""
    if not os.path.exists("/dev/net/tun"):
        raise LabError("this machine has no /dev/net/tun, from which links with delay are made", CANNOT_RUN_HERE)
    if not _delay_line(build).exists():
        raise LabError(f"{_delay_line(build)} was not built; links with delay need it", CANNOT_RUN_HERE)


def _delay_line(build):
    return pathlib.Path(build).resolve() / "bench/delay-line"


def _end_namespace(name):
    """Ends the processes inside a namespace and deletes it."""
    _end_inside(name)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _end_inside(name):
    """Ends the processes inside a namespace."""
    for sig, wait_s in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 1.0)):
        deadline = time.monotonic() + wait_s
        while True:
            inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            if not inside or time.monotonic() > deadline:
                break
            for pid in inside:
                try:
                    os.kill(int(pid), sig)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)


def _namespaces_of(prefix):
    try:
        names = sorted(os.listdir(NETNS))
    except FileNotFoundError:
        return []
    return [n for n in names if re.fullmatch(re.escape(prefix) + r"(h\d+|r\d+|sw|t)", n)]


def clean():
    """Removes namespaces of labs whose process has ended. Returns the names of the removed namespaces."""
    removed = []
    try:
        names = os.listdir(NETNS)
    except FileNotFoundError:
        return removed
    for prefix in sorted({m[1] for m in (re.fullmatch(rf"({PREFIX}\d+)(?:h\d+|r\d+|sw|t)", n) for n in names) if m}):
        lock = _own(prefix, wait=False)
        if not lock:
            continue  # its owner runs
        with lock:
            for name in _namespaces_of(prefix):
                _end_namespace(name)
                removed.append(name)
            (LOCKS / prefix).unlink()
    return removed


@contextlib.contextmanager
def only_one_measures():
    """Holds a lock while the block runs: two measurements at the same time would disturb each other. Labs without
    measurement may run at the same time; they only share the machine's cores."""
    try:
        LOCKS.mkdir(exist_ok=True)
        lock = open(LOCKS / "measuring", "a+", encoding="ascii")
    except PermissionError:
        raise LabError(f"{LOCKS} cannot be written: measuring needs root: run this with sudo",
                       CANNOT_RUN_HERE) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise LabError(f"process {lock.read().strip() or '(unknown)'} measures on this machine already, and both "
                           "results would be wrong: wait until it has ended") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def _child_setup():
    """Runs in a child, before exec: the child ends with this process."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Lab:
    """N hosts. `rates` (host -> rate) and `queue_ms` shape the links; `delay_us` is added on the way to each host, or,
    if it is a dict, to those that it names, by the delay-line of the folder `build`. With `loss`, (host, n), it also
    loses every n-th super-packet with data to and from that host; with `random_loss`, n, each packet with data to any
    host with the chance 1/n.

    Invariant: `hosts` namespaces h0.. and the switch exist between start() and stop(), and `_children` holds every
    process started and not yet waited for.
    """

    def __init__(self, hosts, rate="1gbit", queue_ms=5.0, rates=None, delay_us=0.0, cc=None,
                 build="build/default", loss=None, random_loss=None):
        if not 1 <= hosts <= MAX_HOSTS:
            raise LabError(f"hosts: found {hosts}, expected 1 to {MAX_HOSTS}", 2)
        delays = delay_us if isinstance(delay_us, dict) else {i: delay_us for i in range(hosts) if delay_us}
        if queue_ms <= 0 or not all(1 <= delay <= 1e6 for delay in delays.values()):
            raise LabError("the queue is longer than 0 ms, and the delay is 0 or 1 to 1000000 us", 2)
        for host in rates or {}:
            if not 0 <= host < hosts:
                raise LabError(f"host rate: found host {host}, expected 0 to {hosts - 1}", 2)
        self.hosts = hosts
        self.rate = [parse_rate((rates or {}).get(i, rate)) for i in range(hosts)]
        self.queue_ms = queue_ms
        self.delays = delays
        self.build = build
        self.loss = ["--loss", f"{loss[0]}:{loss[1]}"] if loss else []
        self.loss += ["--random-loss", str(random_loss)] if random_loss else []
        self.cc = cc
        self.prefix = f"{PREFIX}{os.getpid()}"
        self._children = []
        self._lock = None
        self._nowhere = None  # a hardware address that no host has
        self._introduces = bool(delays)  # hosts know each other's hardware addresses
        self._behind_tap = set(delays)  # hosts whose packets come from a tap device

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def namespace(self, i):
        return f"{self.prefix}h{i}"

    @staticmethod
    def address(i):
        return f"10.99.0.{i + 1}"

    def start(self):
        check_machine()
        check_neighbours(self.hosts)
        if self.delays:
            check_delay(self.build)
        clean()
        self._lock = _own(self.prefix)
        try:
            self._make_switch()
            for i in range(self.hosts):
                self._make_namespace(i)
            if self.delays:
                self._start_delay_line()
            for i in range(self.hosts):
                self._make_host(i)
        except BaseException:
            self.stop()
            raise

    def _switch(self, _i):
        """Returns the namespace of the switch to which host i is joined."""
        return f"{self.prefix}sw"

    def _make_switch(self):
        self._make_bridge(f"{self.prefix}sw")

    def _make_bridge(self, switch):
        call(["ip", "netns", "add", switch])
        self._sysctl(switch, NO_IPV6)
        if os.path.exists("/proc/sys/net/bridge"):  # a switch has no packet filter
            self._sysctl(switch, {"net/bridge/bridge-nf-call-iptables": 0})
        call(["ip", "-n", switch, "-batch", "-"],
              "link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\nlink set br0 up\n")

    def _make_namespace(self, i):
        ns = self.namespace(i)
        call(["ip", "netns", "add", ns])
        # the same for every measured system; a run must not reuse TCP metrics of an
        # earlier one
        self._sysctl(ns, NO_IPV6 | {"net/ipv4/tcp_no_metrics_save": 1, "net/ipv4/tcp_rmem": "4096 131072 6291456",
                                    "net/ipv4/tcp_wmem": "4096 16384 4194304", "net/ipv4/conf/all/rp_filter": 0,
                                    "net/ipv4/conf/default/rp_filter": 0})

    def _start_delay_line(self):
        """Makes the delayed way to each host, two tap devices, and starts delay-line."""
        self._delay({self.namespace(i): delay for i, delay in self.delays.items()})

    def _delay(self, delays):
        """Starts delay-line for the namespaces that `delays` names."""
        hosts = [f"{delay:.0f}:{NETNS / name}" for name, delay in delays.items()]
        command = [_delay_line(self.build), *self.loss, NETNS / f"{self.prefix}sw", *hosts]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, text=True, preexec_fn=_child_setup)
        self._children.append(child)
        if child.stdout.readline() != "ready\n":
            raise LabError("the delay line did not start: see its line above", CANNOT_RUN_HERE)

    def _make_host(self, i):
        ns, switch, rate = self.namespace(i), self._switch(i), self.rate[i]
        queue = int(rate / 8e3 * self.queue_ms) if rate else 0
        segments = self._segments(queue) if rate else 65535
        delayed = f"link set d{i} gso_max_segs {segments} master br0\nlink set d{i} up\n" if i in self.delays else ""
        call(["ip", "-n", switch, "-batch", "-"],
              f"link add p{i} type veth peer name eth0 netns {ns}\n"
              f"link set p{i} gso_max_segs {segments} master br0\nlink set p{i} up\n{delayed}")
        cc = f"congctl {self.cc}" if self.cc else ""
        call(["ip", "-n", ns, "-batch", "-"],
              f"link set lo up\naddr add {self.address(i)}/32 dev eth0\nlink set eth0 gso_max_segs {segments} up\n"
              f"route add {NETWORK} dev eth0 src {self.address(i)} {cc}\n")
        if self._introduces:
            self._introduce(i)
        if i in self.delays:
            self._lead_through_delay(i)
        if rate:
            self._shape(switch, self._port(i), rate, queue, segments)
            self._shape(ns, "eth0", rate, HOST_QUEUE, segments)

    def _segments(self, queue):
        """Returns how many packets a super-packet of a host has at most, whose port has a queue of so many bytes."""
        return min(max(queue // 2 // FRAME, SUPER_MIN), SUPER)

    def _port(self, i):
        """Returns the switch's port from which packets go to host i."""
        return f"d{i}" if i in self.delays else f"p{i}"

    @staticmethod
    def _hardware(i):
        """Returns the hardware address of host i in a lab with delays or racks; delay-line finds i in it."""
        return f"02:52:53:4c:{i >> 8:02x}:{i & 255:02x}"

    def _introduce(self, i):
        """Gives host i its hardware address, and those of all others: answers to its questions would reach the wrong
        interface."""
        neighbours = "".join(f"neigh replace {self.address(j)} lladdr {self._hardware(j)} dev eth0 nud permanent\n"
                             for j in range(self.hosts) if j != i)
        call(["ip", "-n", self.namespace(i), "-batch", "-"],
              f"link set eth0 address {self._hardware(i)}\n{neighbours}")

    def _lead_through_delay(self, i):
        """Leads packets to host i through delay-line: the switch has learnt that the host is at that port, and the host
        takes them there."""
        call(["ip", "-n", self.namespace(i), "link", "set", "in0", "address", self._hardware(i), "up"])
        call(["bridge", "-n", f"{self.prefix}sw", "-batch", "-"],
              f"link set dev p{i} learning off\n"
              f"link set dev d{i} learning off flood off mcast_flood off bcast_flood off\n"
              f"fdb add {self._hardware(i)} dev d{i} master static\n")

    def set_rate(self, i, rate):
        """Changes the rate of the link of host i while it carries data; "none": it is not shaped any more."""
        was, self.rate[i] = self.rate[i], parse_rate(rate)
        switch, ns = self._switch(i), self.namespace(i)
        if not self.rate[i]:
            for of, dev in ((switch, self._port(i)), (ns, "eth0")):
                call(["tc", "-n", of, "qdisc", "del", "dev", dev, "root"])
            return
        queue = int(self.rate[i] / 8e3 * self.queue_ms)
        segments = self._segments(queue) if was else SUPER
        how = "change" if was else "add"
        self._shape(switch, self._port(i), self.rate[i], queue, segments, how)
        self._shape(ns, "eth0", self.rate[i], HOST_QUEUE, segments, how)

    def ports(self, i, j):
        """Returns the ports from which host i has connections to host j."""
        out = call(["ip", "netns", "exec", self.namespace(i), "ss", "-Htn", "dst", self.address(j)])
        return [line.split()[3].rpartition(":")[2] for line in out.splitlines()]

    def set_path_rate(self, i, j, rate, ports=None):
        """Limits what host i sends to host j, within its link, which is shaped; None: no longer. With `ports`, only
        what it sends from these ports."""
        ns, segments = self.namespace(i), SUPER
        if rate is None:
            self._shape(ns, "eth0", self.rate[i], HOST_QUEUE, segments, "replace")
            return
        for command in ("qdisc replace dev eth0 root handle 2: htb default 1",
                        f"class add dev eth0 parent 2: classid 2:1 htb rate {self.rate[i]}bit quantum 65536",
                        f"class add dev eth0 parent 2: classid 2:2 htb rate {parse_rate(rate)}bit quantum 65536",
                        *[f"filter add dev eth0 parent 2: protocol ip u32 match ip dst {self.address(j)}/32 {only} "
                          "flowid 2:2" for only in ([f"match ip sport {p} 0xffff" for p in ports] if ports else [""])]):
            call(["tc", "-n", ns, *command.split()])

    @staticmethod
    def _shape(ns, dev, rate, queue, segments, how="add"):
        burst = segments * FRAME
        call(["tc", "-n", ns, "qdisc", how, "dev", dev, "root", "handle", "1:", "tbf", "rate", f"{rate}bit",
               "burst", str(burst), "limit", str(max(queue, burst))])

    @staticmethod
    def _sysctl(ns, values):
        lines = "".join(f"echo {v} >/proc/sys/{k}\n" for k, v in values.items())
        call(["ip", "netns", "exec", ns, "sh", "-e"], lines)

    def stop(self):
        """Ends everything; never raises for what has ended already. Signals are blocked meanwhile, because a second
        Ctrl-C would leave a part of it behind."""
        waiting = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        try:
            self._stop()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, waiting)

    def _stop(self):
        for child in self._children:
            if child.poll() is None:
                child.terminate()
        for name in _namespaces_of(self.prefix):
            _end_namespace(name)
        for child in self._children:
            child.wait()
        self._children = []
        if self._lock:
            (LOCKS / self.prefix).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def popen(self, i, command, **kwargs):
        """Starts a command in host i, whose host name is h<i>; returns subprocess.Popen. Its pid is that of the command
        itself, so CPU time can be read from it."""
        self._children = [c for c in self._children if c.poll() is None]
        inside = ["ip", "netns", "exec", self.namespace(i), "unshare", "--uts", "sh", "-c",
                  'hostname "$0" && exec "$@"', f"h{i}", *map(str, command)]
        child = subprocess.Popen(inside, preexec_fn=_child_setup, **kwargs)
        self._children.append(child)
        return child

    def sweep(self):
        """Ends all processes in the hosts, for example children of a program that was ended."""
        for i in range(self.hosts):
            _end_inside(self.namespace(i))

    def run(self, i, command, timeout=60):
        """Runs a command in host i; returns its output. Raises LabError if it fails or exceeds the time limit."""
        child = self.popen(i, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end(child)
            raise LabError(f"host {i}: {' '.join(map(str, command))}: not done after {timeout} s") from None
        if child.returncode:
            raise LabError(f"host {i}: {' '.join(map(str, command))}: exit status {child.returncode}: {err.strip()}")
        return out

    def cut(self, i, j):
        """Drops all packets from host i to host j, without an error to either of them, until mend(i, j)."""
        if not self._nowhere:
            (bridge,) = json.loads(call(["ip", "-n", f"{self.prefix}sw", "-j", "link", "show", "br0"]))
            # the switch drops packets to its own hardware address, and has no IP address
            # to answer from
            self._nowhere = bridge["address"]
        command = ["ip", "-n", self.namespace(i), "neigh", "replace", self.address(j), "lladdr", self._nowhere]
        call([*command, "dev", "eth0",
               "nud", "permanent"])

    def mend(self, i, j):
        """Lets packets from host i to host j pass again."""
        how = ["replace", self.address(j), "lladdr", self._hardware(j), "nud", "permanent"] if self._introduces else \
            ["del", self.address(j)]
        call(["ip", "-n", self.namespace(i), "neigh", *how, "dev", "eth0"])

    def plug(self, i, is_in):
        """Pulls the cable of host i out of the switch, or puts it back."""
        for port in {f"p{i}", self._port(i)}:
            call(["ip", "-n", self._switch(i), "link", "set", port, "up" if is_in else "down"])

    def counters(self):
        """Returns a dict for each host: tx and rx, bytes with all headers as on a wire; tx_packets and rx_packets;
        tx_payload and rx_payload, bytes without the headers of Ethernet, IP and TCP; dropped, packets that the switch
        dropped on their way to the host. The queues at both ends count if the link is shaped, else the interface, where
        a super-packet counts as one packet."""
        switches = {name: self._link_counters(name, None) for name in {self._switch(i) for i in range(self.hosts)}}
        rows = []
        for i in range(self.hosts):
            own = self._link_counters(self.namespace(i), "in0" if i in self.delays else "eth0")
            port = switches[self._switch(i)][self._port(i)]
            row = {"tx": own["eth0"]["bytes"], "rx": port["bytes"], "tx_packets": own["eth0"]["packets"],
                   "rx_packets": port["packets"], "dropped": port["drops"]}
            row["tx_payload"] = row["tx"] - HEADERS * row["tx_packets"]
            row["rx_payload"] = row["rx"] - HEADERS * row["rx_packets"]
            if i in self._behind_tap:  # the port's queue cannot count packets of traffic from a tap device
                row["rx_payload"] = own["received"]["bytes"] - HEADERS * own["received"]["packets"]
            rows.append(row)
        return rows

    def uplinks(self):
        """Returns the counters of the uplinks: there are none, see racks.py."""
        return []

    @staticmethod
    def _link_counters(ns, receives):
        """Returns what each interface of a namespace has sent, from its queue, or from the interface if it has none;
        and what the interface `receives` has received ("received"), with super-packets as one packet."""
        found = {}
        for link in json.loads(call(["ip", "-n", ns, "-s", "-j", "link", "show"])):
            tx, rx = link["stats64"]["tx"], link["stats64"]["rx"]
            found[link["ifname"]] = {"bytes": tx["bytes"], "packets": tx["packets"], "drops": tx["dropped"]}
            if link["ifname"] == receives:
                found["received"] = {"bytes": rx["bytes"], "packets": rx["packets"]}
        for qdisc in json.loads(call(["tc", "-n", ns, "-s", "-j", "qdisc", "show"])):
            if qdisc.get("kind") == "tbf":
                found[qdisc["dev"]] = {k: qdisc[k] for k in ("bytes", "packets", "drops")}
        return found


def counters_between(before, after):
    """Returns the difference of two results of Lab.counters()."""
    return [{k: b[k] - a[k] for k in a} for a, b in zip(before, after)]


def end(child, wait_s=2.0):
    """Ends one child of popen()."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            child.send_signal(sig)
        try:
            child.communicate(timeout=wait_s)
            return
        except subprocess.TimeoutExpired:
            pass


def cpu_seconds(pid):
    """Returns user and system time of a running process: from the scheduler, in nanoseconds, for its threads, if the
    kernel has that; else of the process in clock ticks of 10 ms, which are coarse for a short launch."""
    try:
        total = 0
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
        return total / 1e9
    except FileNotFoundError:
        pass
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
