# SPDX-License-Identifier: Apache-2.0
"""The kinds of roots, and what is done in each. A step is a function (root, variant, log) that returns a sentence that
says what went wrong, or an empty one."""

import re

import foreign
import readme
from root import SHARED, TOOLS, TREE, Root

NEEDED_LINE = re.compile(r"^apt-get update && apt-get install -y --no-install-recommends .*", re.M)


class Variant:
    """A machine with something installed already. Unprivileged ones run everything as an ordinary user; `admin` is what
    that user puts before a command that needs root, None if there is no way."""

    def __init__(self, name, packages=(), user=False, admin=""):
        self.name, self.packages, self.user, self.admin = name, packages, user, admin

    def prepare(self, root):
        if self.packages:
            root.must(f"apt-get -q install -y --no-install-recommends {' '.join(self.packages)}", folder="/")
        if not self.user:
            root.must(f"chown -R root:root {TREE}")
        if self.name == "sudo":
            root.must("echo 'user ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/user", folder="/")

    def steps(self, wanted, debian):
        if self.admin is None:
            return [s for s in wanted if s in ("demo", "install", "test-build")]
        # packages and torch are the same on every machine of a Debian
        return [
            s
            for s in wanted
            if (s not in ("deb", "torch", "wheel", "archive") or self.name == "build-essential")
            and (s not in ("wheel", "archive") or debian == foreign.MADE_BY)
        ]

    def run(self, root, command, log, **options):
        return root.run(command, log, user=self.user, **options)


class OtherPython(Variant):
    """Another python3 is first on PATH, and has none of Debian's modules."""

    def prepare(self, root):
        super().prepare(root)
        root.must(
            "apt-get -q install -y --no-install-recommends python3-minimal && "
            "printf '#!/bin/sh\\nexec /usr/bin/python3 "
            '-I -S "$@"\\n\' >/usr/local/bin/python3 && chmod 755 /usr/local/bin/python3',
            folder="/",
        )


VARIANTS = {
    v.name: v
    for v in (
        Variant("build-essential", ["build-essential"]),
        Variant("bare"),
        Variant("mpich", ["mpich"]),
        OtherPython("other-python"),
        Variant("sudo", ["sudo"], user=True, admin="sudo "),
        Variant("no-root", user=True, admin=None),
    )
}


def without_root(root, variant, command, log):
    """Neither root nor sudo: the command must print the one line to run; then an administrator runs that line."""
    if variant.admin is not None:
        return ""
    status, output = variant.run(root, command, log)
    line = NEEDED_LINE.search(output)
    if status == 0:
        return ""  # the packages are there since an earlier step
    if not line:
        return f"{command} fails with {status} and does not say what to install"
    status, _ = root.run(line.group(0), log, folder="/")
    return f"the line that {command} prints fails with {status}" if status else ""


def command(line, limit=3600):
    def step(root, variant, log):
        problem = without_root(root, variant, line, log)
        if problem:
            return problem
        status, _ = variant.run(root, line, log, limit=limit)
        return f"{line}: exit status {status}" if status else ""

    return step


def snapshot(root):
    """All files and folders that an installation may touch."""
    return set(
        root.must(
            f"find /usr /etc /opt /var/lib -xdev -not -path '{TOOLS}/*' -not -name ld.so.cache -not -name "
            "'*.pyc' -not -name __pycache__",
            folder="/",
        ).splitlines()
    )


def install(root, variant, log):
    """make, make install, the README's examples, make uninstall; nothing stays behind. Without a way to become root:
    below a folder of the user's."""
    prefix = "" if variant.admin is not None else " PREFIX=/home/user/.local"
    status, _ = variant.run(root, "make -j2", log)
    if status:
        return f"make: exit status {status}"
    before = snapshot(root)
    status, _ = variant.run(root, f"{variant.admin or ''}make install{prefix}", log)
    if status:
        return f"make install: exit status {status}"
    if not prefix:
        problem = readme.examples(root, variant, log)
        if problem:
            return problem
    status, _ = variant.run(root, f"{variant.admin or ''}make uninstall{prefix}", log)
    if status:
        return f"make uninstall: exit status {status}"
    left = sorted(snapshot(root) - before)
    if prefix:
        left += [p for p in root.must("find /home/user/.local 2>/dev/null || true").splitlines()]
    return f"make uninstall leaves {', '.join(left[:5])}" if left else ""


def demos(root, variant, log):
    """The demo with several kinds of arithmetic of PyTorch: each adds and multiplies in another order."""
    rows = []
    for aten in ("default", "avx2"):
        for dnnl in ("SSE41", "AVX2"):
            for threads in (1, 2):
                env = {"ATEN_CPU_CAPABILITY": aten, "DNNL_MAX_CPU_ISA": dnnl}
                status, output = variant.run(root, f"make demo ARGS='--threads {threads}'", log, env=env)
                found = [
                    re.search(p + r" +(\S+) +(\S+)", output)
                    for p in ("part of the bound", "loss of epoch 10, mean of ranks")
                ]
                if status or not all(found):
                    return f"make demo with {env} and {threads} threads: exit status {status}"
                rows.append(
                    f"{aten:8} {dnnl:6} {threads}  " + "  ".join(f"{m.group(1):>9} {m.group(2):>9}" for m in found)
                )
    head = "ATEN_CPU_CAPABILITY, DNNL_MAX_CPU_ISA, threads; largest error / bound: reducers, gloo; last loss: the same"
    print(f"{root.name}: {head}\n" + "\n".join(rows), flush=True)
    return ""


PACKAGES = f"{SHARED}/deb"
ANSWERS = """set -e
reduction-server --listen 127.0.0.1:{0} --grpc 127.0.0.1:{1} >/tmp/log 2>&1 &
trap "kill $!" EXIT
for i in $(seq 60); do ! reductionctl status 127.0.0.1:{1} >/tmp/answer 2>&1 || break; sleep 1; done
cat /tmp/log /tmp/answer
grep -q "jobs 0" /tmp/answer
"""


def deb(root, variant, log):
    """make deb and lintian here; then the packages are installed, used, installed once more and purged in a root of
    their own, which has nothing else that they need. Last the guide of deploy/README.md and an upgrade, on machines
    with this Debian's systemd."""
    for line in (
        "deploy/install-deps.sh build deb",
        "make deb",
        "lintian --allow-root --fail-on error,warning build/deb/*.changes",
        f"mkdir {PACKAGES} && cp build/deb/*.deb {PACKAGES}",
    ):
        status, _ = variant.run(root, line, log)
        if status:
            return f"{line}: exit status {status}"
    with Root(root.base, f"{root.name} packages", root.cache, root.ccache, root.memory) as other:
        problem = packages(other, variant, log)
    return problem or machines(root, variant, log)


def machines(root, variant, log):
    root.must("apt-get -q install -y --no-install-recommends systemd iproute2 openssl passwd python3-numpy", folder="/")
    line = "env PYTHONPATH=tests/e2e python3 tests/e2e/deploy/test_packages.py -v"
    status, output = variant.run(root, line, log)
    if status:
        return f"{line}: exit status {status}"
    skipped = re.search(r"skipped ['\"](.*)['\"]", output)
    return f"{line}: skipped: {skipped[1]}" if skipped else ""


def packages(root, variant, log):
    root.must("apt-get -q install -y --no-install-recommends gcc libc6-dev pkg-config python3-numpy", folder="/")
    before = snapshot(root)
    names = [name.split("_")[0] for name in root.must(f"ls {PACKAGES}").split()]
    own = "/etc/reduction/reduction.yaml"
    port, grpc = next(readme.ports), next(readme.ports)
    for line in (
        f"apt-get -q install -y --no-install-recommends {PACKAGES}/*.deb",
        ANSWERS.format(port, grpc),
        f"mkdir -p /etc/reduction && echo 'job: {{name: own}}' >{own} && reduction-server --check --config {own}",
        f"apt-get -q install -y --reinstall {PACKAGES}/*.deb && reductionctl print {own} | grep 'name: own'",
    ):
        status, _ = root.run(line, log, folder="/")
        if status:
            return f"{line}: exit status {status}"
    problem = readme.examples(root, variant, log)
    if problem:
        return problem
    status, _ = root.run(f"apt-get -q purge -y --auto-remove {' '.join(names)} && rm -r {own}", log, folder="/")
    if status:
        return f"apt-get purge: exit status {status}"
    root.must("rmdir /etc/reduction")
    # packages that came with ours, as systemd, leave files of their own
    left = sorted(p for p in snapshot(root) - before if "reduction" in p)
    return f"apt-get purge leaves {', '.join(left[:5])}" if left else ""


def torch(root, variant, log):
    """PyTorch with this Debian's Python and torch (hybrid sharding needs a newer one than Debian 12's): the process
    group, CUDA tensors on fake GPUs, `local`, and the bundle for machines with a GPU, away from the tree."""
    tests = [f"python/test_torch_{name}" for name in ("group", "train", "errors", "device", "local")]
    bundle = "env PYTHONPATH=/tmp/gpu/python REDUCTION_LIBRARY=/tmp/gpu/lib/libreduction.so.0"
    for line in (
        "deploy/install-deps.sh build demo test",
        "make -j2 all gpu-bundle build/default/tests/cuda/libcuda.so.1",
        "python3 -c 'import sys, torch; print(sys.version, torch.__version__)'",
        *(f"env PYTHONPATH=tests/e2e python3 tests/e2e/{name}.py -v" for name in [*tests, "gpu/test_gpu_torch"]),
        "mv build/gpu /tmp/gpu && cd /tmp/gpu && bin/check-gpu cpu",
        f"cd /tmp/gpu && {bundle} pytorch/gpu-torch --cpu --steps 30 --width 16 --layers 1 --rows 2 --processes 2",
    ):
        status, _ = variant.run(root, line, log)
        if status:
            return f"{line}: exit status {status}"
    return ""


def verdicts(name, log):
    """What the log of `make test` says: the sum, and a line for each test program that failed."""
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    sums = re.findall(r"^\d+ passed, \d+ failed, \d+ skipped$", text, re.M)
    failed = re.findall(r"^FAIL .*\d s  \d+ passed.*", text, re.M)
    return [f"{name}: make test: {sums[-1] if sums else 'no test ran; see ' + str(log)}", *failed]


STEPS = {
    "demo": command("make demo"),
    "install": install,
    "deb": deb,
    "torch": torch,
    "wheel": foreign.wheel,
    "archive": foreign.archive,
    "test-build": command("make test-build"),
    "demos": demos,
    "test": command("make test", limit=5400),
}
USUAL = ["demo", "install", "deb", "torch", "wheel", "archive", "test-build"]
