"""A search for the best model of a graph, within a number of minutes."""

from __future__ import annotations

import importlib.util
import inspect
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import optuna
import pandas as pd
from pykeen.datasets import dataset_resolver
from pykeen.models import model_resolver
from pykeen.triples import TriplesFactory
from tqdm.auto import tqdm

from ..tuning import LAST, REPORTED, Graph, Space, Tuner
from .console import POSITIVE, check_evaluation, check_literals, lookup, make_figure, silence
from .files import TRIPLES, check_free, check_triples, check_writable

#: The shares of training, validation and test triples, if there is only one file
SHARES = 0.8, 0.1, 0.1
SPLITS = "training", "validation", "testing"

#: What is written at the end of a search, or during it, and the settings of the search that all of it belongs to
RESULTS = "best.json", "model", "trials.csv", "search.png"
OWNER = "settings.json"


@click.command(name="tune")
@click.option("--dataset", help="The name of a PyKEEN dataset.")
@click.option("--training", type=TRIPLES, help="TSV file of your own training triples, or of all your triples.")
@click.option("--validation", type=TRIPLES, help="TSV file of your own validation triples.")
@click.option("--testing", type=TRIPLES, help="TSV file of your own test triples.")
@click.option("--minutes", type=POSITIVE, default=30.0, show_default=True, help="The time to search for.")
@click.option(
    "--model",
    "models",
    multiple=True,
    default=["ComplEx", "DistMult", "RotatE"],
    show_default=True,
    help="The name of a PyKEEN model; may be given several times.",
)
@click.option("--dim", type=click.IntRange(min=1), default=200, show_default=True, help="The largest embedding dimension.")
@click.option("--epochs", type=click.IntRange(min=1), default=100, show_default=True, help="The largest number of epochs.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("tuning"),
    show_default=True,
    help="The directory for the results.",
)
@click.option(
    "--storage",
    show_default="SQLite, in the output directory",
    help="The address of Optuna's storage. A search that it already has goes on.",
)
@click.option("--trials", type=click.IntRange(min=1), help="The largest number of trials to run, if the time allows.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The random seed.")
@click.option("--force", is_flag=True, help="Overwrite results of another search.")
def command(
    dataset: str | None,
    training: Path | None,
    validation: Path | None,
    testing: Path | None,
    minutes: float,
    models: tuple[str, ...],
    dim: int,
    epochs: int,
    output: Path,
    storage: str | None,
    trials: int | None,
    seed: int,
    force: bool,
) -> None:
    """Find the best model for a graph, within some minutes.

    Searches models, losses, their weights and what they start from, inverse triples, dimensions and learning rates by the
    MRR on the validation triples. Test triples are used once, in the end, for the best model. Ctrl-C ends the search early;
    the same command continues it.
    """
    if (dataset is None) == (training is None):
        raise click.UsageError("Which graph? Give either --dataset NAME or --training FILE.")
    if (validation is None) != (testing is None) or (dataset and validation):
        raise click.UsageError(
            "--validation and --testing go together, and with --training: give all three files, or one to be split."
        )
    for model in models:
        if "embedding_dim" not in inspect.signature(lookup(model_resolver, model, "model")).parameters:
            message = f"{model} has no embedding_dim to search. Use a model that has, e.g. ComplEx."
            raise click.BadParameter(message, param_hint="--model")
    silence()
    if dataset is not None:
        lookup(dataset_resolver, dataset, "dataset")
    for path, split in zip((training, validation, testing), SPLITS, strict=True):
        if path is not None:
            check_triples(path, f"--{split}")
    check_writable(output, "--output")
    output.mkdir(parents=True, exist_ok=True)
    graph = _find_graph(dataset, training, validation, testing, output, seed)
    for model in models:
        check_literals(model_resolver.lookup(model), graph.datasets[False], graph.name)
    try:
        space = Space(graph, models, dim, epochs, seed)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    storage = storage or f"sqlite:///{(output / 'trials.db').resolve()}"
    tuner = _open(space, output, storage)
    _own(tuner, output, storage, force)
    _introduce(tuner, minutes)
    stopped = _search(tuner, 60 * minutes, trials)
    _conclude(tuner, output, stopped)


def _find_graph(
    dataset: str | None, training: Path | None, validation: Path | None, testing: Path | None, output: Path, seed: int
) -> Graph:
    """Find the dataset, or the files, and load them once, so that nothing can be wrong with them later."""
    if dataset is not None:
        graph = Graph(dataset, dict(dataset=dataset))
    else:
        assert training is not None  # noqa: S101
        paths: Mapping[str, Path]
        if validation is None or testing is None:
            paths = _split(training, output / "triples", seed)
        else:
            paths = dict(zip(SPLITS, (training, validation, testing), strict=True))
        graph = Graph(training.stem, {name: str(path.resolve()) for name, path in paths.items()})
    try:
        loaded = graph.datasets[False]
        missing = [x for x in SPLITS if getattr(loaded, x) is None or not getattr(loaded, x).num_triples]
    except Exception as error:
        raise click.UsageError(f"{graph.name} cannot be loaded: {error!r}. Check its name, or its files.") from error
    check_evaluation(loaded, graph.name, None if dataset is None else dataset_resolver.lookup(dataset))
    if missing:
        raise click.UsageError(
            f"{graph.name} has no {' and no '.join(missing)} triples, without which no model can be chosen or tested. Use "
            f"another dataset, or files of your own with --training, --validation and --testing."
        )
    return graph


def _split(path: Path, directory: Path, seed: int) -> dict[str, Path]:
    """Split a file of triples, and write the parts, so that a configuration can refer to them."""
    factory = TriplesFactory.from_path(path)
    try:
        parts = factory.split(list(SHARES), random_state=seed)
    except ValueError:
        # too few for all entities and relations to occur in them: more of the triples are for training
        parts = factory.split(list(SHARES), random_state=seed, method="cleanup")
    if not all(part.num_triples for part in parts):
        raise click.BadParameter(
            f"{path} cannot be split into training, validation and test triples: to have all of its entities and relations "
            f"among the training triples, these have to be almost all of its {factory.num_triples:,}. Give a larger file, "
            f"or three files, with --validation and --testing.",
            param_hint="--training",
        )
    paths = {name: directory / f"{name}.tsv" for name in SPLITS}
    texts = ["".join("\t".join(triple) + "\n" for triple in part.triples) for part in parts]
    new = {target: text for target, text in zip(paths.values(), texts, strict=True) if _read(target) != text}
    other = [str(target) for target in new if target.exists()]
    if other:
        raise click.UsageError(
            f"{directory} has other triples than those of {path} with seed {seed}, in {', '.join(other)}. Searches so far "
            f"may have been trained on them. Use another --output."
        )
    directory.mkdir(exist_ok=True)
    for target, text in new.items():
        target.write_text(text, encoding="utf-8", newline="\n")
    sizes = ", ".join(f"{part.num_triples:,} for {name}" for name, part in zip(SPLITS, parts, strict=True))
    click.echo(f"{path.name} has been split into {directory}/: {sizes}, with seed {seed}.")
    return paths


def _read(path: Path) -> str | None:
    """Read a file, if it exists."""
    return path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else None


def _own(tuner: Tuner, output: Path, storage: str, force: bool) -> None:
    """Let the results in a directory belong to this search, and refuse to overwrite those of another one."""
    owner = output / OWNER
    settings = json.dumps(tuner.space.settings, indent=2, ensure_ascii=False) + "\n"
    if _read(owner) == settings:
        return
    results = [output / name for name in (*RESULTS, OWNER)]
    try:
        check_free(results, force, source=", and not from this search")
    except click.UsageError:
        if not tuner.started:
            # nothing is left of a search that was not begun
            optuna.delete_study(study_name=tuner.study.study_name, storage=storage)
        raise
    for path in results:
        # or the model of the other search could be taken for one of this
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    owner.write_text(settings, encoding="utf-8", newline="\n")


def _open(space: Space, output: Path, storage: str) -> Tuner:
    """Open the storage."""
    try:
        return Tuner(space, output, storage)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except Exception as error:
        message = f"{storage} cannot be opened: {error!r}. Use an address such as sqlite:///trials.db."
        raise click.BadParameter(message, param_hint="--storage") from error


def _introduce(tuner: Tuner, minutes: float) -> None:
    """Say what is searched."""
    space = tuner.space
    data, dim = space.graph.datasets[False], space.settings["dim"]
    click.echo(
        f"{space.graph.name}: {data.num_entities:,} entities, {data.num_relations:,} relations, "
        f"{data.training.num_triples:,} training triples.\n"
        f"Searching {', '.join(space.classes)} for {minutes:g} minutes, with up to {dim} dimensions and {space.epochs} "
        f"epochs."
    )
    for model, limit in space.dimensions.items():
        if limit < dim:
            click.echo(f"{model} has at most {limit} dimensions: more would need too much memory, or time.")
    if tuner.started:
        click.echo(f"Going on after {tuner.started} trials, {len(tuner.finished)} of them finished.")


def _search(tuner: Tuner, seconds: float, trials: int | None) -> str | None:
    """Search, with a progress bar over the time."""
    with tqdm(total=seconds / 60, bar_format="{percentage:3.0f}%|{bar}| {n:.1f}/{total:.1f} min{postfix}") as bar:
        last = -1.0

        def report(passed: float) -> None:
            nonlocal last
            if last >= 0 and passed - last < 0.5:
                return
            last = passed
            best = tuner.best
            bar.n = min(passed, seconds) / 60
            found = "" if best is None else f", best {best.params['model']} with MRR {best.value:.3f}"
            bar.set_postfix_str(f"{len(tuner.finished)} trials{found}")

        return tuner.run(seconds, trials, report)


def _conclude(tuner: Tuner, output: Path, stopped: str | None) -> None:
    """Write all results, test the best model, and say what was found."""
    table = tuner.table()
    table.to_csv(output / "trials.csv", index=False)
    best, default = tuner.best, tuner.best_default
    if stopped:
        click.echo(f"The search ended early: {stopped}.")
    if best is None:
        last = f" The last one: {table['reason'].iloc[-1]}." if "reason" in table else ""
        raise click.ClickException(
            f"No trial has finished.{last} Run the same command again, with more --minutes, or start over with fewer "
            f"--epochs, a smaller --dim, and another --output."
        )
    test = tuner.test()
    experiment = tuner.experiment(best, test=test, default=None if default is None else default.user_attrs["metrics"])
    (output / "best.json").write_text(json.dumps(experiment, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    rows = {f"{best.params['model']}, best found: validation": best.user_attrs["metrics"]}
    rows[f"{best.params['model']}, best found: test"] = test
    if default is not None:
        scale = "" if default.user_attrs["rung"] == LAST else ", on a small scale"
        rows[f"{default.params['model']}, defaults{scale}: validation"] = default.user_attrs["metrics"]
    click.echo(f"\n{pd.DataFrame(rows, index=list(REPORTED)).T.to_string(float_format=lambda x: f'{x:.3f}')}\n")
    click.echo(
        "Filtered ranks. Those of test triples leave out validation triples, too, so they are higher on dense graphs.\n"
    )
    click.echo(f"{_describe(experiment['pipeline'])}, from trial {best.number} of {len(table)}.")
    click.echo(f"{_describe_seeds(experiment['metadata'])}\n")
    lines = [
        ("best.json", f"its configuration: pykeen experiments run {output}/best.json --keep-seed"),
        ("model/", "the trained model, as PyKEEN saves it"),
        ("trials.csv", "all trials"),
    ]
    if importlib.util.find_spec("matplotlib") is not None:
        plot(table, output / "search.png", title=f"Search on {tuner.space.graph.name}")
        lines.append(("search.png", "the search over time"))
    for name, meaning in lines:
        click.echo(f"{output / name}{'/' if name.endswith('/') else ''}: {meaning}")
    if importlib.util.find_spec("matplotlib") is None:
        click.echo('For a picture of the search: pip install "pykeen-nonsampling[plot]"')
    click.echo("To search for longer, run the same command again.")


def _describe(configuration: Mapping[str, Any]) -> str:
    """Say in words what was found."""
    constants = ("positive_weight", "regularization_power", "anchor")
    weights = {
        name: value
        for name, value in configuration["loss_kwargs"].items()
        if isinstance(value, float) and name not in constants
    }
    inverse = "with" if configuration["dataset_kwargs"]["create_inverse_triples"] else "without"
    return (
        f"The best is {configuration['model']} with {configuration['model_kwargs']['embedding_dim']} dimensions, "
        f"{configuration['training_kwargs']['num_epochs']} epochs, lr={configuration['optimizer_kwargs']['lr']:.2g}, "
        f"{inverse} inverse triples, loss {configuration['loss']!r} with "
        + ", ".join(f"{name}={value:.2g}" for name, value in weights.items())
    )


def _describe_seeds(metadata: Mapping[str, Any]) -> str:
    """Say how far the best result depends on the seed, if that is known."""
    results = " and ".join(f"{value:.3f} with seed {seed}" for seed, value in metadata["validation_seeds"].items())
    if metadata["repeated"]:
        return f"Its MRR on validation triples is {results}, {metadata['validation_mean']:.3f} on average."
    return (
        f"Its MRR on validation triples is {results}. It was not repeated with another seed, which may be worse: the search "
        f"ended before there was time for that."
    )


def plot(table: pd.DataFrame, path: Path, title: str) -> None:
    """Draw the MRR of each trial when it was finished, one color per model, and the best so far.

    :param table: the trials
    :param path: the file to write
    :param title: the title
    """
    figure = make_figure(width=7, height=4.5)
    axes = figure.add_subplot()
    done = table.dropna(subset=["MRR"]).sort_values("finished")
    done = done.assign(minutes=done["finished"] / 60)
    for i, (model, trials) in enumerate(done.groupby("model")):
        for rung, some in trials.groupby("rung"):
            label = model if rung == trials["rung"].max() else None
            size = 10 * (1 + rung) ** 1.5
            axes.scatter(some["minutes"], some["MRR"], s=size, color=f"C{i}", alpha=0.7, linewidths=0, label=label)
    axes.step(done["minutes"], done["MRR"].cummax(), where="post", color="black", linewidth=1, label="best so far")
    axes.set(xlabel="time [min]", ylabel="MRR on the validation triples", xlim=(0, None), ylim=(0, 1), title=title)
    axes.text(0.01, 0.01, "Small marks: few epochs and dimensions", transform=axes.transAxes, fontsize="small", alpha=0.7)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
