# SPDX-License-Identifier: Apache-2.0
"""The exceptions of this package. Each has `.code`, a reduction_status of reduction.h, and one sentence."""

from typing import Dict, Type

OK = 0
EINVAL = -1
ENOMEM = -2
EIO = -3
EPROTO = -4
EMISMATCH = -5
EPEER = -6
ETIMEOUT = -7
EREFUSED = -8
ECLOSED = -9
ECONFIG = -10
EUNSUPPORTED = -11
EINTERNAL = -12
ENONFINITE = -14
EABORTED = -15


class ReductionError(RuntimeError):
    """Base class of all errors. str() is a sentence that says what failed; `code` is the reduction_status."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self):
        return (type(self), (self.code, self.message))


class ReductionTimeoutError(ReductionError, TimeoutError):
    """The timeout has passed. After wait() the operation is still pending and can be waited for again."""


class PeerLostError(ReductionError):
    """A rank, an agent or a reducer was lost, or did not do its part of an operation in time. The message names it."""


class MismatchError(ReductionError):
    """Ranks disagree about an operation or a setting; the message names both sides."""


class RefusedError(ReductionError):
    """A reducer or an agent refused this process; the message says why."""


class ClosedError(ReductionError):
    """The communicator is closed, or another rank closed it."""


class ConfigError(ReductionError):
    """The configuration file or the environment is wrong."""


class NonFiniteError(ReductionError, FloatingPointError):
    """A rank sent NaN or infinity, and job.detect_nonfinite is `fail`; the message names rank, operation, element."""


class AbortedError(ReductionError):
    """A rank, this one or another one, called abort(); the message names it and its reason."""


_CLASSES: Dict[int, Type[ReductionError]] = {
    ETIMEOUT: ReductionTimeoutError,
    EPEER: PeerLostError,
    EMISMATCH: MismatchError,
    EREFUSED: RefusedError,
    ECLOSED: ClosedError,
    ECONFIG: ConfigError,
    ENONFINITE: NonFiniteError,
    EABORTED: AbortedError,
}


def make_error(code: int, message: str) -> ReductionError:
    """Returns the exception for a status of the C library."""
    return _CLASSES.get(code, ReductionError)(code, message)
