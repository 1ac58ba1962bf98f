# SPDX-License-Identifier: Apache-2.0
"""Compares averaged gradients with the exact averages, for the demo.

Every rank keeps its contribution to each bucket and the average that came back. At the end of an epoch all ranks write
their contributions to files, and every rank compares its averages with the float64 average of all contributions.
"""

import os
import pathlib

import numpy

UNIT = 2.0**-24  # unit roundoff of float32, rounding to nearest
TINY = 2.0**-149  # the smallest positive float32: a result near zero is rounded to a multiple of it


def rounding_bound(contributions):
    """The largest rounding error that a correct float32 average of the contributions can have, for each element.

    contributions: one array of float32 per rank. An average takes n - 1 additions and one division by n, so n roundings
    in any order: the error is at most n u / (1 - n u) times the average of the absolute values, with u = 2^-24
    (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2). Results near zero are subnormal:
    there each rounding may add TINY, the smallest positive float32.
    """
    n = len(contributions)
    absolute = sum(numpy.abs(c.astype(numpy.float64)) for c in contributions)
    return n * UNIT / (1 - n * UNIT) * absolute / n + n * TINY


def compare(average, contributions):
    """Compares one averaged bucket with its contributions, all of them one-dimensional float32 arrays.

    Returns (wrong, worst): the number of elements whose error is above the rounding bound or that are not finite, and
    the largest error as a part of its bound. Overflow cannot be told from a wrong sum, and counts as wrong.
    """
    exact = sum(c.astype(numpy.float64) for c in contributions) / len(contributions)
    error = numpy.abs(average.astype(numpy.float64) - exact)
    ratio = error / rounding_bound(contributions)
    wrong = ~(ratio <= 1)  # NaN is wrong too
    return int(numpy.count_nonzero(wrong)), float(ratio.max(initial=0.0))


def damage(average, contributions):
    """Makes one element of the average wrong by 4 n units in the last place of its largest contribution, in place."""
    i = average.size // 2
    largest = max(abs(c[i]) for c in contributions)
    average[i] += numpy.float32(4 * len(contributions) * numpy.spacing(numpy.float32(largest)))


class Recorder:
    """The contributions and averages of one rank since the last comparison.

    Invariant: averages[i] belongs to contributions[i], or is None while its all-reduce is under way. The hook appends
    in the order of buckets, which is the same on all ranks.
    """

    def __init__(self, folder, rank, ranks, wrong_bucket=None):
        self.folder, self.rank, self.ranks = pathlib.Path(folder), rank, ranks
        self.wrong_bucket = wrong_bucket  # index of an average to damage(), as a test of the comparison
        self.contributions, self.averages = [], []
        self.buckets = self.elements = self.wrong = 0
        self.worst = 0.0

    def wrap(self, hook):
        """A DDP communication hook that does what `hook` does and records what goes in and what comes out."""

        def recording_hook(state, bucket):
            i = len(self.contributions)
            self.contributions.append(bucket.buffer().detach().clone().numpy())
            self.averages.append(None)

            def keep(future):
                value = future.value()
                result = value[0] if isinstance(value, list) else value
                self.averages[i] = result.detach().clone().numpy()
                return result

            return hook(state, bucket).then(keep)

        return recording_hook

    def _file(self, rank):
        return self.folder / f"contributions-{rank}.npz"

    def write(self):
        """Writes this rank's contributions for the others. All ranks call it, then meet in a barrier, then compare."""
        numpy.savez(self._file(self.rank), *self.contributions)

    def compare(self):
        """Compares all recorded averages of this rank. All ranks call it, then meet in a barrier, then clear."""
        files = [numpy.load(self._file(rank)) for rank in range(self.ranks)]
        for i, average in enumerate(self.averages):
            parts = [f[f"arr_{i}"] for f in files]
            if self.buckets == self.wrong_bucket:
                damage(average, parts)
            wrong, worst = compare(average, parts)
            self.buckets += 1
            self.elements += average.size
            self.wrong += wrong
            self.worst = max(self.worst, worst)

    def clear(self):
        """Forgets what was compared."""
        self.contributions.clear()
        self.averages.clear()
        os.unlink(self._file(self.rank))

    def result(self):
        """For the demo's report."""
        return {"buckets": self.buckets, "elements": self.elements, "wrong": self.wrong, "worst": self.worst}
