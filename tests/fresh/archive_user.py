#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs in a bare root, as root: what a user does who has the archive of `make portable` (user.py).

    archive_user.py ARCHIVE

One machine has it in /opt/reduction, where the units look for it, the other one in a home folder.
"""

import pathlib
import sys

import user

OPT = pathlib.Path("/opt/reduction")
OWN = user.HOME / "reduction"
SUM = ["reduction-bench", "-b", "4M", "-e", "4M", "-n", "1", "-w", "0"]
LONG = ["reduction-bench", "-b", "4M", "-e", "4M", "-n", "200", "-w", "0"]


def unpack(archive, folder, who):
    user.must([*who, "mkdir", folder])
    user.must([*who, "tar", "-xzf", archive, "-C", folder, "--strip-components=1"])


def units():
    """What units start is there; manual pages too."""
    for unit in OPT.glob("lib/systemd/system/*.service"):
        (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
        program = pathlib.Path(line.removeprefix("ExecStart=").split()[0])
        if program.parent != OPT / "bin" or not program.exists():
            sys.exit(f"{unit} starts {program}")
    if not [*OPT.glob("share/man/man8/reduction-server.8")]:
        sys.exit("no manual page")
    user.done("units and manual pages")


def main():
    unpack(sys.argv[1], OPT, [])
    unpack(sys.argv[1], OWN, user.USER)
    units()
    user.machines()
    someone = user.User([OPT / "bin", OWN / "bin"])
    someone.certificates(OPT / "share/doc/reduction/deploy/make-certs.sh")
    config = user.job("job", ["10.99.0.1:7600"])
    first = someone.reducer("m0")
    someone.end(someone.ranks(SUM, config, "first"), "first")
    user.done("first sum over two machines, /opt and a home folder")
    someone.look(config)
    someone.failover(LONG)
    someone.hard(SUM, config, OPT)
    someone.authorities()
    someone.stop(first)


if __name__ == "__main__":
    main()
