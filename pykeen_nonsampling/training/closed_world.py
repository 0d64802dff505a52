"""Training under the closed world assumption: every triple that is not observed is a negative."""

from __future__ import annotations

from pykeen.triples import CoreTriplesFactory
from torch import Tensor

from ..graph import Graph
from ..kernels import sum_over_triples
from .base import FactorizedTrainingLoop

__all__ = [
    "NonSamplingTrainingLoop",
]

#: What all negatives weigh, relative to all positives, unless the user says what one weighs
NEGATIVE_MASS = 20.0


class NonSamplingTrainingLoop(FactorizedTrainingLoop[Graph]):
    r"""A training loop over every triple of $\mathcal{E} \times \mathcal{R} \times \mathcal{E}$, without negative sampling.

    Observed triples have target 1, all others target 0. The sum over all triples is not enumerated: for a score
    $f(h, r, t) = q(h, r)^\top k(t)$, it is made of the Gram matrices of queries and keys,

    .. math::

        \sum_{h, r, t} f(h, r, t)^2 = \Big\langle \sum_{h, r} q q^\top, \sum_t k k^\top \Big\rangle

    so an epoch costs $O((|\mathcal{E}| + |\mathcal{R}|) d^2 + |\mathcal{T}| d)$, however many negatives there are [li2021]_.

    Negatives may have weights $w_h w_r w_t$, which become weights of the vectors in the Gram matrices.

    By default, one epoch is one optimizer step on the whole graph. With a ``batch_size``, each mini-batch of positives
    comes with its share of the sum over all triples, so that the batches of an epoch add up to the whole loss.
    """

    # docstr-coverage: inherited
    def _weigh(self, graph: Graph, triples_factory: CoreTriplesFactory) -> Graph:
        for name in ("query_weight", "candidate_weight"):
            value = getattr(self.loss, name)
            if value:
                raise ValueError(
                    f"{name}={value} has no use in the closed world, where all triples count and none belongs to a query. "
                    f"Use head_weight, relation_weight and tail_weight, or training_loop='nonsamplinglcwa'."
                )
        return graph.weigh(self.loss_weighter, self.loss_weighter_kwargs)

    # docstr-coverage: inherited
    def _default_weights(self, graph: Graph) -> dict[str, float]:
        # as many as the candidates of a query weigh, at most
        mass = min(NEGATIVE_MASS, self._factorization.negative_mass)
        return {
            "negative_weight": self.loss.positive_weight * min(1.0, mass * len(graph) / self._num_scores(graph)),
            "regularization_weight": self._factorization.regularization_weight,
        }

    # docstr-coverage: inherited
    def _num_scores(self, batch: Graph) -> float:
        return batch.share * self.num_entities**2 * self.model.num_relations

    # docstr-coverage: inherited
    def _sum(self, batch: Graph, heads: Tensor, relations: Tensor, tails: Tensor, targets: tuple[float, float]) -> Tensor:
        negative_weight, weights = self._weights["negative_weight"], self._triple_weights
        positives = sum_over_triples(
            cost=lambda scores, part: self.loss.positive_cost(
                scores, part.weights, negative_weight * weights.of(part.triples), targets
            ),
            factorization=self._factorization,
            graph=batch,
            heads=heads,
            relations=relations,
            tails=tails,
            memory_budget=self.memory_budget,
        )
        moments = self._factorization.score_moments(heads, relations, tails, weights)
        return positives + (batch.share * negative_weight) * moments.squared_distance(targets[1])
