"""How a score factorizes: queries, keys and their moments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pykeen.nn.modules import Interaction
from torch import Tensor

from ..kernels import gram

__all__ = [
    "Factorization",
    "Moments",
    "NotDecomposableError",
    "ScoreMoments",
    "Weights",
]


class NotDecomposableError(NotImplementedError):
    """The score is no product of head features, a relation's operator and tail features, so no Gram matrix sums it."""


@dataclass(frozen=True)
class Weights:
    """Weights of all triples, $w_h w_r w_t$; what is left out counts as 1."""

    #: shape: (num_entities,), the weights of heads
    heads: Tensor | None = None
    #: shape: (num_relations,), the weights of relations
    relations: Tensor | None = None
    #: shape: (num_entities,), the weights of tails
    tails: Tensor | None = None

    def of(self, triples: Tensor) -> Tensor | float:
        """Compute the weights of some triples, shape: (n,)."""
        weights: Tensor | float = 1.0
        for column, x in enumerate((self.heads, self.relations, self.tails)):
            if x is not None:
                weights = weights * x[triples[:, column]]
        return weights


@dataclass(frozen=True)
class ScoreMoments:
    r"""The sums $\sum 1$, $\sum f$ and $\sum f^2$ of the scores over a set of triples."""

    count: float
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

    count: float
    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, x: Tensor, weights: Tensor | None = None) -> Moments:
        r"""Collect the moments of the rows of a matrix, in O(rows·d²).

        :param x: shape: (n, d), the matrix
        :param weights: shape: (n,), the weights ≥ 0 of the rows: $\sum w$, $\sum w x$ and $\sum w x x^\top$
        :return: the moments
        """
        if weights is None:
            return cls(count=x.shape[0], first=x.sum(dim=0), second=gram(x))
        return cls(count=weights.sum().item(), first=weights @ x, second=gram(x * weights.sqrt()[:, None]))

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
    the scores over all triples, losses, gradients) follows. Two subclasses leave little to say:
    :class:`TrilinearFactorization`, where $A_r$ is made of diagonals, and :class:`MatrixFactorization`, where it is full.

    All features are real matrices with one row an entity or relation.
    """

    #: the interaction whose scores this class factorizes
    interaction_cls: ClassVar[type[Interaction]]
    #: the kind of operator that a relation is
    family: str = "other"
    #: the number of features of an entity, in terms of the symbols of :attr:`pykeen.nn.modules.Interaction.entity_shape`
    feature_size: ClassVar[str] = "m"
    #: what the interaction must be like to have a factorization, if that depends
    condition: ClassVar[str | None] = None

    #: what all candidates of a query weigh as negatives, relative to one positive, if the user does not say
    negative_mass: float = 100.0
    #: what the vectors of a triple weigh, relative to its score, if the user does not say
    regularization_weight: float = 0.03

    #: whether the features of a relation are too many to have a copy of them for each query, so that queries are made of one
    #: relation at a time
    by_relation: bool = False
    #: whether the factorized score is the square of the interaction's norm, which ranks the same, but averages differently
    squares: bool = False
    #: keyword-based parameters that leave the score as it is
    plain_kwargs: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, interaction: Interaction):
        """Initialize the factorization.

        :param interaction: the interaction to factorize
        :raises NotDecomposableError: if the interaction's parameters leave it without a factorization
        """
        self.interaction: Any = interaction

    @abstractmethod
    def heads(self, *representations: Tensor) -> Tensor:
        r"""Compute the head features $\phi$, shape: (num_entities, k)."""

    def tails(self, *representations: Tensor) -> Tensor:
        r"""Compute the tail features $\psi$, shape: (num_entities, l). By default, those of heads."""
        return self.heads(*representations)

    @property
    def same_features(self) -> bool:
        """Whether an entity has the same features as head and as tail, if it has the same representations."""
        return type(self).tails is Factorization.tails

    @abstractmethod
    def relations(self, *representations: Tensor) -> Tensor:
        """Compute the relation features, shape: (num_relations, …), or (1, …) if all relations have the same."""

    @abstractmethod
    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        r"""Compute the queries $A_r^\top \phi(h)$ row by row, shape: (n, l).

        :param heads: shape: (n, k), the features of heads
        :param relations: shape: (n, …), the features of relations; (1, …), if they are made :attr:`by_relation`
        :return: the queries
        """

    def queries_backward(self, heads: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the gradients by the features from that by the queries.

        By default, this is left to automatic differentiation. An implementation may overwrite its arguments, except for
        relations if they are made :attr:`by_relation`, which are the features themselves then.
        """
        return _pull_back(self.queries, heads, relations, grad)

    def head_queries(self, tails: Tensor, relations: Tensor) -> Tensor:
        r"""Compute the queries of heads, $A_r \psi(t)$, row by row, with $f(h, r, t) = \phi(h)^\top A_r \psi(t)$.

        By default, this is the adjoint of :meth:`queries`, which is right if that is linear in the heads, and if these have
        as many features as tails.
        """
        differentiable = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            # tensors from inference mode cannot be differentiated, but copies can
            tails, relations = (x.clone() if x.is_inference() else x for x in (tails, relations))
            heads = torch.zeros_like(tails).requires_grad_()
            queries = self.queries(heads, relations)
            return torch.autograd.grad(queries, heads, tails, create_graph=differentiable)[0]

    def head_queries_backward(self, tails: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the gradients by the features from that by the queries of heads, cf. :meth:`queries_backward`."""
        return _pull_back(self.head_queries, tails, relations, grad)

    def check_head_queries(self, heads: Tensor, relations: Tensor, tails: Tensor, up_to_constants: bool = False) -> None:
        """Check on examples that the queries of heads give the same scores as those of tails.

        :param heads: the head features
        :param relations: the relation features
        :param tails: the tail features
        :param up_to_constants: whether the scores of all heads may differ by a constant, which ranks nothing
        :raises NotDecomposableError: if they do not
        """
        few = torch.tensor([0, len(heads) // 2, len(heads) - 1], device=heads.device)
        with torch.no_grad():
            h, r, t = heads[few], relations[:1].expand(len(few), *relations.shape[1:]), tails[few]
            scores, other_scores = self.queries(h, r) @ t.T, h @ self.head_queries(t, r).T
            difference = scores - other_scores
            if up_to_constants:
                difference = difference - difference.mean(dim=0)
        if difference.abs().max() > 1e-3 * (1e-3 + scores.abs().max()):
            raise NotDecomposableError(
                f"{type(self).__name__}.queries is not linear in the heads, or has another adjoint than its base class, so "
                f"it has to define head_queries, too. Without, only tails can be predicted, e.g. with "
                f"training_loop_kwargs=dict(target='tail')."
            )

    @property
    def reverse(self) -> Reverse:
        """The same score, from its other end."""
        return Reverse(self)

    @abstractmethod
    def query_moments(self, heads: Moments, relations: Tensor, weights: Tensor | None = None) -> Moments:
        """Compute the moments of the queries over all pairs of a head and a relation, without enumerating them.

        :param heads: the moments of the head features
        :param relations: the relation features
        :param weights: shape: (num_relations,), the weights ≥ 0 of the relations
        :return: the moments
        """

    def transform(self, scores: Tensor) -> Tensor:
        """Map the interaction's own scores to the factorized ones: increasing, so both rank alike. Often the identity."""
        return scores

    def score_moments(self, heads: Tensor, relations: Tensor, tails: Tensor, weights: Weights | None = None) -> ScoreMoments:
        r"""Compute the moments of the scores over all triples.

        This takes $O((|\mathcal{E}| + |\mathcal{R}|) m^2)$ instead of $O(|\mathcal{E}|^2 |\mathcal{R}| m)$ operations; if
        relations are full matrices, $O(|\mathcal{R}| m^3)$ more.

        :param heads: the head features
        :param relations: the relation features
        :param tails: the tail features
        :param weights: the weights of the triples
        :return: the moments
        """
        weights = weights or Weights()
        head_moments = Moments.of(heads, weights.heads)
        # most models have one kind of entity features, whose Gram matrix is then needed once
        shared = tails is heads and weights.heads is weights.tails
        tail_moments = head_moments if shared else Moments.of(tails, weights.tails)
        return self.query_moments(head_moments, relations, weights.relations).of_scores(tail_moments)


class Reverse:
    """A factorization from its other end: queries are made of tails, and meet heads."""

    def __init__(self, factorization: Factorization):
        """Reverse a factorization."""
        self.queries = factorization.head_queries
        self.queries_backward = factorization.head_queries_backward
        self.by_relation = factorization.by_relation


def _pull_back(
    queries: Callable[[Tensor, Tensor], Tensor], entities: Tensor, relations: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the gradients by the features from that by the queries, by automatic differentiation."""
    with torch.enable_grad():
        entities, relations = entities.detach().requires_grad_(), relations.detach().requires_grad_()
        result = queries(entities, relations)
    grad_entities, grad_relations = torch.autograd.grad(result, (entities, relations), grad, materialize_grads=True)
    return grad_entities, grad_relations


def check_real(name: str, *representations: Tensor) -> None:
    """Refuse complex representations for an interaction whose score would then be complex."""
    for x in representations:
        if torch.is_complex(x):
            raise ValueError(
                f"{name} was given representations of dtype {x.dtype}, for which its score is no real number. "
                f"Use a real dtype, e.g. entity_representations_kwargs=dict(shape=…, dtype=torch.float)."
            )


def check_complex(name: str, *representations: Tensor) -> None:
    """Refuse real representations for an interaction of complex numbers."""
    for x in representations:
        if not torch.is_complex(x):
            raise ValueError(
                f"{name} needs complex representations, but was given dtype {x.dtype}. Use e.g. "
                f"entity_representations_kwargs=dict(shape=…, dtype=torch.cfloat)."
            )
