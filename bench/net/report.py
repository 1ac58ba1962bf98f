#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reports the measurements of bench-net as text and as Markdown, and compares them with the targets of the table.

    report.py net.jsonl REPORT.md PLOTS    writes the report of an earlier run, and its plots into the folder PLOTS

The report contains only data of net.jsonl.
"""

import dataclasses
import json
import os
import pathlib
import sys
from typing import Optional

import plot
from cases import BY_NAME, COMPARABLE, KERNELS, LATENCY, LOOPBACK, MIB, RINGS, SHAPED, SHARED_MEMORY, TCP_PEERS
from cases import rate_text, size_text

LEGEND = ("/line: share of the plain TCP flow; /peer: against the best ring or MPI over TCP in the same case; tx/S, "
          "rx/S: TCP\npayload of a worker's link over the bytes reduced; drops: packets that full switch ports "
          "dropped in a launch;\nbusy: share of this machine's cores, the launch's start included: near 100 % the "
          "cores are the limit and not the links")


OURS = ("reduction", "reduction/local", "reduction/node", "reduction/agent")
PLOTS = {"net-n4": "algorithm bandwidth against size, 1 Gbit/s",
         **{f"net-loopback-{key}": f"algorithm bandwidth on one machine, {work}"
            for key, (work, _) in COMPARABLE.items()},
         "net-speedup": "speed-up over the best peer against the number of workers"}  # that the Markdown shows, and how


@dataclasses.dataclass
class Check:
    """One target and its measurement. `value` and `target` have the same unit; `more` is True if larger is better;
    `verdict` is OK or MISS."""

    case: str
    bytes: int
    what: str
    value: float
    target: float
    more: bool
    measured: str  # the numbers behind the value, as text
    peer: Optional[str]  # name of the system it was compared with
    verdict: str = ""

    def __post_init__(self):
        self.verdict = "OK" if (self.value >= self.target if self.more else self.value <= self.target) else "MISS"

    def row(self):
        where = f"{self.case} {size_text(self.bytes)}" if self.bytes else self.case
        return [where, f"{self.what} {'>=' if self.more else '<='} {self.target:g}", f"{self.value:.3f}",
                self.measured, self.peer or "", self.verdict]


def read(path):
    """Returns the lines of net.jsonl."""
    with open(path, encoding="ascii") as f:
        return [json.loads(line) for line in f if line.startswith("{")]


def rows_of(lines, case):
    return [r for r in lines if r.get("case") == case]


def cases_in(lines):
    """Returns the names of the cases: first those of the table, in its order."""
    there = dict.fromkeys(r["case"] for r in lines if "case" in r)
    return [name for name in BY_NAME if name in there] + [name for name in there if name not in BY_NAME]


def best(rows, among, key="algbw_MBps_median", least=False):
    """Returns the row of the fastest of these systems, or None."""
    found = [r for r in rows if r["system"] in among and r[key]]
    return (min if least else max)(found, key=lambda r: r[key]) if found else None


def checks_of(lines):
    """Returns the targets of all cases that the lines contain."""
    found = []
    for name in cases_in(lines):
        case = BY_NAME.get(name)
        if not case:
            continue
        rows = rows_of(lines, name)
        if case.kind == KERNELS:
            found += kernel_checks(case, rows)
            continue
        for size in sorted({r["bytes"] for r in rows} & set(case.in_full().sizes)):
            here = [r for r in rows if r["bytes"] == size]
            ours = best(here, ["reduction"])
            found += rack_checks(case, size, here) if case.racks else []
            if not ours and case.targets and any(r["system"] == "reduction" for r in here):
                found.append(Check(name, size, "launches that end well", 0, 1, True, "all failed", None))
            elif ours and case.kind == LATENCY:
                found += latency_checks(case, size, here)
            elif ours:
                found += (speed_checks(case, size, ours, here) + way_checks(case, size, ours, here) +
                          cost_checks(case, size, ours, here))
    return found


def speed_checks(case, size, ours, rows):
    """Compares with the plain flow, the bound and the peers."""
    t, speed, found = case.targets, ours["algbw_MBps_median"], []

    def add(what, target, base, name):
        found.append(Check(case.name, size, what, speed / base, target, True, f"{speed:.1f} MB/s",
                           f"{name} {base:.1f}"))

    if "line" in t:
        add("of the line" if ours.get("rtt_ms") else "of a plain TCP flow", t["line"], ours["line_MBps"], "flow")
    if "bound" in t and ours["bound_MBps"]:
        add("of what plan expects", t["bound"], ours["bound_MBps"], "plan")
    for key, among, what in (("peer", TCP_PEERS, "times the best peer"), ("ring", RINGS, "times the best ring")):
        rival = best(rows, among)
        if key in t and rival and size >= t.get(f"{key}_from", 0):
            add(what, t[key], rival["algbw_MBps_median"], rival["system"])
    return found + memory_checks(case, size, rows)


def rack_checks(case, size, rows):
    """Compares the best of ours with groups with the better ring in the order of racks, its share of what plan
    expects, and its bytes on uplinks; and groups without relays with no groups."""
    t, found = case.targets, []
    ours = best(rows, [f"reduction/{name}" for name in case.racks.systems if name != "declared"])
    rival, declared, flat = best(rows, RINGS), best(rows, ["reduction/declared"]), best(rows, ["reduction/flat"])
    if not ours or size < t.get("racks_from", 0):
        return []
    speed, name = ours["algbw_MBps_median"], ours["system"]

    def add(what, value, target, mine, other):
        found.append(Check(case.name, size, what, value, target, True, mine, other))

    if "racks" in t and rival:
        base = rival["algbw_MBps_median"]
        add(f"{name}, times the best ring", speed / base, t["racks"], f"{speed:.1f} MB/s",
            f"{rival['system']} {base:.1f}")
    if "allowed" in t:
        bound = ours["links_allow_MBps"]
        add(f"{name}, of what plan expects", speed / bound, t["allowed"], f"{speed:.1f} MB/s", f"plan {bound:.1f}")
    if "uplinks" in t:
        relayed = best(rows, ["reduction/groups"])
        share = relayed["uplink_per_S"]
        found.append(Check(case.name, size, "bytes on the busiest uplink, of those reduced", share, t["uplinks"], False,
                           f"{share:.3f} S", None))
    if "declared" in t and declared and flat:
        base, speed = flat["algbw_MBps_median"], declared["algbw_MBps_median"]
        add("groups without relays, of no groups", speed / base, t["declared"], f"{speed:.1f} MB/s", f"flat {base:.1f}")
    return found


def memory_checks(case, size, rows):
    """Compares ours by default with Open MPI, both in shared memory."""
    found, rival = [], best(rows, SHARED_MEMORY)
    for way, memory in (("local+malloc", "ordinary memory"), ("local", "shared buffers")):
        ours = best(rows, [f"reduction/{way}"])
        if "memory" in case.targets and rival and ours:
            base, speed = rival["algbw_MBps_median"], ours["algbw_MBps_median"]
            found.append(Check(case.name, size, f"by default, {memory}, times Open MPI in shared memory", speed / base,
                               case.targets["memory"], True, f"{speed:.1f} MB/s", f"{rival['system']} {base:.1f}"))
    return found


def way_checks(case, size, ours, rows):
    """Compares TLS and gRPC with ours over plain TCP."""
    t, base = case.targets, ours["algbw_MBps_median"]
    if "plain" not in t or size < t["plain_from"]:
        return []
    return [Check(case.name, size, f"{r['system']} / plain TCP", r["algbw_MBps_median"] / base, t["plain"], True,
                  f"{r['algbw_MBps_median']:.1f} MB/s", f"{base:.1f}")
            for r in rows if r["system"].startswith("reduction/") and r["algbw_MBps_median"]]


def cost_checks(case, size, ours, rows):
    """Checks bytes on the wire and the reducers' CPU time."""
    t, found = case.targets, []
    if "wire" in t and size == t["wire_at"] and ours["wire_tx_over_S"]:
        for way, key in (("sent", "wire_tx_over_S"), ("received", "wire_rx_over_S")):
            found.append(Check(case.name, size, f"payload {way} / S", ours[key], t["wire"], False,
                               f"{ours[key]:.4f} S", None))
    loop = best(rows, ["bare-loop"], "server_cpu_s_per_GiB")
    cpu = ours["server_cpu_s_per_GiB"]
    if "cpu" in t and loop and cpu and size >= t["cpu_from"]:
        base = loop["server_cpu_s_per_GiB"]
        found.append(Check(case.name, size, "reducers' CPU time / bare loop's", cpu / base, t["cpu"], False,
                           f"{cpu:.3f} s/GiB", f"bare-loop {base:.3f}"))
    return found


def latency_checks(case, size, rows):
    """Compares each of ours with Open MPI over TCP: the first target, and the goal."""
    found = []
    rival = best(rows, ["ompi"], "p50_us")
    for system in OURS:
        ours = best(rows, [system], "p50_us")
        for key, word in (("p50", ""), ("goal", ", goal")) if ours and rival else ():
            found.append(Check(case.name, size, f"{system} p50 / Open MPI's over TCP{word}", ours["p50_us"] /
                               rival["p50_us"], case.targets[key], False,
                               f"p50 {ours['p50_us']:.0f} us, p99 {ours['p99_us']:.0f} us",
                               f"ompi p50 {rival['p50_us']:.0f} us, p99 {rival['p99_us']:.0f} us"))
    return found


def kernel_checks(case, rows):
    targets = case.targets["kernel"]
    return [Check(case.name, 0, f"{r['dtype']} sum / plain add", r["over_plain_add"], targets[r["dtype"]], True,
                  f"{r['gbps_median']:.1f} GB/s", f"plain add {r['plain_add_gbps']:.1f}, memcpy {r['memcpy_gbps']:.1f}")
            for r in rows if r["dtype"] in targets]


def shown(value, form):
    return format(value, form) if value is not None else "-"


def setting(r):
    """Describes a case's laboratory, from one of its lines."""
    if r["rate"] == "none":
        return "loopback, not shaped"
    extra = (", mixed" if r["mixed"] else "") + (", one reducer at half rate" if r["half"] else "")
    if "racks" in r:
        extra = (f", {r['racks']} racks with uplinks of {r['uplink_kbit'] / 1e3:g} Mbit/s, {r['over']:g}:1, "
                 f"{r['each']} reducers in each" + (f", {r['spine']} at the spine" if r["spine"] else "") +
                 (", and one on each worker's machine" if r["on_workers"] else "") +
                 (f", round trip between racks {r['racks_rtt_ms']:g} ms" if r["racks_rtt_ms"] else ""))
    return (f"{rate_text(r['rate'])} both ways, queue {r['queue_ms']:g} ms" +
            (f", delay {r['delay_us']:g} us" if r["delay_us"] else "") +
            (f", round trip {r['rtt_ms']:g} ms" if r.get("rtt_ms") else "") +
            (f", of worker 0 {r['far_ms']:g} ms" if r.get("far_ms") else "") +
            (f", 1 of {r['random_loss']} packets lost" if r.get("random_loss") else "") +
            (f", {r['cc']}" if r.get("rtt_ms") else "") + extra)


def print_kernels(rows):
    print(f"\nkernels: sums, source in L2, accumulators in {rows[0]['bytes'] >> 20} MiB of memory; GB/s of the "
          f"accumulator; cycles of the time-stamp counter at its\nnominal {rows[0]['tsc_ghz']:.2f} GHz are for the "
          "bytes that workers send")
    print(f"{'dtype':<10} {'sum':>7} {'plain add':>10} {'memcpy':>8} {'/plain add':>11} {'cycles/B':>9}")
    for r in rows:
        print(f"{r['dtype']:<10} {r['gbps_median']:>7.2f} {r['plain_add_gbps']:>10.2f} {r['memcpy_gbps']:>8.2f} "
              f"{r['over_plain_add']:>11.3f} {r['tsc_per_byte_sent']:>9.4f}")


def print_case(case, lines):
    """Formats one table: a row for each size and system."""
    if not lines:
        return
    if case.kind == KERNELS:
        print_kernels(lines)
        return
    first = lines[0]
    expected = "" if case.racks else (f"plan expects {shown(first['bound_MBps'], '.1f')}, of a ring "
                                      f"{shown(first['ring_bound_MBps'], '.1f')}; ")
    print(f"\n{case.name}: n={case.n}, k={case.k}, {setting(first)}; a plain TCP flow: {first['line_MBps']:.1f} MB/s; "
          f"{expected}{first['cc']}")
    print(f"{'size':>8}  {'system':<20} {'algbw MB/s [min .. max]':>26} {'/line':>6} {'/peer':>6} {'p50 ms':>8} "
          f"{'p99 ms':>8} {'tx/S':>6} {'rx/S':>6} {'cpu s/GiB':>9} {'drops':>6} {'busy':>5}")
    for size in dict.fromkeys(r["bytes"] for r in lines):
        rows = [r for r in lines if r["bytes"] == size]
        rival = best(rows, TCP_PEERS)
        for r in rows:
            print_row(r, rival)
    cores = os.cpu_count() or 1
    if case.n > cores and any(r["system"].startswith(("ompi", "mpich")) for r in lines):
        print(f"          (MPI busy-polls: {case.n} ranks on {cores} cores slow it down)")
    sys.stdout.flush()


def print_row(r, rival):
    speed = r["algbw_MBps_median"]
    numbers = "failed" if speed is None else f"{speed:.1f} [{r['min']:.1f} .. {r['max']:.1f}]"
    ratio = speed / rival["algbw_MBps_median"] if speed and rival and r["system"].startswith("reduction") else None
    print(f"{size_text(r['bytes']):>8}  {r['system']:<20} {numbers:>26} "
          f"{shown(speed and speed / r['line_MBps'], '.2f'):>6} {shown(ratio, '.2f'):>6} "
          f"{shown(r['p50_us'] and r['p50_us'] / 1e3, '.3f'):>8} {shown(r['p99_us'] and r['p99_us'] / 1e3, '.3f'):>8} "
          f"{shown(r['wire_tx_over_S'], '.3f'):>6} "
          f"{shown(r['wire_rx_over_S'], '.3f'):>6} {shown(r['server_cpu_s_per_GiB'], '.2f'):>9} "
          f"{shown(r['dropped'], '.0f'):>6} {shown(r['busy'], '.0%'):>5}"
          + (f"  links allow {r['links_allow_MBps']:.1f}; uplink_per_S {shown(r['uplink_per_S'], '.3f')}, "
             f"{shown(r['uplink_dropped'], '.0f')} drops" if "racks" in r else "")
          + (f"  {r['failed']} failed" if r["failed"] else "") + (f"  hung {r['hung']} x" if r["hung"] else "")
          + (f"  {r['wrong']} WRONG" if r["wrong"] else "")
          + ("  (shared memory)" if r["system"] in SHARED_MEMORY else ""))


def print_checks(checks):
    """Formats the table of targets for the end of a run."""
    if not checks:
        return
    rows = [["where", "target", "value", "measured", "peer", "verdict"]] + [c.row() for c in checks]
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    print()
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    missed = sum(c.verdict == "MISS" for c in checks)
    print(f"{len(checks)} targets: {len(checks) - missed} OK, {missed} MISS")


def table(head, rows):
    """Formats a table in Markdown."""
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head)] + rows) + "\n"


def speed_cell(r):
    if not r or r["algbw_MBps_median"] is None:
        return ""
    value = r["algbw_MBps_median"]
    digits = 1 if value < 100 else 0
    return f"{value:.{digits}f} ({r['min']:.{digits}f}-{r['max']:.{digits}f})"


def speed_table(lines, names, systems, more):
    """Formats algbw of those of the systems that were measured, a row for each case and size. `more`: further columns,
    name and function of a row."""
    there = {r["system"] for name in names for r in rows_of(lines, name)}
    systems = [s for s in systems if s in there]
    rows = []
    for name in names:
        of_case = [r for r in rows_of(lines, name) if "system" in r]
        for i, size in enumerate(sorted({r["bytes"] for r in of_case})):
            by = {r["system"]: r for r in of_case if r["bytes"] == size}
            first = next(iter(by.values()))
            where = f"n={first['n']}, k={first['k']}, {setting(first)}" if i == 0 else ""
            rows.append([where, size_text(size)] + [speed_cell(by.get(s)) for s in systems] +
                        [of(first) for _, of in more])
    return table(["where", "size"] + [plot.name_of(s) for s in systems] + [name for name, _ in more], rows)


def rack_table(lines, names):
    """Formats the cases with racks: a row for each case, size and system."""
    rows = []
    for name in names:
        of_case = rows_of(lines, name)
        for size in sorted({r["bytes"] for r in of_case}):
            here = [r for r in of_case if r["bytes"] == size]
            ring = best(here, RINGS)
            for r in here:
                ratio = ring and r["algbw_MBps_median"] and r["algbw_MBps_median"] / ring["algbw_MBps_median"]
                rows.append([name, size_text(size), plot.name_of(r["system"]), speed_cell(r),
                             f"{r['links_allow_MBps']:.1f}", shown(ratio, ".2f"), shown(r["uplink_per_S"], ".2f")])
    return table(["case", "size", "system", "MB/s", "links allow", "times the best ring", "an uplink carries, S"], rows)


def comparable_tables(lines, name):
    """Formats a case on one machine: a table for each group of systems that do the same work."""
    parts, there = [], {r["system"] for r in rows_of(lines, name)}
    for work, systems in COMPARABLE.values():
        if there.intersection(systems):
            parts += [f"{work[0].upper()}{work[1:]}:\n", speed_table(lines, [name], systems, [])]
    return parts


def way_table(lines, names):
    """Formats ours over plain TCP and the other transports: speed, its share of plain TCP, the reducers' CPU time."""
    rows = []
    for name in names:
        for size in sorted({r["bytes"] for r in rows_of(lines, name)}):
            here = [r for r in rows_of(lines, name) if r["bytes"] == size]
            plain = best(here, ["reduction"])
            for r in here:
                share = plain and r["algbw_MBps_median"] and r["algbw_MBps_median"] / plain["algbw_MBps_median"]
                rows.append([setting(r), size_text(size), plot.name_of(r["system"]), speed_cell(r),
                             shown(share, ".2f"), shown(r["server_cpu_s_per_GiB"], ".2f")])
    return table(["where", "size", "way", "MB/s", "of plain TCP", "reducers, CPU s per GiB contributed"], rows)


def latency_table(rows):
    return table(["size", "system", "p50, us", "p99, us"],
                 [[size_text(r["bytes"]), plot.name_of(r["system"]) + (" over TCP" if r["system"] in TCP_PEERS else ""),
                   shown(r["p50_us"], ".0f"), shown(r["p99_us"], ".0f")] for r in rows])


def halt_poll_text(ns):
    return "" if ns is None else f", guest_halt_poll_ns {ns}"


def cpu_table(lines):
    """Formats the reducers' CPU time beside that of the bare loop."""
    rows = []
    for name in cases_in(lines):
        for size in sorted({r["bytes"] for r in rows_of(lines, name)
                            if r.get("system") == "bare-loop" and r["bytes"] >= MIB}):  # below, the start counts most
            by = {r["system"]: r["server_cpu_s_per_GiB"] for r in rows_of(lines, name) if r["bytes"] == size}
            ours, loop = by.get("reduction"), by["bare-loop"]
            if ours and loop:
                rows.append([name, size_text(size), f"{ours:.3f}", f"{loop:.3f}", f"{ours / loop:.2f}"])
    return rows and table(["case", "size", "reducers, CPU s per GiB contributed", "bare TCP echo", "ratio"], rows)


def kernel_table(rows):
    return table(["dtype", "sum, GB/s of accumulators", "plain add", "memcpy", "sum / plain add",
                  f"cycles for a byte sent (time-stamp counter, nominal {rows[0]['tsc_ghz']:.2f} GHz)"],
                 [[r["dtype"], f"{r['gbps_median']:.1f}", f"{r['plain_add_gbps']:.1f}", f"{r['memcpy_gbps']:.1f}",
                   f"{r['over_plain_add']:.2f}", f"{r['tsc_per_byte_sent']:.3f}"] for r in rows])


def markdown(lines, plots, folder):
    """Returns the report: the tables of README.md, and those plots that PLOTS names, linked relative to its folder."""
    measured = [r for r in lines if "system" in r]
    kinds = {name: BY_NAME[name].kind if name in BY_NAME else LOOPBACK if r["rate"] == "none" else SHAPED
             for r in reversed(measured) for name in [r["case"]]}
    names = [n for n in cases_in(lines) if n in kinds]
    ways = [n for n in names if n in BY_NAME and "plain" in BY_NAME[n].targets]
    racks = [n for n in names if any("racks" in r for r in rows_of(lines, n))]
    shaped = [n for n in names if kinds[n] not in (LOOPBACK, LATENCY) and n not in ways + racks]
    machines = {json.dumps({k: v for k, v in m["machine"].items() if k != "load"}): m for m in lines if "machine" in m}
    parts = [f"Machine: {m['machine']['cores']} cores of {m['machine']['cpu']}, Linux {m['machine']['kernel']}, "
             f"{m['machine']['cc']}{halt_poll_text(m['machine'].get('halt_poll_ns'))}.\n" for m in machines.values()]
    if measured:
        runs = sorted({len(r["runs"]) for r in measured})
        parts.append("Algorithm bandwidth in MB/s: median (smallest-largest) of "
                     f"{'-'.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} launches.\n")
    if shaped:
        parts.append(speed_table(lines, shaped, ("reduction", "reduction/dedicated", *TCP_PEERS), [
            ("a plain TCP flow", lambda r: f"{r['line_MBps']:.1f}"),
            ("links allow", lambda r: shown(r["bound_MBps"], ".1f")),
            ("links allow a ring", lambda r: shown(r["ring_bound_MBps"], ".1f"))]))
    for name in names:
        if kinds[name] == LOOPBACK and name not in ways:
            parts += comparable_tables(lines, name)
        elif kinds[name] == LATENCY:
            rows = rows_of(lines, name)
            parts += [f"Latency on loopback, {rows[0]['n']} ranks:\n", latency_table(rows)]
    parts += [way_table(lines, ways)] if ways else []
    parts += [rack_table(lines, racks)] if racks else []
    cpu, kernels = cpu_table(lines), [r for r in lines if "kernel" in r]
    parts += [cpu] if cpu else []
    parts += [kernel_table(kernels)] if kernels else []
    parts += [f"![{PLOTS[path.stem]}]({os.path.relpath(path, folder)})\n" for path in plots if path.stem in PLOTS]
    checks = checks_of(lines)
    if checks:
        parts.append(table(["where", "target", "value", "measured", "compared with", "verdict"],
                           [[cell.replace("<=", "≤").replace(">=", "≥") for cell in c.row()] for c in checks]))
    return "\n".join(parts)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1].startswith("-"):
        wanted = "--help" in sys.argv or "-h" in sys.argv
        print(__doc__, file=sys.stdout if wanted else sys.stderr)
        sys.exit(0 if wanted else 2)
    pathlib.Path(sys.argv[3]).mkdir(parents=True, exist_ok=True)
    everything = read(sys.argv[1])
    drawn = plot.write_all(everything, sys.argv[3])
    text = markdown(everything, drawn, pathlib.Path(sys.argv[2]).parent)
    pathlib.Path(sys.argv[2]).write_text(text, encoding="utf-8")
