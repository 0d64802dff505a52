"""What PyKEEN's entry point loads: registers training loops, losses and evaluators, no matter what is imported first.

PyKEEN 1.11.1 looks for plugins in one place only, the entry points of :mod:`pykeen.datasets`, in the middle of its own
imports. The loss can be registered right then. The rest has to wait until the part of PyKEEN that it extends is complete.
Proposal: entry points for all resolvers, and training loops with their own defaults for ``pipeline()``, which would
make this module unnecessary.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = [
    "AllEntities",
    "SyntheticGraph",
]

logger = logging.getLogger(__name__)


def report(error: Exception) -> None:
    """Say what is broken, and how to mend it. PyKEEN goes on without it: nobody else's work should fail for it."""
    warnings.warn(
        f"pykeen-nonsampling failed to load and was skipped: {type(error).__name__}: {error}. "
        f"If `pip check` finds a dependency that is missing or of another version, install that. Otherwise, repair the "
        f"package with `pip install --force-reinstall --no-deps pykeen-nonsampling`, or remove it with "
        f"`pip uninstall pykeen-nonsampling`.",
        RuntimeWarning,
        stacklevel=2,
    )


def wrap_pipeline(module: ModuleType) -> None:
    """Let pipeline() start from this package's recipe, for its own training loops, and record what was derived."""
    from pykeen.datasets import get_dataset
    from pykeen.models import Model

    from .checkpoints import prepare
    from .defaults import check_size, complete, complete_training, difference
    from .distributed.group import Group
    from .memory.room import known_room
    from .recording import RecordedResult
    from .training.loop import loss_is_given
    from .training.messages import derived

    running: ContextVar[Mapping[str, Any] | None] = ContextVar("running", default=None)

    def check_model(**kwargs: Any) -> Mapping[str, Any]:
        arguments = running.get()
        if arguments is not None:
            room = check_size(arguments, kwargs["model"], kwargs["model_kwargs"], kwargs["training_triples_factory"])
            known_room.set(room)
        return {}

    def choose_training(**kwargs: Any) -> Mapping[str, Any]:
        arguments = running.get()
        if arguments is None:
            return {}
        added = complete_training(arguments, kwargs["model_instance"], kwargs["training"])
        derived.set({**derived.get(), **added})
        return added

    before(module, "_build_model_helper", check_model)
    before(module, "_handle_training_loop", choose_training)

    def run(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
        completed = complete(without_command_line_defaults(kwargs))
        group = Group.current()
        if group.is_first and group.size > 1:
            # PyKEEN's cache of datasets is not made for several processes that write it at once
            names = ("dataset", "dataset_kwargs", "training", "testing", "validation")
            get_dataset(**{name: completed.get(name) for name in names})
        elif not group.is_first:
            # one of several processes is enough
            completed["result_tracker"] = None
        group.same(None)
        # PyKEEN itself looks at the checkpoint before the training loop can
        prepare(completed.get("training_kwargs"))
        tokens = derived.set(difference(completed, kwargs)), running.set(completed), known_room.set(None)
        # unless it comes with a model, since then it may be the default of that
        given = loss_is_given.set(not isinstance(completed.get("model"), Model))
        try:
            return RecordedResult.of(function(**completed))
        finally:
            derived.reset(tokens[0])
            running.reset(tokens[1])
            known_room.reset(tokens[2])
            loss_is_given.reset(given)

    _wrap(module, "pipeline", run)


def wrap_study(module: ModuleType) -> None:
    """Let hpo_pipeline() search what suits graph and model, for its own training loops."""
    from .defaults import difference
    from .hpo import complete_study

    def run(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
        completed = complete_study(kwargs)
        logger.info("Derived for all trials: %s", difference(completed, kwargs))
        return function(**completed)

    _wrap(module, "hpo_pipeline", run)


def _wrap(module: ModuleType, name: str, run: Callable[[Callable[..., Any], Mapping[str, Any]], Any]) -> None:
    """Run one of PyKEEN's functions differently, for this package's training loops only."""
    from .defaults import is_ours

    function = getattr(module, name)

    @functools.wraps(function)
    def wrapper(**kwargs: Any) -> Any:
        return run(function, kwargs) if is_ours(kwargs.get("training_loop")) else function(**kwargs)

    setattr(module, name, wrapper)


def if_possible(action: Callable[[ModuleType], object]) -> Callable[[ModuleType], None]:
    """Let an action report its failure, in the middle of PyKEEN's imports, instead of breaking them."""

    def act(module: ModuleType) -> None:
        try:
            action(module)
        except Exception as error:
            report(error)

    return act


try:
    from . import losses  # noqa: F401
    from ._compat import before, register_identity, when_imported, without_command_line_defaults
    from .datasets import AllEntities, SyntheticGraph
except Exception as error:
    # without these names, PyKEEN leaves out the entry points
    report(error)
else:
    register_identity()
    when_imported("pykeen.evaluation", if_possible(lambda _: import_module("pykeen_nonsampling.ranking.evaluator")))
    when_imported("pykeen.training", if_possible(lambda _: import_module("pykeen_nonsampling.training")))
    when_imported("pykeen.pipeline.api", if_possible(wrap_pipeline))
    when_imported("pykeen.hpo.hpo", if_possible(wrap_study))
