"""Workarounds for PyKEEN, each with the version that it is for and a proposal that would make it unnecessary.

Some more are overrides, which stand where PyKEEN's classes are extended:

- ``FactorizedTrainingLoop.checksum``: that of PyKEEN 1.11.1 includes the current learning rate, so no run with a scheduler
  can be resumed. Proposal: the optimizer's defaults instead.
- ``FactorizedTrainingLoop.sub_batch_and_slice``: automatic memory optimization replaces a ``sub_batch_size`` that the user
  set. Proposal: search for one only if there is none.
- ``FactorizedRankBasedEvaluator.evaluate``: PyKEEN sorts all filter triples by rows, which takes longer than the evaluation.
  Proposal: sort them as single numbers.
- ``RecordedResult``: ``results.json`` has no configuration. Proposal: to write it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import torch
from class_resolver.contrib.torch import activation_resolver
from click.core import ParameterSource
from torch import nn

# PyKEEN 1.11.1 loads entry points from one group only, that of datasets, and in the middle of its own imports.
# Proposal: resolvers for training loops, losses and evaluators that load entry points, as the one for datasets does.


def when_imported(name: str, action: Callable[[ModuleType], object]) -> None:
    """Call an action with a module as soon as it is completely imported.

    :param name: the name of the module
    :param action: the action
    """
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _BeforeImport(name, action))
    elif module.__spec__ is not None and getattr(module.__spec__, "_initializing", False):
        _on_first_use(module, action)
    else:
        action(module)


class _BeforeImport(MetaPathFinder):
    """Finds one module, once, as the other finders would, and calls an action after its execution."""

    def __init__(self, name: str, action: Callable[[ModuleType], object]):
        self.name = name
        self.action = action

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self.action(module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


def _on_first_use(module: ModuleType, action: Callable[[ModuleType], object]) -> None:
    """Call an action just before a module whose import is under way is first used from outside."""
    cls = type(module)

    class Awaited(cls):  # type: ignore[misc,valid-type]
        def __getattribute__(self, name: str) -> Any:
            # the import system itself looks at names such as __spec__ in the meantime
            if not name.startswith("__") and not self.__spec__._initializing:
                self.__class__ = cls  # type: ignore[assignment]
                action(self)
            return cls.__getattribute__(self, name)

    module.__class__ = Awaited


# PyKEEN 1.11.1 collects garbage after every epoch, which takes as long as a whole epoch here.
# Proposal: collect only every few seconds, or not at all.


@contextlib.contextmanager
def cheap_garbage_collection() -> Iterator[Callable[[], None]]:
    """Hide objects that already exist from the garbage collector, unless the host program has frozen some itself.

    There is no way to unfreeze only those that were frozen here.

    :yield: what hides those that have come to exist in the meantime, too
    """
    if gc.get_freeze_count():
        yield lambda: None
        return
    gc.freeze()
    try:
        yield gc.freeze
    finally:
        gc.unfreeze()


# PyKEEN 1.11.1 passes the number of the epoch to learning rate schedulers, which PyTorch has deprecated.
# Proposal: lr_scheduler.step() without it.


_EPOCH_WARNING: Any = ("ignore", re.compile(r"The epoch parameter in `scheduler\.step"), UserWarning, None, 0)


@contextlib.contextmanager
def mapped_loading(path: Path) -> Iterator[None]:
    """Let a file be mapped to memory when it is loaded. PyKEEN reads a whole checkpoint to find the random seed in it.

    :param path: the file
    """
    load = torch.load

    def load_mapped(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | Path) and Path(file) == path:
            kwargs.setdefault("mmap", True)
        return load(file, *args, **kwargs)

    torch.load = load_mapped  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.load = load


@contextlib.contextmanager
def quiet_schedulers() -> Iterator[None]:
    """Silence the warning that users can do nothing about.

    All threads have the same filters. With ``warnings.catch_warnings``, each would restore those that it found, which may
    include those of another training.
    """
    filters: Any = warnings.filters
    filters.insert(0, _EPOCH_WARNING)
    try:
        yield
    finally:
        # not there, if somebody has replaced the filters in the meantime
        with contextlib.suppress(ValueError):
            filters.remove(_EPOCH_WARNING)


# PyKEEN 1.11.1 does not tell its callbacks for gradient clipping which training loop they belong to, so they fail.
# Proposal: register them like all others.


def with_gradient_clipping(
    *,
    callbacks: Any = None,
    callbacks_kwargs: Any = None,
    gradient_clipping_max_norm: float | None = None,
    gradient_clipping_norm_type: float | None = None,
    gradient_clipping_max_abs_value: float | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Clip gradients with callbacks that know the training loop."""
    from pykeen.training.callbacks import (
        GradientAbsClippingTrainingCallback,
        GradientNormClippingTrainingCallback,
        MultiTrainingCallback,
    )

    callback = MultiTrainingCallback(callbacks=callbacks, callbacks_kwargs=callbacks_kwargs)
    if gradient_clipping_max_norm is not None:
        callback.register_callback(
            GradientNormClippingTrainingCallback(gradient_clipping_max_norm, norm_type=gradient_clipping_norm_type)
        )
    if gradient_clipping_max_abs_value is not None:
        callback.register_callback(GradientAbsClippingTrainingCallback(gradient_clipping_max_abs_value))
    return dict(callbacks=callback, **kwargs)


# PyKEEN 1.11.1's command line passes its own defaults to pipeline() as if the user had asked for them.
# Proposal: options without defaults.


def without_command_line_defaults(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what PyKEEN's command line passes to pipeline() although the user did not ask for it."""
    context = click.get_current_context(silent=True)
    if context is None or not getattr(context.command.callback, "__module__", "").startswith("pykeen."):
        return dict(kwargs)

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


# PyKEEN 1.11.1 finds activation functions by class-resolver's names, among which the identity is missing, so that a model
# without activation function cannot be configured in JSON.
# Proposal: class-resolver's activation_resolver with torch.nn.Identity.


def register_identity() -> None:
    """Let ``"identity"`` be the name of an activation function."""
    activation_resolver.register(nn.Identity, raise_on_conflict=False)


# PyKEEN 1.11.1 makes the model of a pipeline before the training loop sees anything, even if there is no memory for it, and
# the optimizer, which depends on graph and model, too.
# Proposal: a training loop class that is asked before.


def before(module: ModuleType, name: str, complete: Callable[..., Mapping[str, Any]]) -> None:
    """Let a function see the arguments of another one before it is called.

    :param module: the module of the other function
    :param name: its name
    :param complete: gets the arguments, and returns those that it changes; it may refuse them
    """
    function = getattr(module, name)

    @functools.wraps(function)
    def wrapper(**kwargs: Any) -> Any:
        return function(**{**kwargs, **complete(**kwargs)})

    setattr(module, name, wrapper)
