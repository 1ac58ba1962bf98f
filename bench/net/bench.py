#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce over shaped links: ours and its peers in the same laboratory, launch by launch in turn.

Without options it runs the quick table (under 10 minutes); --full runs it with more sizes, peers and repeats; --n and
--k run one case of your own. Each number is the median over launches, with the smallest and the largest beside it;
a launch's number is size / average time of an operation, and an operation takes as long as its slowest rank.

Exit status: 0 good; 1 an error or a wrong sum; 2 wrong usage; 77 this machine cannot make the laboratory.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import signal
import statistics
import sys
import time

import lab as net
import plot
import systems

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RINGS = ["gloo", "ompi-ring"]
SAMPLE_S, CALM = 0.4, 0.85  # cores are called idle when idle for this share of this time
EVERY = ["gloo", "ompi-ring", "ompi", "mpich"]


@dataclasses.dataclass
class Case:
    """A row of the table: a laboratory, sizes, and who runs in it."""

    name: str
    n: int
    k: int
    rate: str = "1gbit"
    queue_ms: float = 5
    delay_ms: float = 0
    sizes: tuple = (4 * MIB, 16 * MIB)
    peers: tuple = tuple(RINGS)
    mixed: bool = False
    dedicated_too: bool = False  # beside mixed: the same with the dedicated reducers alone
    loopback: bool = False
    half: bool = False  # the first reducer's link has half the rate; weights follow from the rates
    only_full: bool = False
    sizes_full: tuple = None

    def rates(self):
        """Host -> rate, for those that differ."""
        return {self.n: f"{net.parse_rate(self.rate) / 2e3:g}kbit"} if self.half else {}

    def placement(self, mixed):
        weights = [1] + [2] * (self.k - 1) if self.half else None
        return systems.Placement(self.n, self.k, mixed, self.loopback, weights)

    def bound_MBps(self, place):
        """The most that headers, links and the placement allow; None when nothing is shaped."""
        rate = net.parse_rate(self.rate)
        if not rate:
            return None
        if self.half and not self.mixed:  # the linear program of dedicated reducers: sum of the rates over n
            return net.payload_MBps(rate) * min(1, (self.k - 0.5) / self.n)
        return net.payload_MBps(rate) / place.bound()

    def ring_MBps(self):
        rate = net.parse_rate(self.rate)
        return net.payload_MBps(rate) * self.n / (2 * (self.n - 1)) if rate and self.n > 1 else None


ALL_SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
TABLE = [
    Case("n4", 4, 4, sizes=(MIB, 4 * MIB, 16 * MIB, 64 * MIB), peers=tuple(EVERY + ["bare-loop"]),
         sizes_full=ALL_SIZES),
    Case("n8", 8, 8, rate="250mbit", peers=tuple(EVERY)),
    Case("queue-1ms", 4, 4, queue_ms=1),
    Case("queue-50ms", 4, 4, queue_ms=50),
    Case("delay-200us", 4, 4, delay_ms=0.2),
    Case("delay-2ms", 4, 4, delay_ms=2),
    Case("mixed", 6, 2, rate="250mbit", sizes=(16 * MIB,), mixed=True, dedicated_too=True),
    Case("half", 4, 4, sizes=(16 * MIB,), half=True),
    Case("scale-2", 2, 2, rate="250mbit", sizes=(4 * MIB,)),
    Case("scale-4", 4, 4, rate="250mbit", sizes=(4 * MIB,)),
    Case("scale-6", 6, 6, rate="250mbit", sizes=(4 * MIB,), only_full=True),
    Case("loopback", 4, 2, rate="none", sizes=(4 * KIB, MIB, 16 * MIB), loopback=True,
         peers=("gloo", "ompi-ring", "ompi"), sizes_full=(4 * KIB,) + ALL_SIZES),
]


def parse_size(text):
    """"8MiB", "64K", "4096" -> bytes."""
    units = {"K": KIB, "M": MIB, "G": GIB}
    number = text.removesuffix("iB").removesuffix("B")
    unit = units.get(number[-1:].upper(), 1)
    number = number[:-1] if unit > 1 else number
    if not number.isdigit() or int(number) == 0 or int(number) * unit % 4:
        raise argparse.ArgumentTypeError(f'found "{text}", expected sizes such as 64KiB,8MiB, multiples of 4 bytes')
    return int(number) * unit


def comma_list(of):
    def parse(text):
        return [of(word) for word in text.split(",") if word]
    return parse


def parse_arguments():
    p = argparse.ArgumentParser(prog="bench-net", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--full", action="store_true", help="more sizes, all peers in every case, 7 repeats")
    p.add_argument("--cases", type=comma_list(str), help="of the table: " + ",".join(c.name for c in TABLE))
    one = p.add_argument_group("one case of your own (with --n)")
    one.add_argument("--n", type=int, help="workers")
    one.add_argument("--k", type=int, help="reducers (default: as many as workers)")
    one.add_argument("--rate", default="1gbit", help="of every link, both ways; none: not shaped (default %(default)s)")
    one.add_argument("--queue-ms", type=float, default=5, help="a switch port's queue (default %(default)s)")
    one.add_argument("--delay-ms", type=float, default=0, help="more delay on the way to each host (needs netem)")
    one.add_argument("--mixed", action="store_true", help="reducers on the workers' hosts too; dedicated alone beside")
    one.add_argument("--half", action="store_true", help="one reducer's link at half the rate, weights from the rates")
    one.add_argument("--loopback", action="store_true", help="everything in one host, over lo, not shaped")
    p.add_argument("--bytes", type=comma_list(parse_size), help="sizes, such as 64KiB,8MiB")
    p.add_argument("--peers", type=comma_list(str), help="of " + ",".join(systems.peers()) + ", or none")
    p.add_argument("--ours", type=comma_list(str), default="default",
                   help="settings of ours: default, none, or WINDOWxCHUNK such as 2x32K (default %(default)s)")
    p.add_argument("--repeats", type=int, help="launches of each system and size (default 3; 7 with --full)")
    p.add_argument("--minutes", type=float, help="start no further pass over a case after so long (default 8; "
                   "no end with --full)")
    p.add_argument("--seconds", type=float, help="of timed operations, for each launch (default 0.8; 4 with --full)")
    p.add_argument("--calm", type=float, default=0, metavar="SECONDS", help="before each launch wait until the cores "
                   "are idle, at most so long (default: do not wait)")
    p.add_argument("--cc", help="congestion control, such as cubic (default: the machine's)")
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--out", default="build/bench", help="folder for net.jsonl and plots (default %(default)s)")
    args = p.parse_args()
    if args.n is None and (args.k is not None or args.mixed or args.half or args.loopback):
        p.error("--k, --mixed, --half and --loopback describe a case of your own: give --n too")
    if args.n is not None and (args.n < 1 or (args.k is not None and args.k < 1)):
        p.error("--n and --k are 1 or more")
    for name in args.cases or []:
        if name not in [c.name for c in TABLE]:
            p.error(f'--cases: found "{name}", expected some of {",".join(c.name for c in TABLE)}')
    for name in args.peers or []:
        if name != "none" and name not in systems.peers():
            p.error(f'--peers: found "{name}", expected some of {",".join(systems.peers())}, or none')
    if args.mixed and (args.k or args.n) >= args.n:
        p.error("--mixed is for fewer reducers than workers: --k below --n")
    args.repeats = args.repeats or (7 if args.full else 3)
    args.minutes = args.minutes or (float("inf") if args.full else 8)
    args.seconds = args.seconds or (4 if args.full else 0.8)
    return args


def cases_of(args):
    """The cases to run, with the options that change them."""
    if args.n is not None:
        rate = "none" if args.loopback else args.rate
        chosen = [Case("own", args.n, args.k or args.n, rate, args.queue_ms, args.delay_ms, mixed=args.mixed,
                       dedicated_too=args.mixed, half=args.half, loopback=args.loopback)]
    else:
        chosen = [c for c in TABLE if (c.name in args.cases if args.cases else args.full or not c.only_full)]
    changed = []
    for case in chosen:
        if args.full:
            case = dataclasses.replace(case, sizes=case.sizes_full or case.sizes, peers=tuple(systems.peers()))
        if args.bytes:
            case = dataclasses.replace(case, sizes=tuple(args.bytes))
        if args.peers is not None:
            case = dataclasses.replace(case, peers=tuple(x for x in args.peers if x != "none"))
        changed.append(case)
    return changed


def entries_of(case, args):
    """(system, placement) of all that run in a case; ours first."""
    found = []
    known = systems.peers()
    for setting in args.ours:
        if setting != "none":
            found.append((systems.Ours(setting), case.placement(case.mixed)))
            if case.dedicated_too:
                dedicated = systems.Ours(setting)
                dedicated.name += "/dedicated"
                found.append((dedicated, case.placement(False)))
    found += [(known[name], case.placement(False)) for name in case.peers]
    usable = []
    for system, place in found:
        missing = system.missing(args.build)
        if missing:
            print(f"# without {system.name}: {missing}", file=sys.stderr)
        else:
            usable.append((system, place))
    return usable


def operations(case, size, seconds):
    """Timed and warm-up operations of a launch."""
    rate = net.parse_rate(case.rate)
    expected = net.payload_MBps(rate) * 1e6 * 0.6 if rate else 4e8
    iters = max(2, min(200, round(seconds / (size / expected + 100e-6))))
    return iters, max(1, min(5, iters // 4))


class Results:
    """The launches of one case so far: rows by (size, system), and the plain TCP flow measured with each pass."""

    def __init__(self, case, args):
        self.case, self.args = case, args
        self.entries = entries_of(case, args)
        if not self.entries:
            raise net.LabError("nothing to run: see the lines above")
        self.line, self.rows = [], {}

    def run_pass(self, started, which):
        """Makes the laboratory and launches every system with every size once."""
        case, args = self.case, self.args
        hosts = max(place.hosts for _, place in self.entries)
        with net.Lab(hosts, case.rate, case.queue_ms, case.rates(), case.delay_ms, args.cc) as lab:
            self.line.append(systems.line_MBps(lab, case.placement(False), args.build))
            for size in case.sizes:
                iters, warmup = operations(case, size, args.seconds)
                for system, place in self.entries:
                    progress(f"{which}: {case.name}: {size_text(size)}, {system.name}, "
                             f"{time.monotonic() - started:.0f} s")
                    wait_calm(args.calm)
                    launch = systems.Launch(lab, place, size, iters, warmup, args.build)
                    self.rows.setdefault((size, system.name), (place, []))[1].append(measure(system, launch))
        progress("")

    def lines(self):
        """The lines of net.jsonl."""
        line = statistics.median(self.line)
        return [line_of(self.case, self.args, size, name, place, rows, line)
                for (size, name), (place, rows) in self.rows.items()]


def run_all(cases, args, out, started):
    """Passes over all cases, in turn so that a slow phase of the machine meets all of them. Once the time is up no
    further pass goes on. Returns the results, after writing them to `out`."""
    results = [Results(case, args) for case in cases]
    for repeat in range(args.repeats):
        for r in results:
            if repeat and time.monotonic() - started > args.minutes * 60:
                print(f"# {args.minutes:g} minutes are over: no more than {repeat} to {repeat + 1} launches of each",
                      file=sys.stderr)
                return results
            r.run_pass(started, f"pass {repeat + 1} of {args.repeats}")
            write_lines(results, out)
    return results


def write_lines(results, out):
    """Writes the lines so far: what was measured is not lost when the rest is interrupted."""
    with out.open("w", encoding="ascii") as f:
        f.write(json.dumps(machine()) + "\n")
        for r in results:
            for line in r.lines() if r.line else []:
                f.write(json.dumps(line) + "\n")


def progress(text):
    """One line that replaces the last one; nothing where nobody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{'# ' if text else ''}{text}", end="", file=sys.stderr, flush=True)


def wait_calm(limit_s):
    """Returns when the cores have been idle for SAMPLE_S, or after limit_s."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = systems.idle_seconds()
        time.sleep(SAMPLE_S)
        idle, every = (b - a for a, b in zip(before, systems.idle_seconds()))
        if idle > CALM * every:
            return


def measure(system, launch):
    """A launch's row; one that failed is a row with an "error" and does not end the run."""
    try:
        return system.measure(launch)
    except net.LabError as e:
        if e.code != 1:
            raise
        print(f"\n# {e}", file=sys.stderr)
        return {"error": str(e)}


def line_of(case, args, size, name, place, rows, line):
    """A line of net.jsonl."""
    good = [r for r in rows if "error" not in r]

    def median(of, digits):
        values = [v for v in map(of, good) if v is not None]
        return round(statistics.median(values), digits) if values else None

    speeds = [size / r["time_us"]["avg"] for r in good]
    bound = case.bound_MBps(place)
    return {
        "case": case.name, "system": name, "n": case.n, "k": case.k, "rate": case.rate, "queue_ms": case.queue_ms,
        "bytes": size,
        "algbw_MBps_median": median(lambda r: size / r["time_us"]["avg"], 3),
        "min": round(min(speeds), 3) if speeds else None, "max": round(max(speeds), 3) if speeds else None,
        "wire_tx_over_S": median(lambda r: r["tx_payload_over_S"], 4),
        "wire_rx_over_S": median(lambda r: r["rx_payload_over_S"], 4),
        "server_cpu_s_per_GiB": median(lambda r: r["server_cpu_s"] and r["server_cpu_s"] / (r["contributed"] / GIB), 4),
        "line_MBps": round(line, 2),
        # beyond the issue's keys
        "bound_MBps": bound and round(bound, 2), "ring_bound_MBps": case.ring_MBps() and round(case.ring_MBps(), 2),
        "p50_us": median(lambda r: r["time_us"]["p50"], 1), "p99_us": median(lambda r: r["time_us"]["p99"], 1),
        "frames_tx_over_S": median(lambda r: r["tx_frames_over_S"], 4),
        "frames_rx_over_S": median(lambda r: r["rx_frames_over_S"], 4),
        "busy": median(lambda r: r["busy"], 3),
        "dropped": median(lambda r: r["dropped"], 0), "runs": [round(s, 3) for s in speeds],
        "wrong": sum(r["wrong"] or 0 for r in good), "hung": sum(r["hung"] for r in good),
        "failed": len(rows) - len(good), "mixed": place.mixed, "half": case.half, "delay_ms": case.delay_ms,
        "cc": args.cc or machine_cc(),
    }


def machine_cc():
    return pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()


def machine():
    """What machine this is, for whoever reads the numbers later."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return {"machine": {"cpu": models[0] if models else "unknown", "cores": len(os.sched_getaffinity(0)),
                        "kernel": platform.release(), "load": os.getloadavg()[0], "cc": machine_cc(),
                        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}


def size_text(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return str(size)


def shown(value, form):
    return format(value, form) if value is not None else "-"


def print_case(case, lines):
    """One table: sizes and systems down, numbers across."""
    first = lines[0]
    shape = ("loopback, not shaped" if case.loopback else
             f"{case.rate} both ways, queue {case.queue_ms:g} ms" + (f", delay {case.delay_ms:g} ms" if case.delay_ms
                                                                       else ""))
    extra = ", mixed" if case.mixed else ", one reducer at half rate" if case.half else ""
    print(f"\n{case.name}: n={case.n}, k={case.k}{extra}, {shape}; a plain TCP flow: {first['line_MBps']:.1f} MB/s; "
          f"bound {shown(first['bound_MBps'], '.1f')}, of a ring {shown(first['ring_bound_MBps'], '.1f')}; "
          f"{first['cc']}")
    print(f"{'size':>8}  {'system':<20} {'algbw MB/s [min .. max]':>26} {'/line':>6} {'/peer':>6} {'p50 ms':>8} "
          f"{'tx/S':>6} {'rx/S':>6} {'cpu s/GiB':>9} {'drops':>6} {'busy':>5}")
    for size in case.sizes:
        rows = [r for r in lines if r["bytes"] == size]
        rivals = [r["algbw_MBps_median"] for r in rows if r["system"] in EVERY and r["algbw_MBps_median"]]
        for r in rows:
            speed = r["algbw_MBps_median"]
            numbers = "failed" if speed is None else f"{speed:.1f} [{r['min']:.1f} .. {r['max']:.1f}]"
            ratio = speed / max(rivals) if speed and rivals and r["system"].startswith("reduction") else None
            print(f"{size_text(size):>8}  {r['system']:<20} {numbers:>26} "
                  f"{shown(speed and speed / r['line_MBps'], '.2f'):>6} {shown(ratio, '.2f'):>6} "
                  f"{shown(r['p50_us'] and r['p50_us'] / 1e3, '.2f'):>8} {shown(r['wire_tx_over_S'], '.3f'):>6} "
                  f"{shown(r['wire_rx_over_S'], '.3f'):>6} {shown(r['server_cpu_s_per_GiB'], '.2f'):>9} "
                  f"{shown(r['dropped'], '.0f'):>6} {shown(r['busy'], '.0%'):>5}"
                  + (f"  {r['failed']} failed" if r["failed"] else "") + (f"  hung {r['hung']} x" if r["hung"] else "")
                  + (f"  {r['wrong']} WRONG" if r["wrong"] else ""))
    if case.n > len(os.sched_getaffinity(0)) and any(p.startswith(("ompi", "mpich")) for p in case.peers):
        print(f"          (MPI busy-polls: {case.n} ranks on {len(os.sched_getaffinity(0))} cores slow it down)")
    sys.stdout.flush()


def main():
    args = parse_arguments()
    cases = cases_of(args)
    net.check_machine()
    netem = net.kernel_has_netem()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    for case in [c for c in cases if c.delay_ms and not netem]:
        print(f"{case.name}: left out: this kernel has no netem, which makes extra delay")
        cases.remove(case)
    if not cases:
        raise net.LabError("nothing is left to measure", net.CANNOT_RUN_HERE)
    results = run_all(cases, args, out / "net.jsonl", started)
    everything = [line for r in results for line in r.lines()]
    print("/line: share of the plain TCP flow; /peer: against the best ring or MPI in the same case; tx/S, rx/S: TCP "
          "payload of a\nworker's link over the bytes reduced; drops: packets that full switch ports dropped in a "
          "launch;\nbusy: share of this machine's cores, the launch's start included: near 100 % the cores are the "
          "limit and not the links")
    for r in results:
        print_case(r.case, r.lines())
    for path in plot.write_all(everything, out):
        print(f"# plot: {path}", file=sys.stderr)
    wrong, failed = sum(r["wrong"] for r in everything), sum(r["failed"] for r in everything)
    print(f"\n{len(everything)} lines in {time.monotonic() - started:.0f} s are in {out / 'net.jsonl'}; wrong "
          f"elements: {wrong}; failed launches: {failed}")
    return 1 if wrong or any(r["algbw_MBps_median"] is None for r in everything) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    try:
        sys.exit(main())
    except net.LabError as error:
        print(f"bench-net: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
