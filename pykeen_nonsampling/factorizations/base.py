"""How a score factorizes: queries, keys and their moments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from pykeen.nn.modules import Interaction
from torch import Tensor

from ..kernels import gram

__all__ = [
    "Factorization",
    "Moments",
    "NotDecomposableError",
    "ScoreMoments",
]


class NotDecomposableError(NotImplementedError):
    """The score is no product of head features, a relation's operator and tail features, so no Gram matrix sums it."""


@dataclass(frozen=True)
class ScoreMoments:
    r"""The sums $\sum 1$, $\sum f$ and $\sum f^2$ of the scores over a set of triples."""

    count: int
    first: Tensor
    second: Tensor

    def squared_distance(self, target: float) -> Tensor:
        r"""Sum $(f - y)^2 = f^2 - 2 y f + y^2$ over the set, for a constant target $y$."""
        if not target:
            return self.second
        return self.second - 2 * target * self.first + target**2 * self.count


@dataclass(frozen=True)
class Moments:
    r"""The sums $\sum 1$, $\sum x$ and $\sum x x^\top$ (the Gram matrix) of a set of vectors."""

    count: int
    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Moments:
        """Collect the moments of the rows of a matrix, in O(rows·d²)."""
        return cls(count=x.shape[0], first=x.sum(dim=0), second=gram(x))

    def of_scores(self, keys: Moments) -> ScoreMoments:
        r"""Collect the moments of $q^\top k$ over all pairs of a query in this set and a key in the other.

        .. math::

            \sum_{q,k} q^\top k = \Big\langle \sum_q q, \sum_k k \Big\rangle
            \qquad
            \sum_{q,k} (q^\top k)^2 = \Big\langle \sum_q q q^\top, \sum_k k k^\top \Big\rangle
        """
        return ScoreMoments(
            count=self.count * keys.count,
            first=self.first @ keys.first,
            second=(self.second * keys.second).sum(),
        )


class Factorization(ABC):
    r"""A score that is bilinear in features of its head and its tail, for a fixed relation.

    .. math::

        f(h, r, t) = \phi(h)^\top A_r \psi(t) = q(h, r)^\top k(t)
        \qquad
        q(h, r) = A_r^\top \phi(h)
        \quad
        k(t) = \psi(t)

    A subclass says what $\phi$, $\psi$ and the relation's features are, how a query is made of them, and what the moments
    of the queries over *all* pairs of a head and a relation are. Everything else (scores at observed triples, moments of
    the scores over all triples, losses, gradients) follows.

    All features are real matrices with one row an entity or relation.
    """

    #: the interaction whose scores this class factorizes
    interaction_cls: ClassVar[type[Interaction]]

    def __init__(self, interaction: Interaction):
        """Initialize the factorization.

        :param interaction: the interaction to factorize
        :raises NotDecomposableError: if the interaction's parameters leave it without a factorization
        """
        self.interaction = interaction

    @abstractmethod
    def heads(self, *representations: Tensor) -> Tensor:
        r"""Compute the head features $\phi$, shape: (num_entities, k)."""

    def tails(self, *representations: Tensor) -> Tensor:
        r"""Compute the tail features $\psi$, shape: (num_entities, k). By default, those of heads."""
        return self.heads(*representations)

    @abstractmethod
    def relations(self, *representations: Tensor) -> Tensor:
        """Compute the relation features, shape: (num_relations, …)."""

    @abstractmethod
    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        r"""Compute the queries $A_r^\top \phi(h)$ row by row, shape: (n, k)."""

    def queries_backward(self, heads: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the gradients by the features from that by the queries.

        By default, this is left to automatic differentiation. An implementation may overwrite its arguments.
        """
        with torch.enable_grad():
            heads, relations = heads.detach().requires_grad_(), relations.detach().requires_grad_()
            queries = self.queries(heads, relations)
        grad_heads, grad_relations = torch.autograd.grad(queries, (heads, relations), grad)
        return grad_heads, grad_relations

    def head_queries(self, tails: Tensor, relations: Tensor) -> Tensor:
        r"""Compute the queries of heads, $A_r \psi(t)$, row by row, with $f(h, r, t) = \phi(h)^\top A_r \psi(t)$.

        By default, this is the adjoint of :meth:`queries`, which is right if that is linear in the heads.
        """
        return self.queries_backward(torch.zeros_like(tails), relations.clone(), tails.clone())[0]

    @abstractmethod
    def query_moments(self, heads: Moments, relations: Tensor) -> Moments:
        """Compute the moments of the queries over all pairs of a head and a relation, without enumerating them."""

    def transform(self, scores: Tensor) -> Tensor:
        """Map the interaction's own scores to the factorized ones: increasing, so both rank alike. Often the identity."""
        return scores

    def score_moments(self, heads: Tensor, relations: Tensor, tails: Tensor) -> ScoreMoments:
        r"""Compute the moments of the scores over all triples.

        This takes $O((|\mathcal{E}| + |\mathcal{R}|) k^2)$ instead of $O(|\mathcal{E}|^2 |\mathcal{R}| k)$ operations.
        """
        head_moments = Moments.of(heads)
        # most models have one kind of entity features, whose Gram matrix is then needed once
        tail_moments = head_moments if tails is heads else Moments.of(tails)
        return self.query_moments(head_moments, relations).of_scores(tail_moments)


def check_real(name: str, *representations: Tensor) -> None:
    """Refuse complex representations for an interaction whose score would then be complex."""
    for x in representations:
        if torch.is_complex(x):
            raise ValueError(
                f"{name} was given representations of dtype {x.dtype}, for which its score is no real number. "
                f"Use a real dtype, e.g. entity_representations_kwargs=dict(shape=…, dtype=torch.float)."
            )
