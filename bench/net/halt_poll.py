# SPDX-License-Identifier: Apache-2.0
"""How long an idle core of a virtual machine looks for work before it halts: Linux's guest_halt_poll_ns, where its
driver haltpoll is in use. A core that halts is woken through the host. Where the machine says 0, against Linux's
default of 200,000, a process that sleeps is woken after 30 to 80 us instead of 5, and after milliseconds where the host
is busy; whoever polls, as MPI's ranks do, does not notice. It is one setting for the whole machine, put back at the
end."""

import contextlib
import pathlib

from lab import CANNOT_RUN_HERE, LabError

PARAMETER = pathlib.Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
DRIVER = pathlib.Path("/sys/devices/system/cpu/cpuidle/current_driver")


def current():
    """In nanoseconds; None where idle cores are not haltpoll's."""
    try:
        if DRIVER.read_text(encoding="ascii").strip() == "haltpoll":
            return int(PARAMETER.read_text(encoding="ascii"))
    except OSError:
        pass
    return None


@contextlib.contextmanager
def set_to(ns):
    """None: leaves it as it is."""
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
