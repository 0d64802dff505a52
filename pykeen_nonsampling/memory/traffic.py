"""How many bytes processes that train one model together send each other."""

from __future__ import annotations

from dataclasses import dataclass

from ..distributed.sweep import rows_at_once
from .outline import Outline


@dataclass(frozen=True)
class Traffic:
    """The bytes that a process sends per step, by what they are for. It receives as many."""

    #: the gradients of the parameters that all processes have
    gradients: int
    #: number, sum and Gram matrix of features, and their gradients
    moments: int
    #: the vectors of answers that other processes need, and the gradients of those that this one needs: at most
    answers: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.gradients + self.moments + self.answers


def estimate_traffic(outline: Outline, num_ranks: int) -> Traffic:
    r"""Estimate the bytes that each process sends per step; by default, an epoch is one step.

    To sum a vector of s bytes over N processes, each sends $2 s (N - 1) / N$. What is summed are gradients, and the moments
    of m features, $(m + 1) m$ numbers, forward and backward. If entities are divided, their gradients are not summed.
    Instead, the vectors of answers come and their gradients go back, one row per block of queries and distinct answer: at
    most one per triple, and if a block may have all entities, at most one per block and entity. Of these, other processes
    have a share of $(N - 1) / N$, since entities are dealt out like cards.

    :param outline: the model in one of the processes
    :param num_ranks: the number N of processes
    :return: the bytes; exact, except for those of answers, which are an upper bound
    """
    counts, task = outline.counts, outline.task
    sharded = bool(counts.num_fetched)

    def spread(size: int) -> int:
        return 2 * (num_ranks - 1) * size // num_ranks

    heads, tails = outline.widths
    ends = (heads, tails) if task.closed_world else (tails, heads)[: task.sides]
    distinct = ends if outline.separate or task.weighted else ends[:1]
    moments = sum(2 * spread(outline.itemsize * (m + 1) * m) for m in distinct)
    answers, limit = 0, rows_at_once(counts.num_entities)
    for m, queries in zip((tails, heads)[: task.sides], counts.num_queries, strict=False):
        rows, entities = counts.num_triples, num_ranks * counts.num_entities
        if entities <= limit:
            rows = min(rows, -(-queries // limit) * entities)
        answers += spread(outline.itemsize * m * rows)
    return Traffic(spread(outline.common if sharded else outline.trainable), moments, answers if sharded else 0)
