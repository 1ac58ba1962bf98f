#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures all-reduce over shaped links: ours and its peers in the same laboratory; the systems take turns.

Without options it runs the quick table in less than 10 minutes. --full runs more sizes, peers and repeats in less than
35 minutes. --n and --k run one case of your own. The expected time is printed first. Each number is the median over
launches, with minimum and maximum beside it. The number of a launch is size / average time of an operation, and an
operation takes as long as its slowest rank. At the end each target is listed with its measurement and OK or MISS. Lines
of cases that do not run this time stay in net.jsonl, so the table can be run case by case.

Exit status: 0 success, whether targets are met or not; 1 an error or a wrong sum; 2 wrong usage; 77 this machine
cannot make the laboratory.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

import halt_poll
import lab as net
import plot
import report
import systems
from cases import BY_NAME, GIB, KERNELS, KIB, LATENCY, LOOPBACK, MIB, SHAPED, TABLE, Case, closed_form_over_S, size_text

SAMPLE_S, CALM = 0.4, 0.85  # cores count as idle if they are idle for the share CALM of SAMPLE_S seconds
MODES = {False: ("quick", 3, 0.5, 9.5), True: ("full", 5, 0.7, 34)}  # by --full: name, repeats, seconds, minutes
LATENCY_ITERS = 500
# for the estimate: share of the line, MB/s on loopback, seconds to start and end
EXPECTED = {"reduction": (0.93, 600, 0.6), "gloo": (0.6, 250, 0.6), "ompi-ring": (0.45, 450, 1.4),
            "ompi": (0.3, 600, 1.4), "mpich": (0.18, 100, 1.4), "ompi-shm": (1, 900, 0.8),
            "gloo-2d": (0.5, 200, 0.6), "gloo-2d-phased": (0.4, 200, 0.6),
            "bare-loop": (0.93, 900, 0.5), "torch-bf16": (1, 250, 6), "torch-fp8": (1, 250, 6)}


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


def make_parser():
    p = argparse.ArgumentParser(prog="bench-net", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--full", action="store_true", help="the whole table, all peers, 5 repeats")
    p.add_argument("--cases", type=comma_list(str), help="cases of the table, or patterns such as 'racks*': " +
                   ",".join(BY_NAME) + " (those of transports, encodings, long links and racks run only if they are "
                   "named)")
    one = p.add_argument_group("one case of your own (with --n)")
    one.add_argument("--n", type=int, help="workers")
    one.add_argument("--k", type=int, help="reducers (default: as many as workers)")
    one.add_argument("--rate", default="1gbit", help="rate of every link, both ways, or none (default %(default)s)")
    one.add_argument("--queue-ms", type=float, default=5, help="queue of a switch port, in ms (default %(default)s)")
    one.add_argument("--delay-us", type=float, default=0, help="more delay on the way to each host, in us (default 0)")
    one.add_argument("--rtt-ms", type=float, default=0, help="round trip of a worker to the reducers, and of two "
                     "ranks of a peer; five operations after a warm one (default 0)")
    one.add_argument("--mixed", action="store_true", help="also measure with reducers on the workers' hosts too")
    one.add_argument("--half", action="store_true", help="one reducer's link at half the rate; map by reductionctl "
                     "plan")
    one.add_argument("--loopback", action="store_true", help="everything in one host, over lo, not shaped")
    p.add_argument("--bytes", type=comma_list(parse_size), help="sizes, such as 64KiB,8MiB")
    p.add_argument("--peers", type=comma_list(str), help="peers: " + ",".join(systems.peers()) + ", or none")
    p.add_argument("--ours", type=comma_list(str), default="default",
                   help="settings of ours: default, none, or WINDOWxCHUNK such as 2x32K (default %(default)s)")
    p.add_argument("--repeats", type=int, help="launches of each system and size (default 3; 5 with --full)")
    p.add_argument("--minutes", type=float, help="start no pass over a case that would end later than this; each gets "
                   "one pass at least (default 9.5; 34 with --full)")
    p.add_argument("--seconds", type=float, help="timed seconds of each launch (default 0.5; 0.7 with --full)")
    p.add_argument("--calm", type=float, default=0, metavar="SECONDS", help="before each launch wait until the cores "
                   "are idle, at most so long (default: do not wait)")
    p.add_argument("--cc", help="congestion control, such as cubic (default: the machine's)")
    p.add_argument("--halt-poll", type=int, metavar="NS", help="guest_halt_poll_ns of this machine during the run, "
                   "200000 as Linux has it (default: the machine's)")
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--out", default="build/bench", help="folder for net.jsonl and checks.jsonl (default %(default)s)")
    p.add_argument("--plots", help="folder for the plots, SVG (default: that of --out)")
    p.add_argument("--report", metavar="FILE.md", help="write tables in Markdown about everything in net.jsonl")
    return p


def parse_arguments():
    p = make_parser()
    args = p.parse_args()
    if args.n is None and (args.k is not None or args.mixed or args.half or args.loopback or args.delay_us
                           or args.rtt_ms):
        p.error("--k, --mixed, --half, --loopback, --delay-us and --rtt-ms describe a case of your own: give --n too")
    if args.delay_us and args.rtt_ms:
        p.error("--delay-us and --rtt-ms both make links longer: give one of them")
    if args.n is not None and args.cases:
        p.error("--cases chooses from the table and --n describes another case: give one of them")
    if args.n is not None and (args.n < 1 or (args.k is not None and args.k < 1)):
        p.error("--n and --k are 1 or more")
    if args.halt_poll is not None and args.halt_poll < 0:
        p.error(f"--halt-poll: found {args.halt_poll}, expected nanoseconds, 0 or more")
    for name in args.cases or []:
        if not fnmatch.filter(BY_NAME, name):
            p.error(f'--cases: found "{name}", expected some of {",".join(BY_NAME)}')
    args.cases = args.cases and [c for name in args.cases for c in fnmatch.filter(BY_NAME, name)]
    for name in args.peers or []:
        if name != "none" and name not in systems.peers():
            p.error(f'--peers: found "{name}", expected some of {",".join(systems.peers())}, or none')
    if args.mixed and (args.k or args.n) >= args.n:
        p.error("--mixed is for fewer reducers than workers: --k below --n")
    args.mode, repeats, seconds, minutes = MODES[args.full]
    if args.n is not None:
        args.mode = "own"
    args.repeats, args.seconds = args.repeats or repeats, args.seconds or seconds
    args.minutes = args.minutes or minutes
    args.plots = args.plots or args.out
    return args


def cases_of(args):
    """Returns the cases to run, with the options that change them."""
    if args.n is not None:
        rate, kind = ("none", LOOPBACK) if args.loopback else (args.rate, SHAPED)
        chosen = [Case("own", args.n, args.k or args.n, kind, rate, args.queue_ms, args.delay_us, mixed=args.mixed,
                       half=args.half, rtt_ms=args.rtt_ms, iters=5 if args.rtt_ms else 0)]
    else:
        chosen = [c for c in TABLE if (c.name in args.cases if args.cases else (args.full or not c.only_full)
                                       and not c.asked)]
    changed = []
    for case in chosen:
        if args.full:
            case = case.in_full()
        if args.bytes and case.kind != KERNELS:
            case = dataclasses.replace(case, sizes=tuple(args.bytes))
        if args.peers is not None:
            case = dataclasses.replace(case, peers=tuple(x for x in args.peers if x != "none"))
        changed.append(case)
    return changed


def entries_of(case, args):
    """Returns (system, placement) of all systems of a case; ours first."""
    found = []
    known = systems.peers()
    for setting in args.ours:
        if setting == "none":
            continue
        if case.racks:
            found += [(systems.Relayed(setting, name, place), place) for name, place in case.in_racks()]
            continue
        found.append((systems.Ours(setting), case.placement(case.mixed)))
        if case.mixed:  # in addition the same with the dedicated reducers alone
            dedicated = systems.Ours(setting)
            dedicated.name += "/dedicated"
            found.append((dedicated, case.placement(False)))
        found += [(systems.Ours(setting, way), case.placement(False)) for way in case.ways]
    found += [(known[name], case.placement(False)) for name in case.peers]
    usable = []
    for system, place in found:
        missing = system.missing(args.build)
        if missing:
            print(f"# {case.name}: without {system.name}: {missing}", file=sys.stderr)
        else:
            usable.append((system, place))
    return usable


def operations(case, size, seconds):
    """Returns the number of timed and of warm-up operations of a launch."""
    if case.iters:
        return case.iters, case.warmup
    if case.kind == LATENCY and size <= 64 * KIB:
        return LATENCY_ITERS, LATENCY_ITERS // 10
    rate = net.parse_rate(case.rate)
    expected = net.payload_bits(rate) / 8 * 0.6 if rate else 4e8
    iters = max(2, min(200, round(seconds / (size / expected + 100e-6))))
    return iters, max(1, min(5, iters // 4))


class Results:
    """The launches of one case so far: rows by (size, system), and the plain TCP flow measured in each pass."""

    def __init__(self, case, args):
        self.case, self.args = case, args
        self.entries = entries_of(case, args)
        if not self.entries:
            raise net.LabError(f"{case.name}: nothing to run: see the lines above")
        for _, place in self.entries:  # fails now, and not in the middle of a run, if the plan cannot be made
            place.plan(args.build, case.sizes[0])
        self.line, self.rows, self.pass_s = [], {}, self.estimate_s()

    def estimate_s(self):
        """Estimates the seconds of a pass."""
        case, rate = self.case, net.parse_rate(self.case.rate)
        total = 2 + 0.15 * (1 if case.loopback else case.n + case.k)
        for size in case.sizes:
            ops = sum(operations(case, size, self.args.seconds)) + 1
            for system, place in self.entries:
                share, loopback, start_s = EXPECTED[system.name.split("/")[0].split(":")[0]]
                speed = net.payload_bits(rate) / 8 * share if rate else loopback * 1e6
                if case.racks:
                    bound = bound_s(place.plan(self.args.build, size), system.name)
                    total += start_s + 0.05 * case.n + ops * 1.2 * bound
                    continue
                over = closed_form_over_S(case.n, case.k, place.mixed) if system.name.startswith("reduction") else 1
                total += start_s + 0.05 * case.n + ops * size * over / speed
                total += {"gloo": 4, "mpich": 5}.get(system.name, 0.3) if case.kind == LATENCY else 0
        return total

    def run_pass(self, started, which):
        """Makes the laboratory and launches every system with every size once. With a round trip there are two
        laboratories, see Case.delays_us()."""
        begun = time.monotonic()
        ours = [e for e in self.entries if e[0].name.startswith("reduction") or isinstance(e[0], systems.BareLoop)]
        peers = [e for e in self.entries if e not in ours]
        for entries, peer in ((ours, False), (peers, True)) if self.case.rtt_ms else ((self.entries, False),):
            if entries:
                self._run_entries(entries, peer, started, which)
        progress("")
        self.pass_s = time.monotonic() - begun

    def _run_entries(self, entries, peer, started, which):
        case, args = self.case, self.args
        hosts = max(place.hosts for _, place in entries)
        cc = case.cc or args.cc
        with (case.placement(False).make_lab(case, cc, args.build) if case.racks else
              net.Lab(hosts, case.rate, case.queue_ms, case.rates(), case.delays_us(peer), cc, args.build,
                      random_loss=case.random_loss)) as lab:
            if not peer:  # one flow does not fill a long link
                self.line.append(net.payload_bits(net.parse_rate(case.rate)) / 8e6 if case.rtt_ms else
                                 systems.line_MBps(lab, case.placement(False), args.build))
            for size in case.sizes:
                iters, warmup = operations(case, size, args.seconds)
                for system, place in entries:
                    progress(f"{which}: {case.name}: {size_text(size)}, {system.name}, "
                             f"{time.monotonic() - started:.0f} s")
                    wait_calm(args.calm)
                    launch = systems.Launch(lab, place, size, iters, warmup, args.build)
                    self.rows.setdefault((size, system.name), (place, []))[1].append(measure(system, launch))

    def lines(self):
        """Returns the lines for net.jsonl."""
        if not self.line:
            return []
        line = statistics.median(self.line)
        return [line_of(self.case, self.args, size, name, place, rows, line)
                for (size, name), (place, rows) in self.rows.items()]


def bound_s(plan, system):
    """Returns the time that links allow a system in racks."""
    return plan["time_s" if system.startswith("reduction") else "ring_2d_s" if system == "gloo-2d" else "ring_s"]


class KernelResults:
    """The case of the kernels: one pass is enough, because the program repeats its measurements itself."""

    pass_s = 8

    def __init__(self, case, args):
        self.case, self.args, self.found = case, args, []
        self.program = pathlib.Path(args.build) / "bench/reduction-bench-kernels"
        if not self.program.exists():
            raise net.LabError(f"{self.program} was not built")

    def run_pass(self, _started, _which):
        if self.found:
            self.pass_s = 0
            return
        done = subprocess.run([self.program, "--reducer", "--json", "--repeats", "15"], capture_output=True, text=True)
        if done.returncode:
            raise net.LabError(f"{self.program.name}: exit status {done.returncode}: {done.stderr.strip()}")
        self.found = [json.loads(line) for line in done.stdout.splitlines()]

    def lines(self):
        return [{"case": self.case.name, "mode": self.args.mode, "run": self.args.run} | line for line in self.found]


def run_all(results, args, out, started):
    """Runs passes over all cases, in turn so that a slow phase of the machine affects all of them, until all repeats
    are done or the next pass would end too late. Writes the lines to `out` after each pass. A pass that fails does not
    end the run. Returns the number of failed passes."""
    failed = 0
    for repeat in range(args.repeats):
        for r in results:
            if repeat and time.monotonic() - started + r.pass_s > args.minutes * 60:
                print(f"# {args.minutes:g} minutes are nearly over: no more than {repeat} to {repeat + 1} launches of "
                      "each", file=sys.stderr)
                return failed
            try:
                r.run_pass(started, f"pass {repeat + 1} of {args.repeats}")
            except net.LabError as e:
                print(f"\n# {r.case.name}: pass {repeat + 1} failed: {e}", file=sys.stderr)
                failed += 1
            write_lines(results, args, out)
    return failed


def write_lines(results, args, out):
    """Replaces the lines of the cases measured so far and keeps all others, so an interruption loses no measurement. A
    machine's line stays as long as a line of its run does."""
    mine = [line for r in results for line in r.lines()]
    kept = report.read(out) if out.exists() else []
    kept = [k for k in kept if k.get("case") not in {m["case"] for m in mine} and k.get("run", args.run) != args.run]
    runs = {k["run"] for k in kept if "case" in k}
    kept = [k for k in kept if "case" in k or k["run"] in runs]
    fresh = out.with_suffix(".new")
    fresh.write_text("".join(json.dumps(k) + "\n" for k in kept + [machine(args.run)] + mine), encoding="ascii")
    fresh.replace(out)


def progress(text):
    """Prints one line that replaces the last one; nothing if standard error is no terminal."""
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
    """Returns a launch's row. A failed launch has a row with an "error" and does not end the run."""
    try:
        return system.measure(launch)
    except net.LabError as e:
        if e.code != 1:
            raise
        print(f"\n# {e}", file=sys.stderr)
        return {"error": str(e)}


def line_of(case, args, size, name, place, rows, line):
    """Formats a line of net.jsonl."""
    good = [r for r in rows if "error" not in r]

    def median(of, digits):
        values = [v for v in map(of, good) if v is not None]
        return round(statistics.median(values), digits) if values else None

    speeds = [size / r["time_us"]["avg"] for r in good]
    plan = place.plan(args.build, size)
    return {
        "case": case.name, "system": name, "n": case.n, "k": case.k, "rate": case.rate, "queue_ms": case.queue_ms,
        "bytes": size,
        "algbw_MBps_median": median(lambda r: size / r["time_us"]["avg"], 3),
        "min": round(min(speeds), 3) if speeds else None, "max": round(max(speeds), 3) if speeds else None,
        "wire_tx_over_S": median(lambda r: r["tx_payload_over_S"], 4),
        "wire_rx_over_S": median(lambda r: r["rx_payload_over_S"], 4),
        "server_cpu_s_per_GiB": median(lambda r: r["server_cpu_s_per_byte"] and r["server_cpu_s_per_byte"] * GIB, 4),
        "server_cpu_s": median(lambda r: r["server_cpu_s"], 4),
        "line_MBps": round(line, 2),
        "bound_MBps": plan and round(size / plan["time_s"] / 1e6, 2),
        "ring_bound_MBps": plan and round(size / plan["ring_s"] / 1e6, 2),
        "p50_us": median(lambda r: r["time_us"]["p50"], 1), "p99_us": median(lambda r: r["time_us"]["p99"], 1),
        "frames_tx_over_S": median(lambda r: r["tx_frames_over_S"], 4),
        "frames_rx_over_S": median(lambda r: r["rx_frames_over_S"], 4),
        "busy": median(lambda r: r["busy"], 3),
        "dropped": median(lambda r: r["dropped"], 0), "runs": [round(s, 3) for s in speeds],
        "wrong": sum(r["wrong"] or 0 for r in good), "hung": sum(r["hung"] for r in good),
        "failed": len(rows) - len(good), "mixed": place.mixed, "half": case.half, "delay_us": case.delay_us,
        "rtt_ms": case.rtt_ms, "far_ms": case.far_ms, "random_loss": case.random_loss,
        "cc": case.cc or args.cc or machine_cc(), "mode": args.mode, "run": args.run,
    } | (racks_of(case, size, name, place, good) if case.racks else {})


def racks_of(case, size, name, place, rows):
    """Returns the keys of a line that only cases with racks have."""
    def median(key):
        """Bytes of one operation on each uplink, the median over launches, in MB."""
        return [round(statistics.median(row["uplinks"][r][key] for row in rows) / 1e6, 3) if rows else None
                for r in range(case.racks.count)]

    up, down, plan = median("up_payload"), median("down_payload"), place.plan(None, size)
    return {
        "racks": case.racks.count, "over": case.racks.over, "each": case.racks.each, "spine": case.racks.spine,
        "on_workers": case.racks.on_workers, "racks_rtt_ms": case.racks.rtt_ms,
        "uplink_kbit": case.racks.uplink_bits(case.n, net.parse_rate(case.rate)) / 1e3,
        "uplink_MB": {"up": up, "down": down}, "uplink_frames_MB": {"up": median("up"), "down": median("down")},
        "uplink_per_S": round(max(up + down) * 1e6 / size, 4) if rows else None,
        "uplink_dropped": sum(statistics.median(row["uplinks"][r]["dropped"] for row in rows)
                              for r in range(case.racks.count)) if rows else None,
        "links_allow_MBps": round(size / bound_s(plan, name) / 1e6, 2),
    }


def machine_cc():
    return pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()


def machine(run):
    """Describes this machine, for the file of results."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return {"run": run, "machine": {"cpu": models[0] if models else "unknown", "cores": len(os.sched_getaffinity(0)),
                                    "kernel": platform.release(), "load": os.getloadavg()[0], "cc": machine_cc(),
                                    "halt_poll_ns": halt_poll.current()}}


def prepare(args):
    """Returns empty results of the cases. A case that cannot run here is left out, and a line says why."""
    cases = cases_of(args)
    if any(case.kind != KERNELS for case in cases):
        net.check_machine()
    results = []
    for case in cases:
        try:
            if case.delay_us or case.rtt_ms or (case.racks and case.racks.rtt_ms):
                net.check_delay(args.build)
            results.append(KernelResults(case, args) if case.kind == KERNELS else Results(case, args))
        except net.LabError as e:
            if args.mode == "own" or e.code == 2:
                raise
            print(f"{case.name}: left out: {e}", flush=True)
    if not results:
        raise net.LabError("nothing is left to measure", net.CANNOT_RUN_HERE)
    return results


def print_estimate(results, args):
    """Prints the expected time before the run."""
    cases = [(r.case.name, r.pass_s * (1 if r.case.kind == KERNELS else args.repeats) / 60) for r in results]
    total = sum(minutes for _, minutes in cases)
    once = sum(r.pass_s for r in results) / 60
    print(f"about {max(once, min(total, args.minutes)):.0f} minutes on an idle machine, {args.repeats} "
          f"pass{'es' if args.repeats > 1 else ''}: " +
          ", ".join(f"{name} {minutes:.1f}" for name, minutes in cases) +
          (f"; cut off after {args.minutes:g}" if total > args.minutes else ""), flush=True)
    if halt_poll.current() == 0:
        print("# idle cores of this virtual machine halt at once, and whoever sleeps is woken through its host: see "
              "--halt-poll", flush=True)


def main():
    args = parse_arguments()
    args.run = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    with net.only_one_measures(), halt_poll.set_to(args.halt_poll):
        results = prepare(args)
        print_estimate(results, args)
        started = time.monotonic()
        failed_passes = run_all(results, args, out / "net.jsonl", started)
    mine = [line for r in results for line in r.lines()]
    everything = report.read(out / "net.jsonl")
    print(report.LEGEND)
    for r in results:
        report.print_case(r.case, r.lines())
    checks = report.checks_of(mine)
    report.print_checks(checks)
    (out / "checks.jsonl").write_text("".join(json.dumps(dataclasses.asdict(c)) + "\n"
                                              for c in report.checks_of(everything)), encoding="ascii")
    pathlib.Path(args.plots).mkdir(parents=True, exist_ok=True)
    plots = plot.write_all(everything, args.plots)
    for path in plots:
        print(f"# plot: {path}", file=sys.stderr)
    if args.report:
        pathlib.Path(args.report).write_text(report.markdown(everything, plots, pathlib.Path(args.report).parent),
                                             encoding="utf-8")
    launches = [r for r in mine if "system" in r]
    wrong, failed = sum(r["wrong"] for r in launches), sum(r["failed"] for r in launches)
    print(f"\n{len(mine)} lines in {time.monotonic() - started:.0f} s are in {out / 'net.jsonl'}; wrong elements: "
          f"{wrong}; failed launches: {failed}")
    return 1 if wrong or failed_passes or any(r["algbw_MBps_median"] is None for r in launches) else 0


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
