"""Rows of a matrix that is divided by entities: how a process gets those of others."""

from __future__ import annotations

from torch import Tensor

from .shards import Sharding


class Exchange:
    """Rows of a matrix that is divided by entities: those that this process needs, and those that others need of it."""

    def __init__(self, sharding: Sharding, entities: Tensor):
        """Let all processes say what they need.

        :param sharding: which process has which entities
        :param entities: shape: (n,), the new numbers of those that this one needs, ascending
        """
        self.group = group = sharding.group
        counts = sharding.owners(entities).bincount(minlength=group.size)
        ones = [1] * group.size
        self.received = counts.tolist()
        self.sent = group.exchange(counts, ones, ones).tolist()
        self.rows = group.exchange(entities, self.received, self.sent) - sharding.mine.start

    def fetch(self, matrix: Tensor) -> Tensor:
        """Return the rows that this process needs, in the order of its entities.

        :param matrix: shape: (num_rows, d), the rows of this process's entities
        """
        return self.group.exchange(matrix.index_select(0, self.rows), self.sent, self.received)

    def give_back(self, rows: Tensor, matrix: Tensor) -> None:
        """Add rows, such as gradients, to those of the processes that they belong to.

        :param rows: shape: (n, d), in the order of this process's entities
        :param matrix: shape: (num_rows, d), the rows of this process's entities, to add to
        """
        matrix.index_add_(0, self.rows, self.group.exchange(rows, self.received, self.sent))
