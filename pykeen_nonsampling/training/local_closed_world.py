"""Training under the local closed world assumption: a triple that is not observed is a negative of each observed query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter, loss_weighter_resolver
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, Target
from torch import Tensor

from ..factorizations import Moments
from ..graph import Graph, Negatives, Sides, check_weights
from ..kernels import sum_over_triples
from .base import FactorizedTrainingLoop, weigh

__all__ = [
    "NonSamplingLCWATrainingLoop",
]

#: The ends of a triple, by all names that PyKEEN's LCWA training loop has for them
TARGETS: dict[object, tuple[Target, ...]] = {
    LABEL_HEAD: (LABEL_HEAD,),
    0: (LABEL_HEAD,),
    LABEL_TAIL: (LABEL_TAIL,),
    2: (LABEL_TAIL,),
    "both": (LABEL_TAIL, LABEL_HEAD),
}

#: The exponent of the number of a query's positives, unless negatives would weigh more than positives
QUERY_WEIGHT = 0.5

#: The exponent of the number of triples that a candidate is the answer of
CANDIDATE_WEIGHT = 0.5


class NonSamplingLCWATrainingLoop(FactorizedTrainingLoop[Sides]):
    r"""A training loop over all candidates of each query that occurs, without scoring any of them.

    The negatives are those of PyKEEN's :class:`pykeen.training.LCWATrainingLoop`: all tails for each observed pair $(h, r)$
    and, by default, all heads for each observed pair $(r, t)$, except for the true ones. For a score $q^\top k$, the sum of
    the squares over all candidates needs only the candidates' Gram matrix,

    .. math::

        \sum_q c_q \sum_k (q^\top k)^2 = \sum_q c_q \, q^\top \Big( \sum_k k k^\top \Big) q

    so an epoch costs $O((|\mathcal{Q}| + |\mathcal{E}|) d^2 + |\mathcal{T}| d)$ for $|\mathcal{Q}|$ distinct queries,
    instead of $O(|\mathcal{Q}| |\mathcal{E}| d)$, and each query may have a weight of its own.

    By default, one epoch is one optimizer step on the whole graph. With a ``batch_size``, each mini-batch of positives
    comes with its share of the negatives of their queries, so that the batches of an epoch add up to the whole loss.
    """

    loss_hpo_default: ClassVar[Mapping[str, Any]] = {
        **FactorizedTrainingLoop.loss_hpo_default,
        "query_weight": {"type": float, "low": -0.5, "high": 1.0, "q": 0.25},
        "candidate_weight": {"type": float, "low": -0.5, "high": 1.5, "q": 0.25},
    }

    def __init__(self, *, target: Target | int | None = None, **kwargs: Any) -> None:
        """Initialize the training loop.

        :param target: the end of a triple to predict: ``"tail"``, ``"head"``, or ``"both"``. By default, both; for a factory
            that creates inverse triples, the tails only, since the heads are the tails of inverse triples there.
        :param kwargs: additional keyword-based parameters passed to :class:`FactorizedTrainingLoop`
        :raises ValueError: if there is no such end
        """
        super().__init__(**kwargs)
        if target is not None and target not in TARGETS:
            raise ValueError(
                f"{target=} is no end of a triple whose candidates are entities: choose 'tail', 'head' or 'both', "
                f"e.g. training_loop_kwargs=dict(target='both')."
            )
        self.target = target
        self._setup += f" {target}"

    # docstr-coverage: inherited
    def _weigh(self, graph: Graph, triples_factory: CoreTriplesFactory) -> Sides:
        default = LABEL_TAIL if triples_factory.create_inverse_triples else "both"
        targets = TARGETS[default if self.target is None else self.target]
        sides = {target: graph if target == LABEL_TAIL else graph.reverse() for target in targets}
        return Sides({target: self._weigh_side(side, target) for target, side in sides.items()})

    def _weigh_side(self, graph: Graph, target: Target) -> Graph:
        """Give weights to the triples of one side, to its queries and to its candidates."""
        (entities, relations), positives = graph.pairs.unbind(dim=-1), graph.positives.to(self._dtype)
        weights = self._triple_weights
        given, answers = (weights.tails, weights.heads) if target == LABEL_HEAD else (weights.heads, weights.tails)
        candidates = self._weigh_by_count(
            "candidate_weight", self._weights["candidate_weight"], graph.tails, self.num_entities
        )
        if answers is not None:
            candidates = answers if candidates is None else answers * candidates
        queries = weigh(self._weights["query_weight"], "query_weight", positives, entities, relations, positives)
        queries = self._weights["negative_weight"] * queries
        if given is not None:
            queries = queries * given[entities]
        if weights.relations is not None:
            queries = queries * weights.relations[relations]
        whole = self._weigh_queries(entities, relations, target)
        if whole is not None:
            queries = queries * whole
        index = graph.query_index
        queries = queries[index]
        return Graph(
            graph.triples,
            weights=None if whole is None else whole[index],
            negatives=Negatives(
                query_shares=queries / positives[index],
                weights=queries if candidates is None else queries * candidates[graph.tails],
                candidates=candidates,
            ),
        )

    def _weigh_queries(self, entities: Tensor, relations: Tensor, target: Target) -> Tensor | None:
        """Let the loss weighter, if there is one, weigh whole queries, positives and negatives, as in PyKEEN's loop."""
        weighter: LossWeighter | None = loss_weighter_resolver.make_safe(self.loss_weighter, self.loss_weighter_kwargs)  # type: ignore[arg-type]
        if weighter is None:
            return None
        e, r = entities[:, None], relations[:, None]
        reason = "Use one whose weights depend on the relation and the given entity alone, e.g. RelationLossWeighter."
        try:
            weights = weighter(h=None, r=r, t=e) if target == LABEL_HEAD else weighter(h=e, r=r, t=None)
        except Exception as error:
            raise ValueError(
                f"{weighter} cannot weigh all candidates of a query at once, for which it gets {target}=None: {error!r}. "
                f"{reason}"
            ) from error
        if weights.numel() > 1 and weights.shape != e.shape:
            raise ValueError(
                f"{weighter} gives weights of shape {tuple(weights.shape)} for {len(e)} queries, which differ among the "
                f"candidates of a query. {reason}"
            )
        return check_weights(weights.expand(e.shape).squeeze(dim=-1), f"{weighter} gives", "a query's weight")

    # docstr-coverage: inherited
    def _default_weights(self, graph: Graph) -> dict[str, float]:
        positive_weight = self.loss.positive_weight
        negative_weight = positive_weight * min(1.0, self._factorization.negative_mass / self.num_entities)
        # small graphs suffer from negatives that weigh more than positives, so the exponent is as large as that allows
        most = max(int(side.positives.max()) for side in (graph, graph.reverse()))
        ratio = positive_weight / (self.loss.negative_weight or negative_weight)
        exponent = max(0.0, math.log(ratio) / math.log(most)) if most > 1 else QUERY_WEIGHT
        # if the user says how to weigh entities, that is it
        weighted = self.loss.tail_weight if self.loss.head_weight is None else self.loss.head_weight
        return {
            "negative_weight": negative_weight,
            "query_weight": min(QUERY_WEIGHT, exponent),
            "candidate_weight": CANDIDATE_WEIGHT if weighted is None else 0.0,
            "regularization_weight": self._factorization.regularization_weight,
        }

    # docstr-coverage: inherited
    def _num_scores(self, batch: Sides) -> float:
        return batch.num_queries * self.num_entities

    # docstr-coverage: inherited
    def _sum(self, batch: Sides, heads: Tensor, relations: Tensor, tails: Tensor, targets: tuple[float, float]) -> Tensor:
        if not self.losses_per_epochs and LABEL_HEAD in batch.sides:
            self._factorization.check_head_queries(heads, relations, tails)
        total = heads.new_zeros(())
        moments: Moments | None = None
        used: Tensor | None = None
        for target, graph in batch.sides.items():
            given, candidates = (tails, heads) if target == LABEL_HEAD else (heads, tails)
            weights = graph.negatives.candidates
            # most models have one kind of entity features, whose Gram matrix is then needed once
            if moments is None or heads is not tails or weights is not used:
                moments, used = Moments.of(candidates, weights), weights
            total = total + sum_over_triples(
                cost=lambda scores, part: self.loss.positive_cost(scores, part.weights, part.negatives.weights, targets),
                factorization=self._factorization.reverse if target == LABEL_HEAD else self._factorization,
                graph=graph,
                heads=given,
                relations=relations,
                tails=candidates,
                candidates=moments,
                negative_target=targets[1],
                memory_budget=self.memory_budget,
            )
        return total
