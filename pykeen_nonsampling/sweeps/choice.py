"""Which sweep to use."""

from __future__ import annotations

import importlib.util
import logging

from .plain import PlainSweep
from .problem import Sweep
from .scores import ScoreSweep

logger = logging.getLogger(__name__)


def fastest_sweep(memory_budget: int | None = None, scores: bool = False) -> Sweep:
    """Choose the fastest sweep: one that is compiled, if Numba is installed.

    :param memory_budget: the number of bytes for intermediate results. By default, a quarter of what is free.
    :param scores: whether the objective sees every score
    :return: the sweep
    """
    if importlib.util.find_spec("numba") is not None:
        try:
            # not before it is needed: Numba takes a while to import
            from .numba.scores import FusedScoreSweep
            from .numba.sweep import FusedSweep

            return FusedScoreSweep(memory_budget) if scores else FusedSweep(memory_budget)
        except ImportError as error:
            # e.g. a version of NumPy that it does not support
            logger.warning("Numba is installed, but cannot be imported, so training is slower than it could be: %s", error)
    return ScoreSweep(memory_budget) if scores else PlainSweep(memory_budget)
