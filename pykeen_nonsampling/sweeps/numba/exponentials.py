"""Softmax over rows of scores, compiled by Numba: a row is read once, and stays in cache until all is done with it.

Each function does one *part* of the work, as in :mod:`~pykeen_nonsampling.sweeps.numba.kernels`, in single precision.
"""

from __future__ import annotations

import numpy as np
from numba import prange, uint64

from .kernels import Kernel, compiled

single = np.float32

#: The number of scores to take the exponential of at a time, such that what is computed in between stays in cache
CHUNK = 512

#: Smaller exponentials add nothing to a sum that has e⁰ = 1 among its terms
LEAST = single(-87.0)


@compiled(ignore_nan=True)
def _largest(x):
    largest = x[0]
    for j in range(uint64(len(x))):
        largest = max(largest, x[j])
    return largest


@compiled()
def _take_norms(x, scale, offset, least):
    """Replace scores f by −√((b − f) / a), cf. ``factorizations.functions``."""
    for j in range(uint64(len(x))):
        square = (offset - x[j]) / scale
        x[j] = -np.sqrt(least if square < least else square)


@compiled()
def _exponentiate(x, bits, powers):
    """Replace numbers ≤ 0 by their exponentials, and sum these.

    e^x is 2^k e^r, where k is an integer and r is small enough for a polynomial, whose coefficients are those of [cephes]_.
    The bits of k are those of 2^k, if they are put where a number has its exponent.

    .. [cephes] Moshier, S. L. (1989) `Methods and Programs for Mathematical Functions <https://www.netlib.org/cephes/>`_.
    """
    for j in range(uint64(len(x))):
        y = LEAST if x[j] < LEAST else x[j]
        k = np.floor(y * single(1.44269504) + single(0.5))
        # ln 2 in two parts, of which the first one has few digits
        r = y - k * single(0.693359375) + k * single(2.12194440e-4)
        p = single(1.9875691500e-4)
        p = p * r + single(1.3981999507e-3)
        p = p * r + single(8.3334519073e-3)
        p = p * r + single(4.1665795894e-2)
        p = p * r + single(1.6666665459e-1)
        p = p * r + single(5.0000001201e-1)
        x[j] = p * r * r + r + single(1)
        bits[j] = (np.int32(k) + np.int32(127)) << np.int32(23)
    total = single(0)
    for j in range(uint64(len(x))):
        x[j] *= powers[j]
        total += x[j]
    return total


@compiled()
def _differentiate(part, cuts, scores, factors, beta, scale, offset, least, largest, sums):
    """Replace scores by the derivatives of logarithms of sums of exponentials, times factors.

    If the scale is not 0, it is the norms whose exponentials are summed.
    """
    bits, exponentials = np.empty(CHUNK, np.int32), np.empty(CHUNK, single)
    powers, size, with_norms = bits.view(single), uint64(CHUNK), scale != 0
    for q in range(cuts[part], cuts[part + 1]):
        row = scores[q]
        if with_norms:
            _take_norms(row, scale, offset, least)
        highest, total = _largest(row), 0.0
        for start in range(uint64(0), uint64(len(row)), size):
            x = row[start : min(start + size, uint64(len(row)))]
            y = exponentials[: len(x)]
            for j in range(uint64(len(x))):
                y[j] = beta * (x[j] - highest)
            total += _exponentiate(y, bits, powers)
            if with_norms:
                # what is all rounding error has no direction to change in
                root = single(-1.0001) * np.sqrt(least)
                for j in range(uint64(len(x))):
                    x[j] = -y[j] / x[j] if x[j] < root else single(0)
            else:
                for j in range(uint64(len(x))):
                    x[j] = y[j]
        largest[q], sums[q] = beta * highest, total
        factor = factors[q] * beta / single(total)
        if with_norms:
            factor *= single(0.5) / scale
        for j in range(uint64(len(row))):
            row[j] *= factor
    return 0.0


@compiled(parallel=True)
def _differentiate_all(cuts, *arguments):
    totals = np.zeros(len(cuts) - 1)
    for part in prange(len(cuts) - 1):
        totals[part] = _differentiate(part, cuts, *arguments)
    return totals


DIFFERENTIATE = Kernel(_differentiate, _differentiate_all)
