#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the README's commands literally, on machines without the project.

Makes bare Debian roots with mmdebstrap, clones the last commit into each, and runs the README's commands there: `make
demo`, `make`, `make install`, its C and Python examples, `make uninstall`, and the build of `make test`. Each root is
an overlay over the bare root of its Debian, in namespaces of its own, so roots do not see each other.

Every root is bare when it starts. Between roots, and from run to run, --cache keeps downloaded packages, as a package
mirror would, and compiled objects of ccache (CCACHE=). ccache is outside of Debian's folders and unknown to its dpkg.
Its key has the compiler, the flags and the contents of all included files, so a root gets only objects that its own
compiler would make. --no-ccache compiles everything in every root. Within a run a package is decompressed once.

Steps of a root go on after one that failed. Ends with a table, and for the step `test` with the tests that failed in
each root. That step measures times, so with it --jobs is 1 unless it is given. Exit status: 0 all passed, 1 something
failed, 77 roots cannot be made here (the reason is printed), 2 wrong usage.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

import foreign
import steps
from root import Base, Root, RootError, fits_in_memory

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEBIANS = ("12", "13")
SKIPPED = 77


def why_not(cache):
    """Returns a sentence that says why roots cannot be made here; an empty one if they can."""
    if os.geteuid() != 0:
        return "roots need root; run it as root or with sudo"
    for program in ("mmdebstrap", "unshare", "git"):
        if not shutil.which(program):
            return f"{program} was not found: run deploy/install-deps.sh fresh"
    trial = cache / "run" / "trial"
    for folder in ("lower", "upper", "work", "root"):
        (trial / folder).mkdir(parents=True, exist_ok=True)
    mount = "cd $0 && mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root"
    argv = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", mount, trial]
    tried = subprocess.run(argv, capture_output=True, text=True)
    if tried.returncode != 0:
        return f"namespaces with overlays cannot be made here: {tried.stderr.strip()}"
    return ""


def clone(target):
    """Clones the last commit, as a user gets it. Returns the commit."""
    subprocess.run(
        ["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", target], check=True, stdin=subprocess.DEVNULL
    )
    done = subprocess.run(
        ["git", "-C", target, "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class Report:
    """Results by root and step; prints each as it comes. Rows are (status, seconds); status is ok or FAIL."""

    def __init__(self):
        self.rows = {}
        self.phases = {}
        self.tests = []

    def add(self, root, step, status, seconds, detail=""):
        self.rows.setdefault(root, {})[step] = (status, seconds)
        print(f"{status:4} {root:24} {step:14} {seconds:6.1f} s{'  ' + detail if detail else ''}", flush=True)

    def add_phases(self, step, seconds, phases):
        """Adds up the phases of a step over all roots; what has no name is the rest."""
        total = self.phases.setdefault(step, {})
        for phase, part in (*phases.items(), ("the rest", seconds - sum(phases.values()))):
            total[phase] = total.get(phase, 0) + part

    def table(self, names):
        print(f"\n{'root':24}" + "".join(f"{n:>15}" for n in names))
        for root, row in self.rows.items():
            cells = (f"{row[n][0]} {row[n][1]:.0f} s" if n in row else "-" for n in names)
            print(f"{root:24}" + "".join(f"{c:>15}" for c in cells))
        print("\nseconds of all roots together:")
        for step, phases in self.phases.items():
            print(f"{step:14} " + ", ".join(f"{phase} {seconds:.0f}" for phase, seconds in phases.items()))
        print("".join(f"\n{line}" for line in self.tests))

    def count(self, status):
        return sum(s == status for row in self.rows.values() for s, _ in row.values())


def run_root(base, variant, chosen, args, report):
    """Runs the chosen steps in one root."""
    name = f"debian {base.debian} {variant.name}"
    try:
        with Root(base, name, args.cache, ccache=not args.no_ccache, memory=args.memory) as root:
            root.options = args
            variant.prepare(root)
            for step in chosen:
                run_step(root, variant, step, args, report)
    except (RootError, subprocess.CalledProcessError) as exc:
        report.add(name, "root", "FAIL", 0, str(exc))


def run_step(root, variant, step, args, report):
    """Runs one step. Its detail says where the time went; the end of the log is shown if it failed."""
    started = time.monotonic()
    log = args.cache / "logs" / f"{root.name.replace(' ', '-')}-{step}.log"
    log.unlink(missing_ok=True)
    root.phases = {}
    problem = steps.STEPS[step](root, variant, log)
    seconds = time.monotonic() - started
    compiled, found = root.compilations()
    details = [f"{phase} {s} s" for phase, s in root.phases.items()]
    if compiled:
        details.append(f"{found} of {compiled} objects from ccache")
    report.add(root.name, step, "FAIL" if problem else "ok", seconds, problem or ", ".join(details))
    report.add_phases(step, seconds, root.phases)
    if step == "test":
        report.tests += steps.verdicts(root.name, log)
    if problem:
        lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
        print("".join(f"    | {line}\n" for line in lines[-40:]), end="", flush=True)


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--debian", default="12,13", help="comma-separated, of 12 and 13 (default both)")
    p.add_argument("--roots", default="all", help=f"comma-separated, of {', '.join(steps.VARIANTS)} (default all)")
    p.add_argument(
        "--steps",
        default="usual",
        help=f"comma-separated, of {', '.join(steps.STEPS)}; usual: all but the long "
        "ones, test and demos (default)",
    )
    p.add_argument(
        "--cache", type=pathlib.Path, default=ROOT / "build" / "fresh", help="folder of packages, roots, logs"
    )
    p.add_argument(
        "--artefacts", type=pathlib.Path, help="folder with a wheel and an archive for the steps of that name"
    )
    p.add_argument(
        "--foreign",
        default=",".join(foreign.FOREIGN),
        help="comma-separated: the machines of the steps wheel and archive (default %(default)s)",
    )
    p.add_argument("--jobs", type=int, help="roots at the same time (default: processors, but 1 with the step test)")
    p.add_argument("--no-ccache", action="store_true", help="compile everything in every root")
    args = p.parse_args()
    for option in ("debian", "roots", "foreign"):
        setattr(args, option, getattr(args, option).split(","))
    args.steps = steps.USUAL if args.steps == "usual" else args.steps.split(",")
    if args.roots == ["all"]:
        args.roots = list(steps.VARIANTS)
    for option, known in (
        ("debian", DEBIANS),
        ("roots", steps.VARIANTS),
        ("steps", steps.STEPS),
        ("foreign", foreign.FOREIGN),
    ):
        for word in getattr(args, option):
            if word not in known:
                p.error(f'--{option}: found "{word}", expected {", ".join(known)}')
    args.cache = args.cache.resolve()
    args.jobs = args.jobs or (1 if "test" in args.steps else os.cpu_count())
    return args


def make_base(debian, args, source):
    started = time.monotonic()
    base = Base.of(debian, args.cache, source)
    print(f"ok   debian {debian} bare root, made in {time.monotonic() - started:.1f} s", flush=True)
    return base


def main():
    args = parse_arguments()
    started = time.monotonic()
    shutil.rmtree(args.cache / "run", ignore_errors=True)
    reason = why_not(args.cache)
    if reason:
        print(f"fresh: skipped: {reason}")
        return SKIPPED
    for folder in ("logs", "run"):
        (args.cache / folder).mkdir(parents=True, exist_ok=True)
    source = args.cache / "run" / "clone"
    commit = clone(source)
    print(
        f"fresh: commit {commit}; changes that are not committed are left out; logs in {args.cache / 'logs'}"
    )
    args.memory = fits_in_memory(args.jobs)
    print(f"fresh: {args.jobs} roots at a time, {'in memory' if args.memory else 'on the disk'}")
    report = Report()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        bases = list(pool.map(lambda debian: make_base(debian, args, source), args.debian))
        todo = [(base, steps.VARIANTS[name]) for name in args.roots for base in bases]
        running = [
            pool.submit(run_root, base, variant, variant.steps(args.steps, base.debian), args, report)
            for base, variant in todo
        ]
        for future in running:
            future.result()
    report.table([s for s in steps.STEPS if s in args.steps])
    shutil.rmtree(args.cache / "run", ignore_errors=True)
    failed = report.count("FAIL")
    print(f"commit {commit}, {time.monotonic() - started:.0f} s: {shlex.join(sys.argv)}")
    print(f"fresh: {report.count('ok')} steps ok, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RootError as error:
        print(f"fresh: {error}", file=sys.stderr)
        sys.exit(1)
