"""What commands have in common: checks of their input, quiet loggers, and figures."""

from __future__ import annotations

import difflib
import importlib.util
import json
import logging
import math
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import click
from class_resolver import ClassResolver
from pykeen.datasets import Dataset, dataset_resolver, get_dataset
from pykeen.models import LiteralModel, Model

from ..datasets import find_dropped


class _Positive(click.FloatRange):
    """A number that is positive and finite."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number > 0.", param, ctx)
        return number


POSITIVE = _Positive()

#: Values that are not JSON, but as advice in errors has them
PYTHON: Mapping[str, bool | None] = {"None": None, "True": True, "False": False}


def check_matplotlib() -> None:
    """Refuse to start if the results could not be drawn in the end."""
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError('Drawing needs matplotlib: pip install "pykeen-nonsampling[plot]"')


def make_figure(width: float, height: float) -> Any:
    """Make an empty figure, without changing the canvas that the user has chosen."""
    # matplotlib is an extra
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def silence() -> None:
    """Let loggers report only errors during a command: everything else is for developers, and would break progress bars."""
    context = click.get_current_context()
    for logger in map(logging.getLogger, ("optuna", "pykeen", "torch_max_mem", "pykeen_nonsampling")):
        context.call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.ERROR)
    # without a GPU, PyTorch warns about the pinned memory that PyKEEN's training loops ask for
    context.with_resource(warnings.catch_warnings())
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set", category=UserWarning)


def lookup(resolver: ClassResolver[Any], name: str, what: str) -> type[Any]:
    """Find a class by a name that the user gave."""
    try:
        return resolver.lookup(name)
    except KeyError as error:
        near = difflib.get_close_matches(resolver.normalize(name), resolver.lookup_dict)
        found = ", ".join(resolver.lookup_dict[key].__name__ for key in near)
        meant = f" Did you mean {found}?" if near else ""
        message = f"PyKEEN has no {what} {name!r}.{meant} For a list, run pykeen ls {what}s."
        raise click.BadParameter(message, param_hint=f"--{what}") from error


def load(cls: type[Dataset], **kwargs: Any) -> Dataset:
    """Load one of PyKEEN's datasets.

    :param cls: its class
    :param kwargs: its keyword-based parameters
    :return: the dataset
    :raises ClickException: if it cannot be downloaded, or read
    """
    try:
        return get_dataset(dataset=cls, dataset_kwargs=kwargs)
    except OSError as error:
        raise click.ClickException(
            f"{cls.__name__} cannot be loaded: {error}. PyKEEN downloads it once: check the connection, and the free space."
        ) from error


def check_literals(model: type[Model], dataset: Dataset, name: str) -> None:
    """Refuse a model that needs literals, for a dataset that has none.

    :param model: the class of the model
    :param dataset: the dataset
    :param name: the name of the dataset
    :raises BadParameter: if it has none
    """
    if issubclass(model, LiteralModel) and not hasattr(dataset.training, "numeric_literals"):
        message = (
            f"{model.__name__} needs numeric literals of entities, which {name} does not have. Use a dataset that has, e.g. "
            f"--dataset nationsliteral, or another model."
        )
        raise click.BadParameter(message, param_hint="--model")


def check_evaluation(dataset: Dataset, name: str, cls: type[Dataset] | None = None) -> None:
    """Say how many evaluation triples PyKEEN leaves out, and refuse a graph on which a model cannot be evaluated.

    :param dataset: the dataset
    :param name: its name
    :param cls: its class, if it is one of PyKEEN's
    :raises ClickException: if there is nothing to evaluate on
    """
    if dataset.num_entities < 2:
        raise click.ClickException(
            f"{name} has only one entity in its training triples: there is nothing to rank it against. Check that the "
            f"columns are head, relation and tail, or use a graph with more entities."
        )
    try:
        found = find_dropped(dataset, dataset if cls is None else dataset_resolver.make(cls))
    except OSError as error:
        click.echo(f"Whether PyKEEN has left out evaluation triples of {name} cannot be told: {error}.")
        return
    for split, (number, total, labels) in found.items():
        kind = "test" if split == "testing" else split
        if total and number == total:
            raise click.ClickException(
                f"None of the {total:,} {kind} triples of {name} can be evaluated: each has an entity or a relation that "
                f"does not occur in training, e.g. {labels[0]!r}. Check that labels are spelled alike in all files, and "
                f"give training triples for each of them."
            )
        if number:
            click.echo(
                f"{number:,} of {total:,} {kind} triples are left out: they have entities or relations that do not occur in "
                f"training, e.g. {labels[0]!r}, of which no model can know anything."
            )


def parse_argument(argument: str) -> tuple[str, Any]:
    """Split NAME=VALUE. The value is JSON, or else plain text."""
    name, equals, value = argument.partition("=")
    if not (name and equals):
        raise click.UsageError(f"{argument!r} is not a keyword argument: write NAME=VALUE, e.g. embedding_dim=64.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, PYTHON.get(value, value)
