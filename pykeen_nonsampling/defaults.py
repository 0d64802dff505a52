"""Defaults of this plugin's training loops, where PyKEEN's pipelines would fill in those of its sampling loops.

What a user leaves out, :func:`pykeen.pipeline.pipeline` and :func:`pykeen.hpo.hpo_pipeline` replace by what suits margin
ranking losses and batches of 256 triples before a training loop sees it, and record it as the configuration. So the two
functions are wrapped: with one of this plugin's training loops, its defaults come first; with any other, nothing changes.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import click
from click.core import ParameterSource
from pykeen.losses import Loss, loss_resolver
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
from pykeen.training import training_loop_resolver

from .losses import NonSamplingLoss, check_loss
from .training import FactorizedTrainingLoop
from .training.base import check_negative_sampler

__all__ = [
    "MODEL_DEFAULTS",
    "model_defaults",
    "provide_defaults",
]

logger = logging.getLogger(__name__)

_SMALL = dict(entity_initializer="xavier_normal", relation_initializer="xavier_normal")

#: What each model needs beside PyKEEN's defaults: only scores that can reach 1 and 0 fit a squared loss, so vectors are free
#: in length and small at the start; distances need the 2-norm, and vectors that make them as large at the start as those of
#: false triples should be; TuckER has to do without dropout and batch normalization.
MODEL_DEFAULTS: Mapping[type[Model], Mapping[str, Any]] = {
    AutoSF: dict(embedding_kwargs=dict(initializer="xavier_normal")),
    CP: _SMALL,
    ComplEx: dict(**_SMALL, regularizer=None),
    DistMA: _SMALL,
    DistMult: dict(**_SMALL, regularizer=None, entity_constrainer=None),
    HolE: dict(entity_initializer="normal_norm", relation_initializer="normal_norm", entity_constrainer=None),
    MuRE: dict(p=2, power_norm=True, entity_initializer_kwargs=dict(std=0.05)),
    PairRE: dict(p=2, relation_initializer_kwargs=dict(a=-(3**0.5), b=3**0.5)),
    QuatE: dict(entity_regularizer=None, relation_regularizer=None),
    RESCAL: dict(**_SMALL, regularizer=None),
    RotatE: dict(entity_initializer="normal_norm"),
    SimplE: _SMALL,
    TransE: dict(scoring_fct_norm=2),
    TransF: _SMALL,
    TuckER: dict(
        dropout_0=0.0,
        dropout_1=0.0,
        dropout_2=0.0,
        apply_batch_normalization=False,
        core_tensor_initializer="xavier_normal",
    ),
    UM: dict(scoring_fct_norm=2, entity_initializer="normal_norm"),
}

#: Large steps at first, which a full batch allows, and small ones in the end. PyKEEN's default for Adam is 0.001.
LEARNING_RATE = 0.02


def provide_defaults(module: ModuleType) -> None:
    """Wrap the pipeline function of a PyKEEN module."""
    for name, complete in (("pipeline", _complete_pipeline), ("hpo_pipeline", _complete_study)):
        function = vars(module).get(name)
        # a name imported from another module is wrapped there
        if function is not None and function.__module__ == module.__name__:
            setattr(module, name, _with_defaults(function, complete))


def _with_defaults(
    function: Callable[..., Any], complete: Callable[[dict[str, Any], type[FactorizedTrainingLoop[Any]]], dict[str, Any]]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(**kwargs: Any) -> Any:
        training_loop = training_loop_resolver.lookup(kwargs.get("training_loop"))
        if issubclass(training_loop, FactorizedTrainingLoop):
            kwargs = complete(kwargs, training_loop)
        return function(**kwargs)

    return wrapper


def _complete_pipeline(kwargs: dict[str, Any], training_loop: type[FactorizedTrainingLoop[Any]]) -> dict[str, Any]:
    """Put the default loss, model, optimizer and batch, the whole graph, in place."""
    kwargs = _without_defaults_of_the_command_line(kwargs)
    training_kwargs = {"batch_size": None, **(kwargs.get("training_kwargs") or {})}
    kwargs = _complete_model(_complete_loss({**kwargs, "training_kwargs": training_kwargs}))
    if any(kwargs.get(name) for name in ("optimizer", "optimizer_kwargs", "lr_scheduler", "lr_scheduler_kwargs")):
        return kwargs
    kwargs = {**kwargs, "optimizer": "Adam", "optimizer_kwargs": dict(lr=LEARNING_RATE)}
    epochs = kwargs.get("epochs") or training_kwargs.get("num_epochs")
    if epochs and kwargs.get("stopper") in (None, "nop"):
        # with an early stopper, nobody knows when the end will be
        kwargs |= {"lr_scheduler": "CosineAnnealingLR", "lr_scheduler_kwargs": dict(T_max=epochs)}
    logger.warning(
        "Nothing was said about the optimizer: using Adam with a learning rate of %g%s.",
        LEARNING_RATE,
        ", going down to 0 by a cosine" if "lr_scheduler" in kwargs else "",
    )
    return kwargs


def _complete_study(kwargs: dict[str, Any], training_loop: type[FactorizedTrainingLoop[Any]]) -> dict[str, Any]:
    """Put the default loss, its search space, and the default model in place."""
    given = kwargs.get("model_kwargs") or {}
    kwargs = _complete_model(_complete_loss(kwargs))
    if "regularizer" in kwargs.get("model_kwargs", {}) and "regularizer" not in given:
        # in a study, it has a place of its own
        kwargs["model_kwargs"].pop("regularizer")
        kwargs["regularizer"] = "no"
    loss_kwargs = kwargs.get("loss_kwargs") or {}
    ranges = {name: space for name, space in training_loop.loss_hpo_default.items() if name not in loss_kwargs}
    return {**kwargs, "loss_kwargs_ranges": {**ranges, **(kwargs.get("loss_kwargs_ranges") or {})}}


def _complete_loss(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Put the default loss in place, or check the one that is named."""
    check_negative_sampler(kwargs.get("negative_sampler"), kwargs.get("negative_sampler_kwargs"))
    loss = kwargs.get("loss") or (kwargs.get("model_kwargs") or {}).get("loss")
    if loss is not None:
        check_loss(type(loss) if isinstance(loss, Loss) else loss_resolver.lookup(loss))
        return kwargs
    if isinstance(kwargs.get("model"), Model):
        # it brings its loss, which the training loop looks at
        return kwargs
    logger.warning("No loss was named: using loss='nonsampling', which this training loop needs.")
    return {**kwargs, "loss": NonSamplingLoss}


def model_defaults(model: type[Model], given: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the keyword arguments of a model that suit a squared loss, beside the given ones."""
    return {name: value for name, value in MODEL_DEFAULTS.get(model, {}).items() if name not in given}


def _complete_model(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Put the defaults of the model that suit a squared loss in place."""
    model = kwargs.get("model")
    if model is None or isinstance(model, Model):
        return kwargs
    given = dict(kwargs.get("model_kwargs") or {})
    defaults = model_defaults(model_resolver.lookup(model), given)
    if kwargs.get("regularizer"):
        defaults.pop("regularizer", None)
    if defaults:
        logger.warning(
            "Using model_kwargs=dict(%s), which suit a squared loss better than PyKEEN's defaults.",
            ", ".join(f"{name}={value!r}" for name, value in defaults.items()),
        )
    return {**kwargs, "model_kwargs": {**defaults, **given}}


def _without_defaults_of_the_command_line(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Leave out what PyKEEN's command line passes, but nobody asked for."""
    context = click.get_current_context(silent=True)
    if context is None or not getattr(context.command.callback, "__module__", "").startswith("pykeen."):
        return kwargs

    def given(arguments: Mapping[str, Any] | None, **options: str) -> dict[str, Any]:
        return {
            name: value
            for name, value in (arguments or {}).items()
            if context.get_parameter_source(options.get(name, name)) is not ParameterSource.DEFAULT
        }

    return {
        **given(kwargs),
        "model_kwargs": given(kwargs.get("model_kwargs")),
        "training_kwargs": given(kwargs.get("training_kwargs"), num_epochs="number_epochs"),
        "optimizer_kwargs": given(kwargs.get("optimizer_kwargs"), lr="learning_rate"),
    }
