"""What a run needs: the memory of training and evaluation, estimated before any of it is used.

Most of it is found by a dry run, one step of training without values. What the sweep needs beyond that, blocks of queries
and the index of the triples, follows from the numbers of triples and queries.
"""

from .dry_run import outline
from .outline import PARTS, Memory, Outline, format_bytes
from .room import check_divided, check_model, check_room, default_dimension, largest_dimension
from .task import Counts, Task
from .traffic import Traffic, estimate_traffic

__all__ = [
    "PARTS",
    "Counts",
    "Memory",
    "Outline",
    "Task",
    "Traffic",
    "check_divided",
    "check_model",
    "check_room",
    "default_dimension",
    "estimate_traffic",
    "format_bytes",
    "largest_dimension",
    "outline",
]
