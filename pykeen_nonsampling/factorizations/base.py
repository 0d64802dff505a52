"""How a score factorizes: features of entities and relations, and the bilinear form that turns them into queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

import torch
from pykeen.nn.modules import Interaction
from torch import Tensor
from typing_extensions import override

from .functions import ScoreFunction
from .moments import Moments, ScoreMoments, Weights


class NotDecomposableError(NotImplementedError):
    """The score is not a product of head features, a relation's operator and tail features, so no Gram matrix can sum it."""


class Family(Enum):
    """The kind of operator that a relation is, by its name in print. Default weights depend on it."""

    BLOCK_DIAGONAL = "block-diagonal"
    FULL_MATRIX = "full matrix"
    SQUARED_DISTANCE = "squared distance"
    TRANSLATION = "squared distance (translation)"
    SUM_OF_PRODUCTS = "sum of products"
    OTHER = "other"

    @property
    def parent(self) -> Family | None:
        """The family that this one is part of, if there is one."""
        return Family.SQUARED_DISTANCE if self is Family.TRANSLATION else None

    @property
    def is_distance(self) -> bool:
        """Whether scores are squared distances."""
        return Family.SQUARED_DISTANCE in (self, self.parent)


class Form(ABC):
    r"""The form $\phi^\top A_r \psi$ for all relations, seen from one end: how queries $q = A_r^\top \phi$ are made.

    All arguments are rows: of given entities, relations, and gradients of the queries. No method writes to them. Where
    there is an ``out``, it is memory that the result may be written to, and must not overlap with the arguments.
    """

    #: whether queries are made one relation at a time, with relation features of shape (1, …), to save a copy per query
    by_relation: bool = False

    @abstractmethod
    def queries(self, given: Tensor, relations: Tensor, out: Tensor | None = None) -> Tensor:
        r"""Compute the queries $A_r^\top \phi$, row by row."""

    def backward(
        self, given: Tensor, relations: Tensor, grad: Tensor, out: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the gradients of the given entities' and the relations' features from that of the queries.

        By default, by automatic differentiation.
        """
        with torch.enable_grad():
            given, relations = given.detach().requires_grad_(), relations.detach().requires_grad_()
            queries = self.queries(given, relations)
        grad_given, grad_relations = torch.autograd.grad(queries, (given, relations), grad, materialize_grads=True)
        return grad_given, grad_relations

    @property
    @abstractmethod
    def reverse(self) -> Form:
        r"""The same form from its other end, with queries $A_r \psi$."""

    def of_pairs(self, given: Tensor, relations: Tensor, pairs: Tensor) -> Tensor:
        """Compute the queries of pairs of a given entity and a relation.

        :param given: shape: (num_entities, k), the features of all entities
        :param relations: shape: (num_relations, …), the features of all relations
        :param pairs: shape: (q, ≥2), entities and relations, best sorted by relation
        :return: shape: (q, l), the queries
        """
        entity_ids, relation_ids = pairs[:, 0], pairs[:, 1]
        rows = given.index_select(0, entity_ids)
        if self.by_relation:
            return torch.cat([self.queries(rows[part], relations[r : r + 1]) for r, part in find_runs(relation_ids)])
        return self.queries(rows, relations.index_select(0, relation_ids))


class FunctionForm(Form):
    """A form that is given by functions of the features, differentiated automatically."""

    def __init__(
        self,
        queries: Callable[[Tensor, Tensor], Tensor],
        head_queries: Callable[[Tensor, Tensor], Tensor] | None = None,
        by_relation: bool = False,
    ):
        r"""Initialize the form.

        :param queries: computes the queries $A_r^\top \phi(h)$, row by row, from the features of heads and relations
        :param head_queries: computes the queries of heads, $A_r \psi(t)$, from the features of tails and relations. By
            default, the adjoint of ``queries``, which is right if that is linear in the heads, and if these have as many
            features as tails.
        :param by_relation: whether the functions are called for one relation at a time, with relation features of shape
            (1, …)
        """
        self._queries = queries
        self._head_queries = head_queries
        self.by_relation = by_relation

    @override
    def queries(self, given: Tensor, relations: Tensor, out: Tensor | None = None) -> Tensor:
        return self._queries(given, relations)

    @property
    @override
    def reverse(self) -> FunctionForm:
        return FunctionForm(self._head_queries or self._adjoint, self._queries, self.by_relation)

    def _adjoint(self, tails: Tensor, relations: Tensor) -> Tensor:
        """Compute the queries of heads as the gradient of the scores, which is the same for all heads."""
        differentiable = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            # tensors from inference mode cannot be differentiated, but copies can
            tails, relations = (x.clone() if x.is_inference() else x for x in (tails, relations))
            heads = torch.zeros_like(tails).requires_grad_()
            return torch.autograd.grad(self._queries(heads, relations), heads, tails, create_graph=differentiable)[0]


class Factorization(ABC):
    r"""A score that is bilinear in features of its head and its tail, for a fixed relation.

    .. math::

        f(h, r, t) = \phi(h)^\top A_r \psi(t) = q(h, r)^\top k(t)
        \qquad
        q(h, r) = A_r^\top \phi(h)
        \quad
        k(t) = \psi(t)

    A subclass says what $\phi$, $\psi$ and the relation's features are, which form makes queries from them, and what the
    moments of the queries over *all* pairs of a head and a relation are. Everything else (scores at observed triples,
    moments of the scores over all triples, losses, gradients) follows. Two subclasses leave little to do:
    :class:`TrilinearFactorization`, where $A_r$ is made of diagonals, and :class:`MatrixFactorization`, where it is full.
    For others, there is :class:`FunctionForm`.

    All features are real matrices with one row per entity or relation.
    """

    #: the interaction whose scores this class factorizes
    interaction_cls: ClassVar[type[Interaction]]
    #: the kind of operator that a relation is
    family: Family = Family.OTHER
    #: the number of features of an entity, in terms of the symbols of :attr:`pykeen.nn.modules.Interaction.entity_shape`
    feature_size: str = "m"
    #: the condition for the interaction to have a factorization, if there is one
    condition: ClassVar[str | None] = None

    #: whether the factorized score is the square of the interaction's norm, which ranks the same, but averages differently
    squares: bool = False
    #: why losses that see every score cannot be used, and what to do instead; none, if they can
    no_scores: str | None = None
    #: the same for losses that see moments of scores only; if there is a reason, the interaction's own scores tie where
    #: factorized ones do not
    no_moments: str | None = None
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

    @property
    @abstractmethod
    def form(self) -> Form:
        """The bilinear form that turns these features into queries."""

    def check_head_queries(self, heads: Tensor, relations: Tensor, tails: Tensor, up_to_constants: bool = False) -> None:
        """Check on examples that the queries of heads give the same scores as those of tails.

        :param heads: the head features
        :param relations: the relation features
        :param tails: the tail features
        :param up_to_constants: whether the scores of all heads may differ by a constant, which does not affect ranks
        :raises NotDecomposableError: if they do not
        """
        few = torch.tensor([0, len(heads) // 2, len(heads) - 1], device=heads.device)
        pairs = torch.stack([few, torch.zeros_like(few)], dim=1)
        with torch.no_grad():
            scores = self.form.of_pairs(heads, relations, pairs) @ tails[few].T
            difference = scores - heads[few] @ self.form.reverse.of_pairs(tails, relations, pairs).T
            if up_to_constants:
                difference = difference - difference.mean(dim=0)
        if difference.abs().max() > 1e-3 * (1e-3 + scores.abs().max()):
            raise NotDecomposableError(
                f"The form of {type(self).__name__} gives other scores from its other end: its queries are not linear in "
                f"the heads, or its head queries are not their adjoint. Give it the right ones, e.g. with "
                f"FunctionForm(queries, head_queries). Without them, only tails can be predicted, e.g. with "
                f"training_loop_kwargs=dict(target='tail')."
            )

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

    @property
    def own_scores(self) -> ScoreFunction | None:
        """From factorized scores to the interaction's own, for losses that see every score; none, if they are the same.

        It is the inverse of :meth:`transform` where there is one.
        """
        return None

    def score_moments(
        self,
        heads: Tensor,
        relations: Tensor,
        tails: Tensor,
        weights: Weights | None = None,
        moments: Callable[[Tensor, Tensor | None], Moments] = Moments.of,
    ) -> ScoreMoments:
        r"""Compute the moments of the scores over all triples.

        This takes $O((|\mathcal{E}| + |\mathcal{R}|) m^2)$ instead of $O(|\mathcal{E}|^2 |\mathcal{R}| m)$ operations; if
        relations are full matrices, $O(|\mathcal{R}| m^3)$ more.

        :param heads: the head features
        :param relations: the relation features
        :param tails: the tail features
        :param weights: the weights of the triples
        :param moments: collects the moments of features with weights
        :return: the moments
        """
        weights = weights or Weights()
        head_moments = moments(heads, weights.heads)
        # most models have the same features for heads and tails, so one Gram matrix is enough
        shared = tails is heads and weights.heads is weights.tails
        tail_moments = head_moments if shared else moments(tails, weights.tails)
        return self.query_moments(head_moments, relations, weights.relations).of_scores(tail_moments)


def find_runs(relations: Tensor) -> Sequence[tuple[int, slice]]:
    """Find runs of rows with the same relation.

    :param relations: shape: (n,), the ids of relations
    :return: the relations, each with the rows that it belongs to
    """
    distinct, counts = relations.unique_consecutive(return_counts=True)
    stops = counts.cumsum(dim=0).tolist()
    return [(r, slice(start, stop)) for r, start, stop in zip(distinct.tolist(), [0, *stops], stops, strict=False)]


def check_real(name: str, *representations: Tensor) -> None:
    """Refuse complex representations for an interaction whose score would then be complex."""
    for x in representations:
        if torch.is_complex(x):
            raise ValueError(
                f"{name} got representations of dtype {x.dtype}, for which its score is not a real number. "
                f"Use a real dtype, e.g. entity_representations_kwargs=dict(shape=…, dtype=torch.float)."
            )


def check_complex(name: str, *representations: Tensor) -> None:
    """Refuse real representations for an interaction of complex numbers."""
    for x in representations:
        if not torch.is_complex(x):
            raise ValueError(
                f"{name} needs complex representations, got dtype {x.dtype}. Use e.g. "
                f"entity_representations_kwargs=dict(shape=…, dtype=torch.cfloat)."
            )
