#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test programs of one or more builds. The last line is the sum: N passed, N failed, N skipped.

    tests/run.py [OPTION ...] FOLDER[=SANITIZERS] ...

    tests/run.py --check 'make lint' build/default build/thread=thread

Programs:

    tests/unit/**/test_*.c   built, with Check
    tests/sim/test_*.c       built; exit status 0: passed, 77: skipped, other: failed
    tests/fuzz/fuzz_*.c      built, with the committed inputs as arguments; exit status as above
    tests/e2e/**/test_*.c    built; exit status as above
    tests/e2e/**/test_*.py   unittest; tests/e2e and its folders are in PYTHONPATH

The folder below tests/unit and tests/e2e says what is tested: tests/unit/server/core, tests/e2e/server.

--check COMMAND runs a command and counts it as one test.

The line below the licence line of a source says how its program runs: `# run: WORDS` in Python, `/* run: WORDS */` in
C. The words of end-to-end tests:

    alone           no other program runs at the same time, because the test measures time or changes the build
    beside-others   other programs may run at the same time
    grpc            Python only: in the default build the program runs once more with REDUCTION_TRANSPORT=grpc;
                    under AddressSanitizer the programs test_grpc_* are enough for the driver
    no-tsan         not under ThreadSanitizer
    all-only        not in `make test`, only in `make test-all`

An end-to-end test has exactly one of `alone` and `beside-others`. Under sanitizers both run beside others, because
times mean nothing there. The word of the simulator is `idle`: it runs beside all others, on processor time that they
leave, and not under ThreadSanitizer. The word of unit tests is `tsan`: the test starts threads, so ThreadSanitizer runs
it too. Fuzz targets and unit tests without a `run:` line run in all builds but that of ThreadSanitizer. A wrong or
missing word is an error, and then no program runs.

Programs beside others run --jobs at a time. The simulator runs for 240 s, with sanitizers for 60 s;
with --part test for 60 and 20 s. The whole output of
a failed program is shown. A program also fails if it exceeds its time limit, runs no test, or leaves processes behind,
that is, if they live 5 s after its end; such processes are killed.

--part test: what `make test` runs, which is for every change: unit tests and fuzz targets in all builds, the simulator
for a short time, and in the default build the end-to-end tests without `all-only`, each once. --part rest: all others,
which `make test-all` runs too: longer simulations, end-to-end tests with `all-only`, over gRPC, and under sanitizers.

--turn I/N: of the end-to-end programs under each sanitizer, only each N-th, from number I on. All turns together run
all of them.

--again N: on a busy machine a time limit within an end-to-end test may be too short. Up to N end-to-end programs that
failed run once more at the end, with nothing beside them, and the second result counts. The output of the first is
shown all the same, and the end names these programs: each is a test to repair. There is no second run after a report of
a sanitizer, a crash, a time limit of the whole program, or processes left behind: these are never luck.
"""

import argparse
import concurrent.futures
import contextlib
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
MARK = "RS_TEST_PROGRAM"  # environment variable of a program and of all processes that it starts
LIMIT_S = 1800  # of each program; on a slow day test_elastic took 540 s and test_tls 410 s
END_S = 5  # until a process that a program has started must have ended
KINDS = {  # the words that a source's `run:` line may have, and of which of them it has exactly one
    "unit": ({"tsan"}, set()),
    "sim": ({"idle"}, {"idle"}),
    "fuzz": (set(), set()),
    "e2e": ({"all-only", "alone", "beside-others", "grpc", "no-tsan"}, {"alone", "beside-others"}),
}
SKIPPED = 77
CRASH = re.compile(r"(ERROR|WARNING): \w+Sanitizer|: runtime error: |Assertion `|exit status -(?!9\b|15\b)\d")
PR_SET_CHILD_SUBREAPER = 36


class Program:
    """A test program of one build.

    kind      how its tests are counted: "libcheck", "unittest", or "status" for one test
    limit     seconds
    parallel  other programs may run at the same time
    idle      as parallel, and it only gets processor time that the others leave
    env       additional environment variables
    """

    def __init__(self, label, argv, kind, limit, build="", san="", parallel=False, idle=False, env=None):
        self.label, self.argv, self.kind, self.limit = label, argv, kind, limit
        self.build, self.san, self.parallel, self.idle, self.env = build, san, parallel, idle, env or {}


def kind_of(source):
    """The folder of tests/ in which a source is: a key of KINDS."""
    return source.relative_to(ROOT / "tests").parts[0]


@functools.lru_cache
def python_path(root):
    """PYTHONPATH of end-to-end tests, whose helpers are in tests/e2e, and which may use each other's."""
    e2e = root / "tests/e2e"
    return ":".join(map(str, [e2e, *sorted(p for p in e2e.glob("**/") if p != e2e and p.name != "__pycache__")]))


def name_of(source):
    """What --match looks at: the folder and the name, as in "server/core/test_slot"."""
    return str(source.relative_to(ROOT / "tests" / kind_of(source)).with_suffix(""))


def needs(source):
    """The words of a source's `run:` line, as a set. ValueError: the line is missing, misplaced or wrong."""
    words, choices = KINDS[kind_of(source)]
    form = r"# run: (.*)" if source.suffix == ".py" else r"/\* run: (.*) \*/"
    lines = source.read_text().splitlines()
    found = [(i, match[1]) for i, line in enumerate(lines) if (match := re.fullmatch(form, line))]
    if len(found) > 1 or found and "SPDX-License-Identifier" not in lines[found[0][0] - 1]:
        raise ValueError(f"{source}: one `run:` line is expected, below the licence line")
    said = found[0][1].split(" ") if found else []
    for word in said:
        if word not in words:
            raise ValueError(f"{source}: '{word}' in the `run:` line; known are: {', '.join(sorted(words)) or 'none'}")
        if said.count(word) > 1:
            raise ValueError(f"{source}: '{word}' is twice in the `run:` line")
    if choices and len(choices & set(said)) != 1:
        raise ValueError(f"{source}: the `run:` line must have exactly one of: {', '.join(sorted(choices))}")
    if "grpc" in said and source.suffix != ".py":
        raise ValueError(f"{source}: 'grpc' in the `run:` line is for Python tests")
    return set(said)


@functools.lru_cache
def usable(*prefix):
    """The command `prefix`, which runs another command, as a list; an empty list if it does not work here."""
    try:
        return list(prefix) if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


def fixed_addresses():
    """ThreadSanitizer needs this prefix where the kernel randomizes addresses more than it can handle."""
    return usable("setarch", "-R")


def under_tsan(source, words):
    """Does ThreadSanitizer run this source's program? Only programs with threads can have data races."""
    return "no-tsan" not in words if kind_of(source) == "e2e" else "tsan" in words


def in_part(part, source, words, san):
    """Does --part have the first run of this source's program?"""
    kind = kind_of(source)
    if not part or kind == "sim":
        return True
    return (part == "test") == (kind != "e2e" or not san and "all-only" not in words)


def turn_of(text):
    """Returns (I, N) of "I/N"."""
    found = re.fullmatch(r"(\d+)/([1-9]\d*)", text)
    if not found or int(found[1]) >= int(found[2]):
        raise argparse.ArgumentTypeError(f'found "{text}", expected I/N with I from 0 to N - 1, such as 0/2')
    return int(found[1]), int(found[2])


def program(source, words, build, san, part=None):
    unit, sim, fuzz, e2e = (kind_of(source) == kind for kind in KINDS)
    label = f"{san or 'default'} {source.relative_to(ROOT / 'tests').with_suffix('')}"
    parallel = not e2e or bool(san) or "beside-others" in words
    before = fixed_addresses() if "thread" in san else []
    if source.suffix == ".py":
        env = {"PYTHONPATH": python_path(ROOT)}
        return Program(label, [*before, PYTHON, str(source)], "unittest", LIMIT_S, build, san, parallel, env=env)
    built = str(build / source.relative_to(ROOT).with_suffix(""))
    args = [str(source.parent / "corpus" / source.stem.removeprefix("fuzz_"))] if fuzz else []
    env = {"CK_TIMEOUT_MULTIPLIER": "10"} if unit else {}  # 40 s for a test; a test may set another limit
    if unit and "address" in san:
        # Check forks for each test, and forking a process that has AddressSanitizer's
        # shadow memory is slow
        env["CK_FORK"] = "no"
    if sim:
        seconds = (20 if san else 60) if part == "test" else 60 if san else 240
        args, before = ["--seconds", str(seconds)], usable("chrt", "--idle", "0")
    kind = "libcheck" if unit else "status"
    return Program(label, [*before, built, *args], kind, LIMIT_S, build, san, parallel, "idle" in words, env)


def over_grpc(source, words, build, san):
    """The second run of a program, over gRPC; None if it has none."""
    if "grpc" not in words or san or not (build / "lib/libreduction-grpc.so").exists():
        return None
    p = program(source, words, build, san)
    p.label += " over gRPC"
    p.env.update(REDUCTION_TRANSPORT="grpc", REDUCTION_TEST_SLOW="1")  # repetitions at a larger scale use TCP only
    return p


def programs(folders, only, match, part=None, turn=(0, 1)):
    """Yields lists of programs: for each folder and kind, first the programs and then their runs over gRPC."""
    for folder in folders:
        name, _, san = folder.partition("=")
        for kind in [only] if only else KINDS:
            patterns = ("test_*.c", "test_*.py", "fuzz_*.c")
            sources = sorted(s for p in patterns for s in ROOT.glob(f"tests/{kind}/**/{p}"))
            build = (ROOT / name).resolve()
            pairs = [(s, needs(s)) for s in sources]
            chosen = [(s, w) for s, w in pairs if match in name_of(s) and ("thread" not in san or under_tsan(s, w))]
            if san and kind == "e2e":
                chosen = chosen[turn[0] :: turn[1]]
            yield [program(s, w, build, san, part) for s, w in chosen if in_part(part, s, w, san)]
            yield [p for s, w in chosen if part != "test" and (p := over_grpc(s, w, build, san))]


def long_first(program):
    """Sort key: programs that take long come first, so that none of them runs by itself at the end."""
    slow = 2 if "thread" in program.san else 1 if program.san else 0
    return (" e2e/" not in program.label, -slow)


def count(program, text, status):
    """(passed, failed, skipped) from the output of a program."""
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
    """Process ids of the processes whose environment has this mark."""
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as f:
                    if wanted in f.read().split(b"\0"):
                        yield int(entry)
            except OSError:
                pass  # has ended, or belongs to another user


def end_marked(mark):
    """Kills the processes that a program left behind; returns a line for each. Those that end now are none of them: the
    kernel takes a while to end a process that was killed, on a busy machine a second."""
    left = []
    deadline = time.monotonic() + END_S
    while any(marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for _ in range(10):  # repeatedly, because a process may have started another in the meantime
        found = list(marked(mark))
        for pid in found:
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    command = f.read().replace(b"\0", b" ").decode("utf-8", "replace")
                os.kill(pid, signal.SIGKILL)
                left.append(f"left behind: process {pid}: {command}\n")
                os.waitpid(pid, 0)  # this process is the subreaper: it is the parent once the original parent has ended
            except OSError:
                pass
        if not found:
            break
    return left


def yield_to_others(pid):
    """Gives a program that leads a session the smallest share of the processors. Linux may divide them among sessions
    first (autogroup), and then the priority inside a session means nothing to others."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/autogroup", "w") as f:
        f.write("19")


class Runner:
    """Runs programs and keeps the sums. Any thread or signal handler may call stop()."""

    def __init__(self, timeout, most_again=0):
        self.timeout = timeout
        self.sums = [0, 0, 0]
        self.again = []  # programs for a second run
        self._most_again = most_again
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._marks = (f"{os.getpid()}-{n}" for n in itertools.count())

    def stop(self):
        self._stopped.set()

    def stopped(self):
        return self._stopped.is_set()

    def run_again(self):
        """Runs the programs of `again`, after all others. Returns their labels."""
        self._most_again = 0
        for program in self.again:
            self.run(program)
        return [program.label for program in self.again]

    def _wait(self, process, limit):
        """Waits for the end. Returns a sentence if the process had to be ended, otherwise an empty string."""
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
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # a test may run make, independently of this one
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
                if program.idle:
                    yield_to_others(process.pid)
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
            luck = " e2e/" in program.label and not notes and not CRASH.search(text)
            again = failed and luck and len(self.again) < self._most_again
            if again:
                self.again.append(program)
            for i, n in enumerate((passed, failed, skipped)):
                self.sums[i] += 0 if again else n
            if failed:
                sys.stdout.write("".join(f"    {line}\n" for line in (text + notes).splitlines()))
            more = (f", {failed} failed" if failed else "") + (f", {skipped} skipped" if skipped else "")
            verdict = "busy" if again else "FAIL" if failed else "ok"
            print(f"{verdict:4} {program.label:50} {seconds:6.1f} s  {passed} passed{more}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER[=SANITIZERS]")
    parser.add_argument("--check", action="append", default=[], metavar="COMMAND", help="may be repeated")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--part", choices=("test", "rest"), help="default: both")
    parser.add_argument("--turn", type=turn_of, default=(0, 1), metavar="I/N", help="default 0/1: all programs")
    parser.add_argument("--match", default="", help="only programs with this in their folder or name")
    parser.add_argument("--jobs", type=int, default=min(4, 2 + (os.cpu_count() or 1)), help="programs at once")
    parser.add_argument("--again", type=int, default=0, metavar="N", help="programs that may have a second run; 0")
    parser.add_argument("--timeout", type=float, help=f"seconds for each program; default {LIMIT_S}")
    args = parser.parse_args()

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    checks = [Program(f"check {c}", ["/bin/sh", "-c", c], "status", 900) for c in args.check]
    try:
        todo = [p for group in programs(args.folders, args.only, args.match, args.part, args.turn) for p in group]
    except ValueError as exc:
        print(f"run.py: {exc}", file=sys.stderr)
        return 2
    idle = [p for p in todo if p.idle]
    beside = sorted((p for p in todo if p.parallel and not p.idle), key=long_first)
    alone = [p for p in todo if not p.parallel]
    todo += checks
    runner = Runner(args.timeout, args.again)
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
            pass  # raises what a thread has raised
    again = runner.run_again()
    if again:
        print(f"had a second run, alone; each is a test to repair: {', '.join(again)}")
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
