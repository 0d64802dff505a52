"""The command line: ``pykeen-nonsampling …``."""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import click
from class_resolver import ClassResolver

__all__ = [
    "main",
]


@click.group()
@click.version_option(package_name="pykeen-nonsampling")
def main() -> None:
    """Train knowledge graph embedding models on every negative triple, without sampling."""


@main.command()
@click.option("--dataset", default="kinships", show_default=True, help="The name of a dataset that PyKEEN knows.")
@click.option("--training", type=click.Path(exists=True, dir_okay=False), help="TSV file of your own training triples.")
@click.option("--testing", type=click.Path(exists=True, dir_okay=False), help="TSV file of your own test triples.")
@click.option("--model", default="ComplEx", show_default=True, help="The name of a model of PyKEEN's.")
@click.option("--dim", type=click.IntRange(min=1), default=50, show_default=True, help="The embedding dimension.")
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Epochs without sampling; each is one optimizer step.",
)
@click.option(
    "--slcwa-epochs",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Epochs with sampling; each is one optimizer step a batch.",
)
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Triples a batch with sampling."
)
@click.option(
    "--num-negatives",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    help="Negative samples for each triple with sampling.",
)
@click.option(
    "--negative-weight",
    type=float,
    show_default="chosen by the graph",
    help="Weight of a negative triple without sampling.",
)
@click.option("--learning-rate", type=float, default=0.01, show_default=True, help="Adam's learning rate, for all.")
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="The number of random seeds.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("comparison"),
    show_default=True,
    help="The directory to write table and picture to.",
)
@click.pass_context
def compare(
    context: click.Context,
    dataset: str,
    training: str | None,
    testing: str | None,
    model: str,
    dim: int,
    epochs: int,
    slcwa_epochs: int,
    batch_size: int,
    num_negatives: int,
    negative_weight: float | None,
    learning_rate: float,
    seeds: int,
    output: Path,
) -> None:
    """Compare training on all negatives with training on sampled ones.

    Trains the same model by the training loops nonsampling, nonsamplinglcwa and slcwa (PyKEEN's default, with the model's
    default loss), evaluates all with PyKEEN's evaluator, prints a table, and writes it with the learning curves.
    """
    _check_matplotlib()
    if (training is None) != (testing is None):
        raise click.UsageError("--training and --testing go together: give both files, or none for --dataset.")
    if training and context.get_parameter_source("dataset") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--dataset and --training/--testing exclude each other: give one of them.")
    _silence("pykeen", "torch_max_mem", "pykeen_nonsampling")

    from pykeen.datasets import dataset_resolver, get_dataset
    from pykeen.models import model_resolver

    from .comparison import Comparison

    if training:
        data, name = get_dataset(training=training, testing=testing), Path(training).name
    else:
        data, name = get_dataset(dataset=_lookup(dataset_resolver, dataset, "dataset")), dataset
    model_cls = _lookup(model_resolver, model, "model")
    model = model_cls.__name__
    click.echo(
        f"{model} with {dim} dimensions on {name}: {data.num_entities:,} entities, {data.num_relations:,} relations, "
        f"{data.training.num_triples:,} training triples.\n"
        f"nonsampling: {epochs} epochs on all {data.num_entities**2 * data.num_relations:,} triples; nonsamplinglcwa: "
        f"{epochs} epochs on all candidates of each query; slcwa: {slcwa_epochs} epochs with {num_negatives} negatives for "
        f"each triple."
    )
    comparison = Comparison(dataset=data, model=model, dimension=dim, learning_rate=learning_rate, evaluations=10)
    settings: dict[str, dict[str, Any]] = {
        training_loop: dict(
            epochs=epochs,
            loss="nonsampling",
            loss_kwargs=dict(negative_weight=negative_weight),
        )
        for training_loop in ("nonsampling", "nonsamplinglcwa")
    }
    settings["slcwa"] = dict(
        epochs=slcwa_epochs,
        loss=model_cls.loss_default,
        negative_sampler_kwargs=dict(num_negs_per_pos=num_negatives),
        training_kwargs=dict(batch_size=batch_size),
    )
    try:
        for training_loop, kwargs in settings.items():
            # what happens only once in a process, such as lazy imports, is nobody's training time
            comparison.run(training_loop, seed=0, record=False, **{**kwargs, "epochs": 1})
        for seed, (training_loop, kwargs) in itertools.product(range(seeds), settings.items()):
            comparison.run(training_loop, seed=seed, **kwargs)
    except (NotImplementedError, ValueError) as error:
        raise click.ClickException(str(error)) from error

    output.mkdir(parents=True, exist_ok=True)
    comparison.table().to_csv(output / "comparison.csv")
    comparison.curves().to_csv(output / "curves.csv", index=False)
    comparison.plot(output / "comparison.png", title=f"{model} (d={dim}) on {name}")
    click.echo(f"\n{comparison.format_table()}\n\nMean ± standard deviation over {seeds} seeds, on the test triples.")
    click.echo(f"Table and learning curves: {output}/comparison.csv, {output}/curves.csv, {output}/comparison.png")


@main.command()
@click.option("--dataset", default="fb15k237", show_default=True, help="The name of a dataset that PyKEEN knows.")
@click.option("--entities", type=click.IntRange(min=1), help="The number of entities of a synthetic graph instead.")
@click.option("--relations", type=click.IntRange(min=1), help="The number of its relations.")
@click.option("--triples", type=click.IntRange(min=1), help="The number of its triples.")
@click.option(
    "--model",
    "models",
    multiple=True,
    default=["DistMult", "SimplE", "ComplEx", "TransE"],
    show_default=True,
    help="The name of a model of PyKEEN's. The first one is also used for the growing graphs.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    type=click.IntRange(min=1),
    default=[200],
    show_default=True,
    help="The embedding dimension.",
)
@click.option(
    "--loop",
    "loops",
    multiple=True,
    type=click.Choice(["slcwa", "lcwa"]),
    default=["slcwa", "lcwa"],
    show_default=True,
    help="PyKEEN's training loop to compare with.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How often each time is taken; medians count.",
)
@click.option(
    "--baseline-repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The same for PyKEEN's training loops and evaluation, which take far longer.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="The number of batches timed of PyKEEN's training and evaluation, then scaled to the whole.",
)
@click.option("--growth/--no-growth", default=True, show_default=True, help="Whether to time graphs of growing size, too.")
@click.option("--growth-size", type=click.FloatRange(min=0, min_open=True), default=1.0, hidden=True)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="benchmark.json in the output directory",
    help="The file to write everything to.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("benchmark"),
    show_default=True,
    help="The directory to write table and pictures to.",
)
@click.pass_context
def benchmark(
    context: click.Context,
    /,
    dataset: str,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    json_path: Path | None,
    output: Path,
    **settings: Any,
) -> None:
    """Measure how fast training and evaluation are.

    Times an epoch without sampling, beside the dense products that it cannot avoid, plain automatic differentiation of the
    same loss, and PyKEEN's own training loops; evaluation beside PyKEEN's own; the memory that an epoch takes; and how all
    that grows with the graph. Prints a table, and writes it with all numbers and pictures.
    """
    _check_matplotlib()
    sizes = {"num_entities": entities, "num_relations": relations, "num_triples": triples}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if sizes and context.get_parameter_source("dataset") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--dataset and --entities/--relations/--triples exclude each other: give one of them.")
    _silence("pykeen", "torch_max_mem", "pykeen_nonsampling")

    from pykeen.datasets import dataset_resolver, get_dataset
    from pykeen.models import model_resolver

    from .benchmark import Benchmark, Settings
    from .measurements import check_model

    settings["models"] = [_lookup(model_resolver, model, "model").__name__ for model in settings["models"]]
    dataset_cls = _lookup(dataset_resolver, "syntheticgraph" if sizes else dataset, "dataset")
    try:
        for model, dim in itertools.product(settings["models"], settings["dims"]):
            check_model(model, dim)
        data = get_dataset(dataset=dataset_cls, dataset_kwargs=sizes)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if not data.testing.num_triples:
        raise click.ClickException(f"There are no test triples to evaluate on, of {triples} in all: choose more --triples.")

    name = "a synthetic graph" if sizes else dataset
    click.echo(
        f"{', '.join(settings['models'])} on {name}: {data.num_entities:,} entities, {data.num_relations:,} relations, "
        f"{data.training.num_triples:,} training and {data.testing.num_triples:,} test triples."
    )
    result = Benchmark(name=name, dataset=data, settings=Settings(**settings))
    output.mkdir(parents=True, exist_ok=True)
    result.run()
    paths = result.write(output, json_path or output / "benchmark.json")
    click.echo(f"\n{result.format_table()}\n")
    for axis, line in result.growth.items():
        click.echo(f"Seconds an epoch grow with {axis} to the power of {line['exponent']:.2f}.")
    click.echo(f"Table, numbers and pictures: {', '.join(map(str, paths))}")


@main.command()
@click.option("--model", help="The name of a model of PyKEEN's to look at; followed by its keyword arguments.")
@click.option("--markdown", is_flag=True, help="Print the table as Markdown.")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
def models(model: str | None, markdown: bool, arguments: tuple[str, ...]) -> None:
    """Tell which models can be trained without sampling.

    Prints a table of all interactions of PyKEEN: whether their sum over all triples has an exact closed form, or under which
    condition, or why not; with the number m of features of an entity, and what the sum costs. d, e, k are the sizes in
    PyKEEN's shapes.

    With --model, makes that model with the given keyword arguments (values are JSON, or else plain text; anything left out
    has the default that it has in a pipeline), and tells whether it can be trained, and if not, what to change:

        pykeen-nonsampling models --model TransE scoring_fct_norm=1
    """
    if model is None:
        if arguments:
            raise click.UsageError(f"{' '.join(arguments)} are keyword arguments of no model: give its name by --model.")
        _print_table(markdown)
        return
    _silence("pykeen", "torch_max_mem", "pykeen_nonsampling")
    from pykeen.models import model_resolver

    from .inspection import inspect_model

    kwargs = dict(map(_parse_argument, arguments))
    try:
        click.echo(inspect_model(_lookup(model_resolver, model, "model"), kwargs))
    except (KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error.args[0])) from error


def _parse_argument(argument: str) -> tuple[str, Any]:
    """Divide NAME=VALUE."""
    name, equals, value = argument.partition("=")
    if not (name and equals):
        raise click.UsageError(f"{argument!r} is no keyword argument: write NAME=VALUE, e.g. embedding_dim=64.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _print_table(markdown: bool) -> None:
    """Print the table of all interactions."""
    from .factorizations.table import format_markdown, list_interactions

    rows = list(list_interactions())
    if markdown:
        click.echo(format_markdown(rows))
        return
    trained = [row for row in rows if row.family]
    table = [("interaction", "family", "m", "exact", "cost")]
    table += [(row.interaction, row.family, row.features, row.exact, row.cost) for row in trained]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    click.echo("\nm: the number of features of an entity; d, k: sizes in PyKEEN's shapes; m₀: the base's m.")
    click.echo("\nThese cannot be trained without sampling:\n")
    for row in rows:
        if not row.family:
            click.echo(
                click.wrap_text(f"{row.interaction}: {row.exact.removeprefix('no: ')}", width=100, subsequent_indent="    ")
            )


def _check_matplotlib() -> None:
    """Refuse to begin what could not be drawn in the end."""
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError('Drawing needs matplotlib: pip install "pykeen-nonsampling[plot]"')


def _silence(*names: str) -> None:
    """Let loggers tell only of errors during a command: all else is for developers, and would tear the progress bars."""
    for logger in map(logging.getLogger, names):
        click.get_current_context().call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.ERROR)


def _lookup(resolver: ClassResolver[Any], name: str, what: str) -> type[Any]:
    """Find a class by a name that the user gave."""
    try:
        return resolver.lookup(name)
    except KeyError as error:
        message = f"PyKEEN knows no {what} {name!r}: see pykeen ls {what}s."
        raise click.BadParameter(message, param_hint=f"--{what}") from error


if __name__ == "__main__":
    main()
