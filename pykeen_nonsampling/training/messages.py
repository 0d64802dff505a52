"""What to try if a training does not learn."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from pykeen.models import ERModel


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
