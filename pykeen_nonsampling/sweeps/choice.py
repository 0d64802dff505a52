"""Which sweep to use."""

from __future__ import annotations

import importlib.util
import logging

from .plain import PlainSweep
from .problem import Sweep
from .scores import ScoreSweep

logger = logging.getLogger(__name__)


def fastest_sweep(memory_budget: int | None = None, scores: bool = False) -> Sweep:
    """Choose the fastest sweep: unless it is for scores, the compiled one, if Numba is installed.

    :param memory_budget: the number of bytes for intermediate results. By default, a quarter of what is free.
    :param scores: whether the objective sees every score
    :return: the sweep
    """
    if scores:
        return ScoreSweep(memory_budget)
    if importlib.util.find_spec("numba") is None:
        return PlainSweep(memory_budget)
    try:
        # not before it is needed: Numba takes a while to import
        from .numba.sweep import FusedSweep
    except ImportError as error:
        # e.g. a version of NumPy that it does not support
        logger.warning("Numba is installed, but cannot be imported, so training is slower than it could be: %s", error)
        return PlainSweep(memory_budget)
    return FusedSweep(memory_budget)
