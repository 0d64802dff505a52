"""Defaults for this package's training loops, where PyKEEN's pipelines would fill in those of its sampling loops.

:func:`complete` is the recipe for :func:`pykeen.pipeline.pipeline`, and a pure function. With the package installed, the
pipeline uses it automatically. :func:`pykeen_nonsampling.hpo.complete_study` is the one for studies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pykeen.losses import Loss, loss_resolver
from pykeen.lr_schedulers import lr_scheduler_resolver
from pykeen.models import (
    CP,
    RESCAL,
    UM,
    AutoSF,
    ComplEx,
    DistMA,
    DistMult,
    HolE,
    Model,
    MuRE,
    PairRE,
    QuatE,
    RotatE,
    SimplE,
    TransE,
    TransF,
    TuckER,
    model_resolver,
)
from pykeen.training import TrainingLoop, training_loop_resolver
from pykeen.triples import CoreTriplesFactory
from pykeen.utils import resolve_device
from torch.optim.lr_scheduler import CosineAnnealingLR

from .factorizations import Factorization
from .factorizations.features import factorize_model
from .losses import AutomaticLoss, SoftmaxLoss, check_loss
from .memory.room import Room, check_model
from .training import FactorizedTrainingLoop, NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop
from .training.arguments import check_negative_sampler

#: Adam's learning rates for steps on the whole graph: large ones at first, and small ones at the end. PyKEEN's is 0.001.
LEARNING_RATE: Mapping[type[TrainingLoop[Any]], float] = {
    NonSamplingTrainingLoop: 0.02,
    NonSamplingLCWATrainingLoop: 0.05,
}

#: Adagrad's learning rate for mini-batches of a loss that sees every score. In each step, every entity is a candidate,
#: mostly with a tiny gradient: Adam makes a whole step of it, while Adagrad remembers the larger ones.
ADAGRAD_LEARNING_RATE = 0.2

#: The same for models that need another one: RotatE's phases have farther to go than other numbers
ADAGRAD_LEARNING_RATES: Mapping[type[Model], float] = {RotatE: 0.5}

#: The largest one for RESCAL, times the dimension: the more numbers of a matrix change at once, the more its
#: products with vectors change
MATRIX_LEARNING_RATE = 5.0

#: The number of epochs of the squared loss that cross-entropy starts from: they are cheap, and bring vectors close to where
#: its own epochs would take long to get
START_EPOCHS = 100

#: The dimension whose learning rate a search starts from, if it searches the dimension, too
TYPICAL_DIMENSION = 100

#: What a model needs for a factorization, where PyKEEN's defaults leave it without one
REQUIRED: Mapping[type[Model], Mapping[str, Any]] = {
    MuRE: dict(p=2, power_norm=True),
    PairRE: dict(p=2),
    TransE: dict(scoring_fct_norm=2),
    TuckER: dict(dropout_0=0.0, dropout_1=0.0, dropout_2=0.0, apply_batch_normalization=False),
    UM: dict(scoring_fct_norm=2),
}

_SMALL = dict(entity_initializer="xavier_normal", relation_initializer="xavier_normal")

#: What suits the losses of this package better than PyKEEN's defaults: scores must be able to reach 1 and 0, so vectors may
#: have any length and are small at the start; for distances, they make scores start where those of false triples should be
SUITABLE: Mapping[type[Model], Mapping[str, Any]] = {
    AutoSF: dict(embedding_kwargs=dict(initializer="xavier_normal")),
    CP: _SMALL,
    ComplEx: dict(**_SMALL, regularizer=None),
    DistMA: _SMALL,
    DistMult: dict(**_SMALL, regularizer=None, entity_constrainer=None),
    HolE: dict(entity_initializer="normal_norm", relation_initializer="normal_norm", entity_constrainer=None),
    MuRE: dict(entity_initializer_kwargs=dict(std=0.05)),
    PairRE: dict(relation_initializer_kwargs=dict(a=-(3**0.5), b=3**0.5)),
    QuatE: dict(entity_regularizer=None, relation_regularizer=None),
    RESCAL: dict(**_SMALL, regularizer=None),
    RotatE: dict(entity_initializer="normal_norm"),
    SimplE: _SMALL,
    TransF: _SMALL,
    TuckER: dict(core_tensor_initializer="xavier_normal"),
    UM: dict(entity_initializer="normal_norm"),
}

#: The arguments of optimizer and schedule, which are filled in together or not at all
OPTIMIZATION = ("optimizer", "optimizer_kwargs", "lr_scheduler", "lr_scheduler_kwargs")


def is_ours(training_loop: str | type[TrainingLoop[Any]] | None) -> bool:
    """Whether a training loop is one of this package's."""
    return issubclass(training_loop_resolver.lookup(training_loop), FactorizedTrainingLoop)


def optimization(
    training_loop: type[TrainingLoop[Any]], model: type[Model], needs_scores: bool, dimension: int = TYPICAL_DIMENSION
) -> tuple[str, float]:
    """Choose an optimizer and its learning rate.

    :param training_loop: the class of the training loop
    :param model: the class of the model
    :param needs_scores: whether the loss sees every score
    :param dimension: the dimension of the entities' vectors
    :return: the name of the optimizer, and the learning rate
    """
    if needs_scores:
        rate = ADAGRAD_LEARNING_RATES.get(model, ADAGRAD_LEARNING_RATE)
        return "Adagrad", min(rate, MATRIX_LEARNING_RATE / dimension) if issubclass(model, RESCAL) else rate
    return "Adam", next(rate for cls, rate in LEARNING_RATE.items() if issubclass(training_loop, cls))


def required_kwargs(model: type[Model]) -> dict[str, Any]:
    """Return the keyword arguments that a model needs to be trained at all."""
    return dict(REQUIRED.get(model, {}))


def model_defaults(model: type[Model]) -> dict[str, Any]:
    """Return the keyword arguments that replace PyKEEN's defaults of a model."""
    return {**REQUIRED.get(model, {}), **SUITABLE.get(model, {})}


def complete(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what :func:`pykeen.pipeline.pipeline` should get for one of this package's training loops.

    This is the loss, parameters of the model, and the whole graph as batch. A cosine schedule ends with the last epoch,
    unless told otherwise. Given arguments are kept. For other training loops, nothing changes. The optimizer depends on the
    graph, cf. :func:`complete_training`.

    :param kwargs: the keyword arguments of a pipeline
    :return: the completed ones
    :raises ValueError: if a loss or a negative sampler is given that cannot be used
    """
    if not is_ours(kwargs.get("training_loop")):
        return dict(kwargs)
    training_kwargs = {"batch_size": None, **(kwargs.get("training_kwargs") or {})}
    return _complete_schedule(complete_model(complete_loss({**kwargs, "training_kwargs": training_kwargs})))


def complete_training(kwargs: Mapping[str, Any], model: Model, factory: CoreTriplesFactory) -> dict[str, Any]:
    """Choose what to start from, and, unless any of them is configured, optimizer and learning rate schedule.

    They depend on the loss: with one that sees every score, an epoch has many steps, and otherwise a single one.

    :param kwargs: the completed keyword arguments of a pipeline
    :param model: its model
    :param factory: the training triples
    :return: the arguments to add
    """
    training_loop: Any = training_loop_resolver.lookup(kwargs["training_loop"])
    label_smoothing = (kwargs.get("training_kwargs") or {}).get("label_smoothing", 0.0)
    loop_kwargs = kwargs.get("training_loop_kwargs") or {}
    loss = training_loop.find_loss(model, factory, label_smoothing, **loop_kwargs)
    added: dict[str, Any] = {}
    factorization = factorize_model(model, loop_kwargs.get("factorization"), loop_kwargs.get("factorization_kwargs"))
    start = start_epochs(loss, factorization)
    if start and loop_kwargs.get("start_epochs") is None:
        added["training_loop_kwargs"] = {**loop_kwargs, "start_epochs": start}
    if any(kwargs.get(name) for name in OPTIMIZATION):
        return added
    dimension = model.entity_representations[0].shape[0] if isinstance(model, RESCAL) else TYPICAL_DIMENSION
    optimizer, lr = optimization(training_loop, type(model), loss.needs_scores, dimension)
    added |= {"optimizer": optimizer, "optimizer_kwargs": dict(lr=lr)}
    if _epochs(kwargs) and kwargs.get("stopper") in (None, "nop"):
        # with an early stopper, the last epoch is not known beforehand
        added |= {"lr_scheduler": "CosineAnnealingLR", "lr_scheduler_kwargs": dict(T_max=_epochs(kwargs))}
    return added


def start_epochs(loss: Loss, factorization: Factorization) -> int:
    """Choose the number of epochs of the squared loss to start with.

    :param loss: the loss to train with
    :param factorization: the factorization of the model's score
    :return: the number; 0, if there is no such start
    """
    return START_EPOCHS if isinstance(loss, SoftmaxLoss) and factorization.no_moments is None else 0


def _epochs(kwargs: Mapping[str, Any]) -> int | None:
    """Return the number of epochs of a pipeline, if it is set."""
    return kwargs.get("epochs") or (kwargs.get("training_kwargs") or {}).get("num_epochs")


def check_size(
    kwargs: Mapping[str, Any], model: Any, model_kwargs: Mapping[str, Any] | None, factory: CoreTriplesFactory
) -> Room | None:
    """Refuse a pipeline whose model does not fit the memory, before it is made.

    :param kwargs: the completed keyword arguments of the pipeline
    :param model: the model, or a hint for it
    :param model_kwargs: its keyword arguments
    :param factory: the training triples
    :return: the room that there is; none, if the size is not known before the model is made
    :raises ValueError: if it does not fit
    """
    training_loop: Any = training_loop_resolver.lookup(kwargs["training_loop"])
    loop_kwargs = kwargs.get("training_loop_kwargs") or {}
    loss = kwargs.get("loss") or (kwargs.get("model_kwargs") or {}).get("loss")
    if loss is not None and not isinstance(loss, Loss):
        loss = loss_resolver.make(loss, kwargs.get("loss_kwargs"))
    inverse, target = factory.create_inverse_triples, loop_kwargs.get("target")
    return check_model(
        model_resolver.lookup(model),
        {name: value for name, value in (model_kwargs or {}).items() if name not in ("loss", "regularizer")},
        factory,
        partial(training_loop.plan_task, loss, inverse=inverse, target=target),
        resolve_device(kwargs.get("device")),
        loop_kwargs.get("memory_budget"),
    )


def _complete_schedule(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Let a cosine schedule end with the last epoch, unless the user says when."""
    scheduler, scheduler_kwargs = kwargs.get("lr_scheduler"), kwargs.get("lr_scheduler_kwargs") or {}
    if scheduler is None or not _epochs(kwargs) or scheduler_kwargs.get("T_max") is not None:
        return kwargs
    if not issubclass(lr_scheduler_resolver.lookup(scheduler), CosineAnnealingLR):
        return kwargs
    return {**kwargs, "lr_scheduler_kwargs": {**scheduler_kwargs, "T_max": _epochs(kwargs)}}


def difference(completed: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was filled in, one level deep."""
    added = {}
    for name, value in completed.items():
        old = given.get(name)
        if isinstance(value, Mapping):
            value = {key: x for key, x in value.items() if key not in (old or {}) and key != "batch_size"}
            if value:
                added[name] = value
        elif old is None and value is not None:
            added[name] = value
    return added


def complete_loss(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the default loss, or check the given one."""
    check_negative_sampler(kwargs.get("negative_sampler"), kwargs.get("negative_sampler_kwargs"))
    completed = dict(kwargs)
    if completed.get("loss_kwargs"):
        # None is left out: trackers refuse a value that changes later, when it is derived
        completed["loss_kwargs"] = {name: value for name, value in completed["loss_kwargs"].items() if value is not None}
    loss = kwargs.get("loss") or (kwargs.get("model_kwargs") or {}).get("loss")
    if loss is not None:
        training_loop: Any = training_loop_resolver.lookup(kwargs["training_loop"])
        check_loss(type(loss) if isinstance(loss, Loss) else loss_resolver.lookup(loss), training_loop.closed_world)
    elif not isinstance(kwargs.get("model"), Model):
        # a model comes with its loss, which the training loop checks
        common = set(kwargs.get("loss_kwargs") or {}) <= set(AutomaticLoss().kwargs)
        completed["loss"] = "automatic" if common else "nonsampling"
    return completed


def complete_model(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of the model."""
    model = kwargs.get("model")
    if model is None or isinstance(model, Model):
        return kwargs
    defaults = model_defaults(model_resolver.lookup(model))
    if kwargs.get("regularizer"):
        defaults.pop("regularizer", None)
    return {**kwargs, "model_kwargs": {**defaults, **(kwargs.get("model_kwargs") or {})}}


def format_markdown() -> str:
    """Write the defaults of all models as a table in Markdown."""
    tables = {"required for a factorization": REQUIRED, "suits the losses of this package": SUITABLE}
    lines = [f"| model | {' | '.join(tables)} |", "|---" * (1 + len(tables)) + "|"]
    for model in sorted({*REQUIRED, *SUITABLE}, key=lambda cls: cls.__name__.lower()):
        cells = (
            "<br>".join(f"`{name}={value!r}`" for name, value in table.get(model, {}).items()) for table in tables.values()
        )
        lines.append(f"| {model.__name__} | {' | '.join(cells)} |")
    return "\n".join(lines)
