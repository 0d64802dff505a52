"""What to search: ranges of hyper-parameters that suit a graph, a model and the free memory.

:func:`complete_study` is the recipe for :func:`pykeen.hpo.hpo_pipeline`, which uses it automatically with the package
installed. :mod:`pykeen_nonsampling.tuning` searches the same ranges.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from pykeen.datasets import get_dataset
from pykeen.losses import Loss, loss_resolver
from pykeen.models import Model, model_resolver
from pykeen.training import training_loop_resolver
from pykeen.triples import CoreTriplesFactory
from pykeen.utils import resolve_device

from .defaults import OPTIMIZATION, complete_loss, complete_model, is_ours, optimization
from .factorizations import Family, NotDecomposableError
from .free import free_memory
from .graph.frequencies import Frequencies
from .losses import AutomaticLoss, FactorizedLoss, NonSamplingLoss, SoftmaxLoss
from .losses.automatic import choose_loss
from .memory.dry_run import outline
from .memory.outline import Outline, format_bytes
from .training import FactorizedTrainingLoop

logger = logging.getLogger(__name__)

#: The losses worth a search, by the names that PyKEEN knows them by
LOSSES = ("nonsampling", "softmax")

#: How far from its default a learning rate is searched, by optimizer: the factors of both ends of the range
LEARNING_RATE_FACTORS: Mapping[str, tuple[float, float]] = {"Adam": (1 / 10, 2), "Adagrad": (1 / 10, 5 / 2)}

#: More features than this are not searched, even if they fit: time and memory grow with their square
WIDEST = 2048


def fits(outlined: Outline, memory: int, device: torch.device | None = None) -> bool:
    """Whether a model is small enough to be searched.

    :param outlined: the model
    :param memory: the bytes that it may use
    :param device: the device to train on
    :return: whether it is
    """
    return outlined.width <= WIDEST and outlined.memory(device).total <= memory


def limit_sizes(sizes: Mapping[str, tuple[int, int]], fitting: Callable[[Mapping[str, int]], bool]) -> dict[str, int] | None:
    """Lower the upper ends of some ranges until all combinations fit, each by the same share of its orders of magnitude.

    :param sizes: the lower and upper ends of the ranges, by name
    :param fitting: whether a combination fits; if it does, all smaller ones do
    :return: the upper ends, or ``None``, if not even the lower ends fit
    """

    def shrink(share: float) -> dict[str, int]:
        return {name: max(low, int(low * (high / low) ** share)) for name, (low, high) in sizes.items()}

    if fitting({name: high for name, (_, high) in sizes.items()}):
        return {name: high for name, (_, high) in sizes.items()}
    if not fitting(shrink(0.0)):
        return None
    low, high = 0.0, 1.0
    # as exact as a range of thousands of integers can be
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if fitting(shrink(middle)) else (low, middle)
    return shrink(low)


def known_losses() -> list[str]:
    """List the losses worth a search that are registered with PyKEEN."""
    return [name for name in LOSSES if name in loss_resolver.lookup_dict]


def loss_ranges(
    training_loop: type[FactorizedTrainingLoop], loss: FactorizedLoss, factory: CoreTriplesFactory, family: Family
) -> dict[str, Any]:
    """Derive what to search of a loss from the graph and the family of the model.

    :param training_loop: the class of the training loop
    :param loss: the loss, for what the user has set
    :param factory: the training triples
    :param family: the family of the model's factorization
    :return: the ranges, in PyKEEN's format
    """
    defaults = loss.default_weights(Frequencies.of(factory), family, training_loop.closed_world)
    return loss.hpo_ranges(defaults, training_loop.loss_hpo_default)


def complete_study(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what :func:`pykeen.hpo.hpo_pipeline` should get for one of this package's training loops.

    This is the loss with a search space for this graph, parameters of the model, the sizes that fit in half of the free
    memory, and, unless any of them is configured, optimizer and learning rate schedule. Given arguments are kept. For other
    training loops, nothing changes.

    :param kwargs: the keyword arguments of a study
    :return: the completed ones
    :raises ValueError: if a loss or a negative sampler is given that cannot be used, or if the model does not fit
    """
    if not is_ours(kwargs.get("training_loop")):
        return dict(kwargs)
    training_loop: Any = training_loop_resolver.lookup(kwargs["training_loop"])
    completed = complete_model(complete_loss(kwargs))
    given = kwargs.get("model_kwargs") or {}
    if "regularizer" in completed.get("model_kwargs", {}) and "regularizer" not in given:
        # in a study, it is an argument of its own
        completed["model_kwargs"].pop("regularizer")
        completed["regularizer"] = "no"
    names = ("dataset", "dataset_kwargs", "training", "testing", "validation")
    factory = get_dataset(**{name: kwargs.get(name) for name in names}).training
    model = model_resolver.lookup(kwargs.get("model"))
    loss_kwargs = completed.get("loss_kwargs") or {}
    loss: Any = loss_resolver.make(completed["loss"], loss_kwargs)
    smallest = _limit_study(completed, training_loop, model, factory, loss)
    if not isinstance(loss, FactorizedLoss):
        # PyKEEN's own, for which it has ranges
        return _complete_optimization(completed, training_loop, model, needs_scores=True)
    if isinstance(loss, AutomaticLoss):
        if smallest is None:
            chosen = choose_loss(Frequencies.of(factory), training_loop.closed_world)
        else:
            # some models cannot be trained with the one that the graph suggests
            chosen = SoftmaxLoss if smallest.task.scores else NonSamplingLoss
        loss = chosen(**loss.kwargs)
        completed["loss"] = loss_resolver.normalize_inst(loss)
    ranges = loss_ranges(training_loop, loss, factory, Family.OTHER if smallest is None else smallest.family)
    _add_ranges(completed, "loss", {name: space for name, space in ranges.items() if name not in loss_kwargs})
    return _complete_optimization(completed, training_loop, model, loss.needs_scores)


def learning_rates(
    training_loop: type[FactorizedTrainingLoop], model: type[Model], needs_scores: bool
) -> tuple[str, dict[str, Any]]:
    """Choose an optimizer, and which learning rates to search.

    :param training_loop: the class of the training loop
    :param model: the class of the model
    :param needs_scores: whether the loss sees every score
    :return: the name of the optimizer, and the range, in PyKEEN's format
    """
    optimizer, lr = optimization(training_loop, model, needs_scores)
    low, high = LEARNING_RATE_FACTORS[optimizer]
    return optimizer, {"type": float, "low": low * lr, "high": high * lr, "log": True}


def _limit_study(
    completed: dict[str, Any],
    training_loop: type[FactorizedTrainingLoop],
    model: type[Model],
    factory: CoreTriplesFactory,
    loss: Loss,
) -> Outline | None:
    """Restrict the sizes that a study searches to what fits.

    :return: the smallest of the models; none, if its size is not known before it is made
    """
    model_kwargs = completed.get("model_kwargs") or {}
    given = completed.get("model_kwargs_ranges") or {}
    searched = {name: x for name, x in {**model.hpo_default, **given}.items() if name not in model_kwargs}
    sizes = {name: x for name, x in searched.items() if x["type"] in (int, "int") and not x.get("scale")}
    device = resolve_device(completed.get("device"))
    memory = free_memory(device) // 2
    fixed = {name: value for name, value in model_kwargs.items() if name not in ("loss", "regularizer")}

    def outlined(values: Mapping[str, int]) -> Outline:
        task = partial(training_loop.plan_task, loss, inverse=factory.create_inverse_triples)
        return outline(model, {**fixed, **values}, factory, task)

    lows = {name: x["low"] for name, x in sizes.items()}
    try:
        smallest = outlined(lows)
    except NotDecomposableError:
        raise
    except Exception as error:
        # e.g. one that computes vectors from the graph
        logger.info("The size of %s is not known before it is made, so the study does not limit it: %r", model, error)
        return None
    ours = {name: (x["low"], x["high"]) for name, x in sizes.items() if name not in given}
    theirs = {name: x["high"] for name, x in sizes.items() if name in given}
    highs = limit_sizes(ours, lambda values: fits(outlined({**theirs, **values}), memory, device)) if ours else {}
    if highs is None:
        needed = outlined({**theirs, **lows}).memory(device).total
        raise ValueError(
            f"{model.__name__} with {_format({**theirs, **lows})} has more than {WIDEST} features, or needs more than "
            f"half of the free memory: about {format_bytes(needed)} of {format_bytes(memory)}. Set smaller numbers, e.g. "
            f"model_kwargs=dict({_format({name: max(1, low // 4) for name, low in lows.items()})})."
        )
    limited = {}
    for name, high in highs.items():
        space, step = sizes[name], sizes[name].get("q") or sizes[name].get("step") or 1
        if high < space["high"]:
            limited[name] = {**space, "high": space["low"] + (high - space["low"]) // step * step}
    if limited:
        _add_ranges(completed, "model", limited)
    return smallest


def _format(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _add_ranges(completed: dict[str, Any], part: str, ranges: Mapping[str, Any]) -> None:
    """Add ranges to those of a study, unless the user gave others."""
    name = f"{part}_kwargs_ranges"
    completed[name] = {**ranges, **(completed.get(name) or {})}


def _complete_optimization(
    completed: dict[str, Any], training_loop: type[FactorizedTrainingLoop], model: type[Model], needs_scores: bool
) -> dict[str, Any]:
    """Fill in optimizer and schedule, unless any of them is configured."""
    if any(completed.get(name) for name in (*OPTIMIZATION, *(f"{x}_ranges" for x in OPTIMIZATION if x.endswith("kwargs")))):
        return completed
    optimizer, rates = learning_rates(training_loop, model, needs_scores)
    completed |= {"optimizer": optimizer, "optimizer_kwargs_ranges": dict(lr=rates)}
    if completed.get("stopper") in (None, "nop"):
        # not searched, since it is given; each trial replaces None by its own number of epochs
        completed |= {"lr_scheduler": "CosineAnnealingLR", "lr_scheduler_kwargs": dict(T_max=None)}
    return completed
