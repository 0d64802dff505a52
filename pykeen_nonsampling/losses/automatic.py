"""Which losses can be trained with, and what stands for a loss that is not chosen yet."""

from __future__ import annotations

from pykeen.losses import Loss
from typing_extensions import override

from .base import MomentLoss
from .objective import Objective


class AutomaticLoss(MomentLoss):
    """Stands for the loss that suits graph and model, which the training loops put in its place.

    It is what they use if no loss is given. In the closed world, and for most graphs, that is :class:`NonSamplingLoss`; cf.
    :func:`~pykeen_nonsampling.losses.weights.suitable_loss`.
    """

    @override
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> Objective:
        raise NotImplementedError(
            f"{type(self).__name__} depends on the graph: a training loop of this package puts another loss in its place."
        )

    def become(self, loss: type[MomentLoss]) -> MomentLoss:
        """Make a loss of another class, with the same weights."""
        return loss(**self.kwargs)


def check_loss(loss: type[Loss]) -> None:
    """Refuse a loss that has no objective, so that it cannot be computed from moments.

    :param loss: the class of the loss
    :raises ValueError: if it has none
    """
    if issubclass(loss, MomentLoss):
        return
    if callable(getattr(loss, "objective", None)):
        raise ValueError(
            f"{loss.__name__} has an objective, but not the weights that go with it. Derive it from "
            f"pykeen_nonsampling.MomentLoss."
        )
    raise ValueError(
        f"{loss.__name__} cannot be used without negative sampling: of the negatives' scores, only the sum and the sum of "
        f"squares are known, so the loss must be a function of these. Use loss='nonsampling', with "
        f"loss_kwargs=dict(positive_weight=1.0, negative_weight=1.0) for the mean squared error."
    )
