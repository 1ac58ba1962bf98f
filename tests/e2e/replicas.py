# SPDX-License-Identifier: Apache-2.0
"""Replicas of a managed job: each is a network namespace with its own host name, /etc/hosts and /run.

    with replicas.Replicas(["chief-0", "reducer-0"]) as r:
        r.start("reducer-0", [harness.binary("reduction-server")], env={...})
"""

import os
import pathlib
import sys
import tempfile
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "bench/net"))
import lab  # noqa: E402

# what is done before the program, inside its namespaces: $0 is the host name, $1 the file
# of host names
_INSIDE = 'hostname "$0" && mount --bind "$1" /etc/hosts && mount -t tmpfs tmpfs /run && mkdir /run/reduction && shift'


def why_not():
    """Why no replicas can be made here, or None."""
    try:
        lab.check_machine()
    except lab.LabError as e:
        return str(e)
    return None


class Replicas:
    """`names`: the host names, each of which also gets the names of `aliases` (name -> list)."""

    def __init__(self, names, aliases=None):
        self.names = list(names)
        self._aliases = aliases or {}
        self._lab = lab.Lab(len(self.names), rate="none")
        self._folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.dir = pathlib.Path(self._folder.name)
        self.procs = []

    def __enter__(self):
        lines = ["127.0.0.1 localhost"]
        for i, name in enumerate(self.names):
            lines.append(" ".join([lab.Lab.address(i), name, *self._aliases.get(name, [])]))
        (self.dir / "hosts").write_text("\n".join(lines) + "\n")
        try:
            self._lab.start()
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind and issubclass(kind, (AssertionError, lab.LabError)):
            for p in self.procs:
                print(p.report(), file=sys.stderr)
        for p in self.procs:
            if p.running():
                p.kill()
        self._lab.stop()
        self._folder.cleanup()

    def start(self, name, argv, env=None, before="true"):
        """Starts a program in a replica; returns its harness.Proc. before: a shell command that comes first, with the
        same files."""
        inside = f'{_INSIDE} && {before} && exec "$@"'
        command = ["ip", "netns", "exec", self._lab.namespace(self.names.index(name)), "unshare", "--uts", "--mount",
                   "sh", "-c", inside, name, str(self.dir / "hosts"), *argv]
        p = harness.Proc(f"{os.path.basename(argv[0])} on {name}", command, harness.sanitizer_env(argv) | (env or {}))
        self.procs.append(p)
        return p


needed = unittest.skipIf(why_not(), f"no network namespaces: {why_not()}")
