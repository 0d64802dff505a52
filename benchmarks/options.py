"""What ``speed``, ``ranks`` and ``cross_entropy`` have in common: a graph, models, and a file for all numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from pykeen.datasets import Dataset, dataset_resolver
from pykeen.models import model_resolver

from pykeen_nonsampling.cli.console import load, lookup

from .subject import check_model

F = TypeVar("F", bound=Callable[..., Any])


def graph_options(function: F) -> F:
    """Add options for the graph: the name of a dataset, or sizes."""
    for decorate in (
        click.option("--triples", type=click.IntRange(min=1), help="The number of triples of the synthetic graph."),
        click.option("--relations", type=click.IntRange(min=1), help="The number of relations of the synthetic graph."),
        click.option(
            "--entities", type=click.IntRange(min=1), help="Use a synthetic graph with this many entities instead."
        ),
        click.option("--dataset", default="fb15k237", show_default=True, help="The name of a PyKEEN dataset."),
    ):
        function = decorate(function)
    return function


def model_options(
    models: Sequence[str] = ("DistMult", "SimplE", "ComplEx", "TransE"), dims: Sequence[int] = (200,), repeats: int = 5
) -> Callable[[F], F]:
    """Add options for models, dimensions and repeats, with these defaults."""

    def decorate(function: F) -> F:
        for option in (
            click.option(
                "--repeats",
                type=click.IntRange(min=1),
                default=repeats,
                show_default=True,
                help="How often each time is measured; medians are reported.",
            ),
            click.option(
                "--dim",
                "dims",
                multiple=True,
                type=click.IntRange(min=1),
                default=dims,
                show_default=True,
                help="The embedding dimension; may be repeated.",
            ),
            click.option(
                "--model",
                "models",
                multiple=True,
                default=models,
                show_default=True,
                help="The name of a PyKEEN model; may be repeated.",
            ),
        ):
            function = option(function)
        return function

    return decorate


def output_option(content: str) -> Callable[[F], F]:
    """Add an option for the directory for results.

    :param content: what is written into it
    """
    return click.option(
        "--output",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("benchmark"),
        show_default=True,
        help=f"The directory for {content}.",
    )


def json_option(name: str) -> Callable[[F], F]:
    """Add an option for the file for all numbers.

    :param name: its name, if none is given
    """
    return click.option(
        "--json",
        "json_path",
        type=click.Path(dir_okay=False, path_type=Path),
        show_default=f"{name} in the output directory",
        help="The file for all numbers.",
    )


def check_json(path: Path, output: Path) -> None:
    """Refuse a file in a directory that does not exist, unless that is the output directory."""
    if path.parent != output and not path.parent.is_dir():
        message = f"There is no directory {path.parent}. Create it first, or choose another file."
        raise click.BadParameter(message, param_hint="--json")


class Graph(NamedTuple):
    """A dataset, and what it is called."""

    name: str
    dataset: Dataset
    #: its class, unless it is a synthetic graph
    cls: type[Dataset] | None


def find_models(names: Sequence[str]) -> list[str]:
    """Look up the models that the user named."""
    return [lookup(model_resolver, name, "model").__name__ for name in names]


def load_graph(
    dataset: str,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    models: Sequence[str],
    dims: Sequence[int],
) -> Graph:
    """Load a dataset by its name, or make a synthetic graph, for models that can be trained without sampling.

    :param dataset: the name of the dataset
    :param entities: the number of entities of a synthetic graph, if given
    :param relations: the number of its relations, if given
    :param triples: the number of its triples, if given
    :param models: the models
    :param dims: their dimensions
    :return: the graph
    :raises ClickException: if it cannot be loaded or made, or if a model cannot be trained
    """
    sizes = {"num_entities": entities, "num_relations": relations, "num_triples": triples}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    context = click.get_current_context()
    if sizes and context.get_parameter_source("dataset") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--dataset and --entities/--relations/--triples are mutually exclusive: give one of them.")
    cls = lookup(dataset_resolver, "syntheticgraph" if sizes else dataset, "dataset")
    try:
        for model, dim in itertools.product(models, dims):
            check_model(model, dim)
        data = load(cls, **sizes)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    return Graph("a synthetic graph", data, None) if sizes else Graph(dataset, data, cls)
