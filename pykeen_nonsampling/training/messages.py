"""What a training tells its user: what was derived, and what to try if it does not learn."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from pykeen.losses import Loss, loss_resolver
from pykeen.models import ERModel
from pykeen.trackers import ResultTracker

from ..factorizations import ScoreMoments
from ..losses import AutomaticLoss, FactorizedLoss

logger = logging.getLogger(__name__)

#: Fewer optimizer steps than this suggest that the user forgot to set the number of epochs
FEW_STEPS = 20

#: A loss that has become so many times as large as the first one has not been minimized
DIVERGED = 10.0

#: What was derived before the training loop was created, to be logged together with what it derives itself
derived: ContextVar[Mapping[str, Any]] = ContextVar("derived", default={})  # noqa: B039


def log_loss(loss: FactorizedLoss, given: Loss, tracker: ResultTracker) -> None:
    """Record a loss, and say what was derived.

    :param loss: the loss, with all its weights
    :param given: the loss as it was given
    :param tracker: records it
    """
    choices = dict(derived.get())
    if isinstance(given, FactorizedLoss):
        name, known = loss_resolver.normalize_inst(loss), given.kwargs
        tracker.log_params(params=dict(loss=name, loss_kwargs=loss.plain_kwargs))
        if isinstance(given, AutomaticLoss):
            choices["loss"] = name
        weights = {key: value for key, value in loss.kwargs.items() if value is not None and known.get(key) is None}
        if weights:
            choices["loss_kwargs"] = weights
    if choices:
        logger.info("Derived from graph and model: %s", ", ".join(f"{key}={value!r}" for key, value in choices.items()))


def warn_of_few_steps(num_epochs: int, batch_size: int, num_batches: int, start_epochs: int = 0) -> None:
    """Point out a training that is too short to learn much."""
    if num_epochs * num_batches + start_epochs < FEW_STEPS:
        logger.warning(
            "Training for num_epochs=%d with batch_size=%d takes only %d optimizer steps, which is too few to learn much: "
            "by default, one epoch is one step on the whole graph. pipeline() trains for 5 epochs unless told otherwise; "
            "set e.g. epochs=200.",
            num_epochs,
            batch_size,
            num_epochs * num_batches,
        )


def warn_of_low_precision() -> None:
    """Point out products that are too inaccurate for distances, whose squares are differences of larger numbers."""
    precision = torch.get_float32_matmul_precision()
    if precision == "medium":
        logger.warning(
            "float32_matmul_precision=%r rounds products to bfloat16, which is too inaccurate for distances. Use "
            "torch.set_float32_matmul_precision('highest').",
            precision,
        )


def warn_of_large_scores(scores: ScoreMoments, model: ERModel) -> None:
    """Point out scores so large that most of the training would be spent on shrinking them."""
    mean_square = scores.second.item() / float(scores.count)
    if mean_square > 1:
        logger.warning(
            "Before the first step, the mean square of all scores is %.3g, but false triples should score 0 and true ones "
            "1, so most of the training will be spent on shrinking scores. %s",
            mean_square,
            advise_smaller_scores(model),
        )


def warn_of_divergence(losses: Sequence[float], optimizer: torch.optim.Optimizer) -> None:
    """Point out a loss that has grown."""
    if losses[-1] > DIVERGED * losses[0] > 0:
        logger.warning(
            "The loss has grown from %.3g in the first epoch to %.3g in the last one, so the model has not learned what it "
            "should. %s",
            losses[0],
            losses[-1],
            advise_smaller_steps(optimizer),
        )


def explain_non_finite_loss(loop: Any, epoch: int, stepped: bool) -> str:
    """Say when a loss is not a finite number, and what may be the reason.

    :param loop: the training loop
    :param epoch: the epoch
    :param stepped: whether there was a step before
    :return: the explanation
    """
    if not stepped:
        return (
            f"The loss is not a finite number in epoch {epoch}, before the first step. Either vectors are too large: "
            f"{advise_smaller_scores(loop.model)} Or weights are: use smaller ones than those of {loop.loss}."
        )
    before = f" It was {loop.losses_per_epochs[-1]:.3g} in the epoch before." if loop.losses_per_epochs else ""
    return (
        f"The loss is not a finite number in epoch {epoch}.{before} {advise_smaller_steps(loop.optimizer)} If that does not "
        f"help, use smaller weights than those of {loop.loss}."
    )


def advise_smaller_steps(optimizer: torch.optim.Optimizer) -> str:
    """Say how to train with a smaller learning rate."""
    (group, *_), name = optimizer.param_groups, type(optimizer).__name__
    # the one that a schedule started with
    rate = float(group.get("initial_lr", group["lr"]))
    return (
        f"The learning rate {rate:g} of {name} is probably too large: use a smaller one, e.g. optimizer={name!r}, "
        f"optimizer_kwargs=dict(lr={min(0.01, rate / 10):g})."
    )


def advise_smaller_scores(model: ERModel) -> str:
    """Say how to start a model with smaller scores, in terms of its own parameters."""
    parameters = inspect.signature(type(model)).parameters
    names = ("entity_initializer", "base_entity_initializer", "relation_initializer")
    initializers = [name for name in names if name in parameters]
    if initializers:
        arguments = ", ".join(f"{name}='xavier_normal'" for name in initializers)
        return f"Start with smaller vectors, e.g. model_kwargs=dict({arguments})."
    if type(model) is ERModel or set(parameters) <= {"kwargs"}:
        # made of an interaction, also by pipeline(interaction=…)
        vectors = "dict(shape=…, initializer='xavier_normal')"
        return (
            f"Start with smaller vectors, e.g. model=pykeen.models.ERModel, model_kwargs=dict(interaction=…, "
            f"entity_representations_kwargs={vectors}, relation_representations_kwargs={vectors})."
        )
    return "Use a smaller learning rate, e.g. optimizer='Adam', optimizer_kwargs=dict(lr=1e-4)."
