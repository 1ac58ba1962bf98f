#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test programs of one or more builds and ends with one line: N passed, N failed, N skipped.

    tests/run.py [OPTION ...] FOLDER[=SANITIZERS] ...

    tests/run.py --check 'make lint' build/default build/thread=thread

Programs: tests/unit/test_*.c (built, Check), tests/sim/test_*.c and tests/e2e/test_*.c (built; exit status 0 passed,
77 skipped, anything else failed), tests/fuzz/fuzz_*.c (built, run on their committed inputs; exit status as well) and
tests/e2e/test_*.py (unittest). A --check is a command that counts as one test.
ThreadSanitizer has nothing to say of what has one thread: of that build only end-to-end tests run, and units that start
threads, but for those that say "Not under ThreadSanitizer" in their first lines.
End-to-end tests that say "Also over gRPC" in their first lines run once more with REDUCTION_TRANSPORT=grpc, but not
under ThreadSanitizer, which does not know gRPC's threads.
All but end-to-end tests that are built without sanitizers run side by side, and of those the ones that say "Runs beside
others." in their first lines. The simulator runs for five minutes in all, on what the others leave of the processors.
The whole output of a program is shown when it failed. A program fails as well when its time is over, when it ran no
test, and when it leaves processes behind; those are ended.
"""

import argparse
import concurrent.futures
import ctypes
import functools
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"
MARK = "RS_TEST_PROGRAM"  # in the environment of a program and of everything that it starts
SKIPPED = 77
BESIDE = "Runs beside others."
NO_RACES = "Not under ThreadSanitizer"
GRPC = "Also over gRPC"  # followed by ", beside others.": the second time is not about how long things take
PR_SET_CHILD_SUBREAPER = 36


class Program:
    """A test program of one build. `kind` is how its tests are counted: libcheck, unittest or status (it
    is one test). `limit` is in seconds. `parallel`: others may run at the same time; `idle`: all others may, and it
    takes no processor from them. `env`: more variables."""

    def __init__(self, label, argv, kind, limit, build="", san="", parallel=False, idle=False, env=None):
        self.label, self.argv, self.kind, self.limit = label, argv, kind, limit
        self.build, self.san, self.parallel, self.idle, self.env = build, san, parallel, idle, env or {}


@functools.lru_cache
def usable(*prefix):
    """A command that runs another one, as a list; an empty one where it is not allowed."""
    try:
        return list(prefix) if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


def fixed_addresses():
    """With it ThreadSanitizer finds its memory also where the kernel randomizes more than it expects."""
    return usable("setarch", "-R")


def has_threads(source):
    """Whether ThreadSanitizer can say something of it that it does not say of others; it does not see how gRPC, which
    is not built for it, hands things from thread to thread."""
    text = source.read_text()
    if source.parent.name == "e2e":
        return NO_RACES not in text[:2000]
    return "pthread.h" in text and "proto/rpc/" not in text


def program(source, build, san):
    unit, sim, fuzz = (source.parent.name == kind for kind in ("unit", "sim", "fuzz"))
    label = f"{san or 'default'} {source.parent.name}/{source.stem}"
    limit = 1200  # for a machine with a bad day, where test_elastic took 540 and test_tls 410 s: a hang is longer
    # without sanitizers end-to-end tests look at how long things take
    parallel = source.parent.name != "e2e" or bool(san) or BESIDE in source.read_text()[:2000]
    before = fixed_addresses() if "thread" in san else []
    if source.suffix == ".py":
        return Program(label, [*before, PYTHON, str(source)], "unittest", limit, build, san, parallel)
    built = str(build / source.relative_to(ROOT).with_suffix(""))
    args = [str(source.parent / "corpus" / source.stem.removeprefix("fuzz_"))] if fuzz else []
    env = {"CK_TIMEOUT_MULTIPLIER": "10"} if unit else {}  # of 4 s for a test, unless it says more
    if unit and "address" in san:
        # as many forks of a process with AddressSanitizer's shadow as there are tests take most of a program's time
        env["CK_FORK"] = "no"
    if sim:
        args, before = ["--seconds", "60" if san else "240"], usable("chrt", "--idle", "0")
    kind = "libcheck" if unit else "status"
    return Program(label, [*before, built, *args], kind, limit, build, san, parallel, idle=sim, env=env)


def over_grpc(source, build, san):
    """The program's second run; None where it has none."""
    head = source.read_text()[:2000]
    if source.suffix != ".py" or GRPC not in head or "thread" in san:
        return None
    if not (build / "lib/libreduction-grpc.so").exists():
        return None
    p = program(source, build, san)
    p.label += " over gRPC"
    p.env.update(REDUCTION_TRANSPORT="grpc", REDUCTION_TEST_SLOW="1")  # what repeats on a larger scale is for TCP
    p.parallel = p.parallel or f"{GRPC}, beside others." in head
    return p


def programs(folders, only, match):
    """All of the folders; each kind of a folder is a list."""
    for folder in folders:
        name, _, san = folder.partition("=")
        for kind in [only] if only else ["unit", "sim", "fuzz", "e2e"]:
            sources = sorted(s for p in ("test_*.c", "test_*.py", "fuzz_*.c") for s in ROOT.glob(f"tests/{kind}/{p}"))
            build = (ROOT / name).resolve()
            chosen = [s for s in sources if match in s.stem and ("thread" not in san or has_threads(s))]
            yield [program(s, build, san) for s in chosen]
            yield [p for s in chosen if kind == "e2e" and (p := over_grpc(s, build, san))]


def long_first(program):
    """Sorts so that no long program is left for the end, when others have nothing to do."""
    slow = 2 if "thread" in program.san else 1 if program.san else 0
    return (" e2e/" not in program.label, -slow)


def count(program, text, status):
    """(passed, failed, skipped) from what a program wrote."""
    if program.kind == "libcheck":
        rows = re.findall(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)", text, re.M)
        total, skipped = sum(int(r[0]) for r in rows), 0
        failed = sum(int(r[1]) + int(r[2]) for r in rows)
    elif program.kind == "unittest":
        total = sum(map(int, re.findall(r"^Ran (\d+) tests? in ", text, re.M)))  # 0 when all of a module is skipped
        verdict = re.findall(r"^(?:OK|FAILED) \((.*)\)$", text, re.M)[-1:]
        parts = dict(re.findall(r"([a-z ]+?)=(\d+)", verdict[0].replace(", ", ",")) if verdict else [])
        skipped = int(parts.get("skipped", 0))
        total = max(total, skipped)
        failed = sum(int(parts.get(k, 0)) for k in ("failures", "errors", "unexpected successes"))
    else:
        total, skipped, failed = 1, int(status == SKIPPED), int(status not in (0, SKIPPED))
    if failed == 0 and (total == 0 or status not in (0, SKIPPED)):
        failed, total = 1, total + 1
    return max(0, total - failed - skipped), failed, skipped


def marked(mark):
    """Process ids of those that carry a mark."""
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as f:
                    if wanted in f.read().split(b"\0"):
                        yield int(entry)
            except OSError:
                pass  # ended meanwhile, or is not ours


def end_marked(mark):
    """Ends what a program left behind; returns a line for each."""
    left = []
    for _ in range(10):  # again: one may have started another meanwhile
        found = list(marked(mark))
        for pid in found:
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    command = f.read().replace(b"\0", b" ").decode("utf-8", "replace")
                os.kill(pid, signal.SIGKILL)
                left.append(f"left behind: process {pid}: {command}\n")
                os.waitpid(pid, 0)  # as the subreaper we are its parent, unless its own parent has not ended
            except OSError:
                pass
        if not found:
            break
    return left


class Runner:
    """Runs programs and keeps the sums. stop() may be called from another thread or a signal handler."""

    def __init__(self, timeout):
        self.timeout = timeout
        self.sums = [0, 0, 0]
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._marks = (f"{os.getpid()}-{n}" for n in itertools.count())

    def stop(self):
        self._stopped.set()

    def stopped(self):
        return self._stopped.is_set()

    def _wait(self, process, limit):
        """Waits for the end; returns a sentence when it had to be ended, else an empty one."""
        deadline = time.monotonic() + limit
        while True:
            try:
                process.wait(0.5)
                return ""
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline and not self.stopped():
                    continue
            process.terminate()  # Python programs clean up after themselves
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return "was interrupted\n" if self.stopped() else f"did not end within {limit:.0f} s\n"

    def run(self, program):
        if self.stopped():
            return
        limit = self.timeout or program.limit
        env = dict(os.environ)
        env.update(program.env, REDUCTION_BUILD=str(program.build), REDUCTION_SAN=program.san)
        env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # a make that is run by a test is not part of this one
            env.pop(name, None)
        started = time.monotonic()
        with self._lock:
            env[MARK] = mark = next(self._marks)
        with tempfile.TemporaryFile() as out:
            try:
                process = subprocess.Popen(
                    program.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=ROOT,
                    start_new_session=True,
                )
                notes = [self._wait(process, limit)] + end_marked(mark)
                status = process.returncode
            except OSError as exc:
                notes, status = [f"{exc}\n"], 127
            out.seek(0)
            text = out.read().decode("utf-8", "replace")
        if status < 0:
            notes.append(f"ended by signal {-status} ({signal.strsignal(-status)})\n")
        self._report(program, text, "".join(notes), status, time.monotonic() - started)

    def _report(self, program, text, notes, status, seconds):
        passed, failed, skipped = count(program, text, status)
        if notes:
            failed = max(1, failed)
        with self._lock:
            for i, n in enumerate((passed, failed, skipped)):
                self.sums[i] += n
            if failed:
                sys.stdout.write("".join(f"    {line}\n" for line in (text + notes).splitlines()))
            more = (f", {failed} failed" if failed else "") + (f", {skipped} skipped" if skipped else "")
            verdict = "FAIL" if failed else "ok"
            print(f"{verdict:4} {program.label:50} {seconds:6.1f} s  {passed} passed{more}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER[=SANITIZERS]")
    parser.add_argument("--check", action="append", default=[], metavar="COMMAND", help="may be repeated")
    parser.add_argument("--only", choices=("unit", "sim", "fuzz", "e2e"))
    parser.add_argument("--match", default="", help="only programs with this in their name")
    parser.add_argument("--jobs", type=int, default=min(4, 2 + (os.cpu_count() or 1)), help="programs at once")
    parser.add_argument("--timeout", type=float, help="seconds for each; default 150 for units, 300 for others, more "
                        "under sanitizers")
    args = parser.parse_args()

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    checks = [Program(f"check {c}", ["/bin/sh", "-c", c], "status", 900) for c in args.check]
    todo = [p for group in programs(args.folders, args.only, args.match) for p in group]
    idle = [p for p in todo if p.idle]
    beside = sorted((p for p in todo if p.parallel and not p.idle), key=long_first)
    alone = [p for p in todo if not p.parallel]
    todo += checks
    runner = Runner(args.timeout)
    signal.signal(signal.SIGTERM, lambda *_: runner.stop())
    signal.signal(signal.SIGINT, lambda *_: runner.stop())
    started = time.monotonic()
    for program in checks:
        runner.run(program)
    with concurrent.futures.ThreadPoolExecutor(1) as leftover, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        last = leftover.map(runner.run, idle)
        for program in alone:
            runner.run(program)
        for _ in itertools.chain(pool.map(runner.run, beside), last):
            pass  # what a thread has raised is raised here
    print(f"{len(todo)} programs in {time.monotonic() - started:.0f} s")
    passed, failed, skipped = runner.sums
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    if runner.stopped():
        return 130
    if not todo:
        print("no test program was found", file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
