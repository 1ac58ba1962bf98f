# SPDX-License-Identifier: Apache-2.0
"""guest_halt_poll_ns: the time for which an idle core of a virtual machine polls for work before it halts, if Linux's
driver haltpoll is in use. The host wakes a halted core. If this machine has 0 (Linux's default is 200,000), a sleeping
process is woken after 30 to 80 us instead of 5 us, and after milliseconds if the host is busy. A process that polls,
such as an MPI rank, is not affected. The setting applies to the whole machine and is restored at the end."""

import contextlib
import pathlib

from lab import CANNOT_RUN_HERE, LabError

PARAMETER = pathlib.Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
DRIVER = pathlib.Path("/sys/devices/system/cpu/cpuidle/current_driver")


def current():
    """Returns the value in nanoseconds, or None if haltpoll does not manage idle cores."""
    try:
        if DRIVER.read_text(encoding="ascii").strip() == "haltpoll":
            return int(PARAMETER.read_text(encoding="ascii"))
    except OSError:
        pass
    return None


@contextlib.contextmanager
def set_to(ns):
    """None: does not change the setting."""
    before = current()
    if ns is None or ns == before:
        yield
        return
    if before is None:
        raise LabError("--halt-poll: idle cores of this machine are not those of Linux's haltpoll, as where it is not "
                       "virtual; leave it out", 2)
    try:
        PARAMETER.write_text(str(ns), encoding="ascii")
    except OSError as e:
        raise LabError(f"--halt-poll: cannot write {PARAMETER}: {e.strerror}", CANNOT_RUN_HERE) from None
    try:
        yield
    finally:
        PARAMETER.write_text(str(before), encoding="ascii")
