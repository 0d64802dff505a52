"""One pass over the observed triples of a side: scores, costs and gradients.

Of all triples, only the observed ones are looked at one by one, and that is where the time goes. So this is the package that
knows about speed: a :class:`Problem` is data, and a sweep is whatever turns it into a sum and its gradients.
"""

from .base import Gradients, Problem, Sweep, sum_of_costs
from .choice import fastest_sweep
from .memory import check_memory_budget, free_memory
from .plain import PlainSweep, block_size
from .sharded import ShardedSweep, rows_at_once
from .threads import warn_if_forked

__all__ = [
    "Gradients",
    "PlainSweep",
    "Problem",
    "ShardedSweep",
    "Sweep",
    "block_size",
    "check_memory_budget",
    "fastest_sweep",
    "free_memory",
    "rows_at_once",
    "sum_of_costs",
    "warn_if_forked",
]
