"""A search for the best model of a graph within a number of minutes.

Most configurations turn out to be bad. So each one first runs on a small scale, with few epochs and few dimensions, and the
better third of those on a rung go on to the next one: asynchronous successive halving [li2020]_. Optuna chooses the
configurations, and learns from all of them.

.. [li2020] Li, L., *et al.* (2020) `A System for Massively Parallel Hyperparameter Tuning
   <https://arxiv.org/abs/1810.05934>`_. MLSys '20.
"""

from .space import LAST, REPORTED, RUNGS, Graph, Rung, Space
from .trials import Trials
from .tuner import Deadline, Tuner

__all__ = [
    "LAST",
    "REPORTED",
    "RUNGS",
    "Deadline",
    "Graph",
    "Rung",
    "Space",
    "Trials",
    "Tuner",
]
