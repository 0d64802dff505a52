"""PyKEEN's own losses, as its LCWA training loop computes them from the scores of whole queries."""

from __future__ import annotations

import copy
import inspect
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from pykeen.losses import AdversarialLoss, BCEAfterSigmoidLoss, BCEWithLogitsLoss, CrossEntropyLoss, Loss, PointwiseLoss
from torch import Tensor
from typing_extensions import override

from ..factorizations.base import Family
from .base import FactorizedLoss, Numbers
from .objective import AllScores, AnyObjective, ScoreObjective
from .softmax import SoftmaxObjective

if TYPE_CHECKING:
    from ..graph.batches import Batch

#: The losses that are sums over queries, so that their queries need not be scored all at once
SUMS_OVER_QUERIES = (PointwiseLoss, CrossEntropyLoss, AdversarialLoss)

#: Of those, the losses whose mean ignores what the weights of queries add up to
UNWEIGHTED_MEANS = (BCEWithLogitsLoss, BCEAfterSigmoidLoss)


@dataclass(frozen=True)
class PykeenObjective(ScoreObjective):
    """The sum that one of PyKEEN's losses computes from the scores and labels of some queries."""

    #: the loss, which sums
    loss: Loss
    label_smoothing: float = 0.0
    num_entities: int | None = None
    #: what positives weigh, if their mean is taken by itself
    positive_weight: float = 1.0

    @override
    def cost(self, x: AllScores) -> Tensor:
        labels = torch.zeros_like(x.scores)
        labels[x.query_index, x.answers] = 1.0
        total = self.loss.process_lcwa_scores(
            predictions=x.scores,
            labels=labels,
            label_smoothing=self.label_smoothing,
            num_entities=self.num_entities,
            weights=_weights(x),
        )
        if isinstance(self.loss, AdversarialLoss) and self.positive_weight != 1:
            positives = self.loss.positive_loss_term(x.positives, self.label_smoothing, self.num_entities)
            total = total + (self.positive_weight - 1) * positives
        return total

    @override
    def differentiate(self, x: AllScores) -> Tensor:
        if type(self.loss) is CrossEntropyLoss and not self.label_smoothing:
            # the same in half the time
            return SoftmaxObjective().differentiate(x)
        # what is computed in between stays in the cache, which makes it twice as fast
        return torch.stack([super(PykeenObjective, self).differentiate(part) for part in x.split()]).sum()


def _weights(x: AllScores) -> Tensor | None:
    """Return the weights of queries that PyKEEN's loop would pass on, shape: (q, 1); none without a loss weighter."""
    return x.query_weights[:, None] if isinstance(x.query_weights, Tensor) else None


class PykeenLoss(FactorizedLoss):
    """Trains with one of PyKEEN's losses, as :class:`pykeen.training.LCWATrainingLoop` does, label smoothing included.

    The model keeps the loss itself. There are no weights but those of a ``loss_weighter``, and no regularization.
    """

    weighs_queries: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = True

    def __init__(self, loss: Loss):
        """Initialize the loss.

        :param loss: PyKEEN's loss
        """
        super().__init__(query_weight=0.0, regularization_weight=0.0, duality_weight=0.0, reduction=loss.reduction)
        self.loss = loss

    @property
    @override
    def name(self) -> str:
        return type(self.loss).__name__

    @override
    def default_weights(
        self, graph: Numbers, family: Family, closed_world: bool, num_features: float = math.inf
    ) -> dict[str, float]:
        return {}

    @override
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> PykeenObjective:
        return PykeenObjective(_summing(self.loss), label_smoothing, num_entities)

    @override
    def batch_objective(
        self, batch: Batch, num_scores: float, label_smoothing: float = 0.0, num_entities: int | None = None
    ) -> tuple[AnyObjective, float]:
        objective = self.objective(label_smoothing, num_entities)
        if isinstance(self.loss, AdversarialLoss) and self.reduction == "mean":
            # half of the mean over positives, and half of the mean over queries
            num_positives = sum(len(side.index) for side in batch.sides)
            return replace(objective, positive_weight=batch.num_queries / num_positives), 2.0 * batch.num_queries
        weights = [side.weights.queries for side in batch.sides if isinstance(side.weights.queries, Tensor)]
        if weights and not isinstance(self.loss, UNWEIGHTED_MEANS):
            return objective, float(sum(torch.as_tensor(x).sum() for x in weights))
        return objective, float(batch.num_queries if isinstance(self.loss, CrossEntropyLoss) else num_scores)


def _summing(loss: Loss) -> Loss:
    """Return a loss that sums, with the same parameters and buffers."""
    summing = copy.copy(loss)
    summing.reduction, summing._reduction_method = "sum", torch.sum
    if isinstance(summing, AdversarialLoss):
        summing.factor = 1.0
    return summing


def parameters_of(loss: Loss) -> dict[str, Any]:
    """Return those keyword-based parameters of one of PyKEEN's losses that can be read from it."""
    values = {name: getattr(loss, name, None) for name in inspect.signature(type(loss)).parameters}
    numbers = {name: x.item() if isinstance(x, Tensor) else x for name, x in values.items()}
    return {name: x for name, x in numbers.items() if isinstance(x, bool | int | float | str)}
