"""Defaults of this plugin's training loops, where PyKEEN's pipelines would fill in those of its sampling loops.

What a user leaves out, :func:`pykeen.pipeline.pipeline` and :func:`pykeen.hpo.hpo_pipeline` replace by a margin ranking loss
and batches of 256 triples before a training loop sees it, and record it as the configuration. So the two functions are
wrapped: with one of this plugin's training loops, its defaults come first; with any other, nothing changes.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import click
from click.core import ParameterSource
from pykeen.losses import Loss, loss_resolver
from pykeen.models import Model
from pykeen.training import training_loop_resolver

from .losses import NonSamplingLoss, check_loss
from .training import FactorizedTrainingLoop
from .training.base import check_negative_sampler

__all__ = [
    "provide_defaults",
]

logger = logging.getLogger(__name__)


def provide_defaults(module: ModuleType) -> None:
    """Wrap the pipeline function of a PyKEEN module."""
    for name, complete in (("pipeline", _complete_pipeline), ("hpo_pipeline", _complete_loss)):
        function = vars(module).get(name)
        # a name imported from another module is wrapped there
        if function is not None and function.__module__ == module.__name__:
            setattr(module, name, _with_defaults(function, complete))


def _with_defaults(function: Callable[..., Any], complete: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(**kwargs: Any) -> Any:
        if issubclass(training_loop_resolver.lookup(kwargs.get("training_loop")), FactorizedTrainingLoop):
            kwargs = complete(kwargs)
        return function(**kwargs)

    return wrapper


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


def _complete_pipeline(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Put the default loss and the default batch, the whole graph, in place."""
    training_kwargs = dict(kwargs.get("training_kwargs") or {})
    context = click.get_current_context(silent=True)
    if (
        context is not None
        and getattr(context.command.callback, "__module__", "").startswith("pykeen.")
        and context.get_parameter_source("batch_size") is ParameterSource.DEFAULT
    ):
        # nobody asked for the default of PyKEEN's command line
        training_kwargs.pop("batch_size", None)
    training_kwargs.setdefault("batch_size", None)
    return _complete_loss({**kwargs, "training_kwargs": training_kwargs})
