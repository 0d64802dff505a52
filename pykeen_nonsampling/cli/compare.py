"""Training with and without negative sampling, side by side."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pandas as pd
from pykeen.datasets import Dataset, dataset_resolver, get_dataset
from pykeen.models import model_resolver
from pykeen.training import NonFiniteLossError

from ..ranking.metrics import METRICS, get_metrics
from .console import POSITIVE, check_evaluation, check_literals, check_matplotlib, load, lookup, silence
from .curves import SECONDS, LearningCurve, plot_curves, train_with_curve
from .files import TRIPLES, check_free, check_triples, check_writable, force_option

FILES = "comparison.csv", "curves.csv", "comparison.png"


@dataclass
class Comparison:
    """Trains one model with several training loops and seeds, and collects the results."""

    dataset: Dataset
    model: str
    dimension: int
    learning_rate: float
    evaluations: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    points: list[dict[str, Any]] = field(default_factory=list)

    def run(self, training_loop: str, epochs: int, seed: int, record: bool = True, **kwargs: Any) -> None:
        """Train and evaluate once, through PyKEEN's pipeline.

        :param training_loop: the training loop
        :param epochs: the number of epochs
        :param seed: the random seed
        :param record: whether to keep the result
        :param kwargs: additional keyword-based parameters passed to :func:`pykeen.pipeline.pipeline`
        """
        curve = LearningCurve(
            evaluation=self.dataset.validation or self.dataset.testing,
            known=[self.dataset.training, self.dataset.testing],
            frequency=max(1, epochs // self.evaluations),
        )
        tqdm_kwargs = dict(desc=f"{self.model}, {training_loop}, seed {seed}", leave=False)
        result = train_with_curve(
            curve,
            self.dataset,
            self.model,
            self.dimension,
            training_kwargs=dict(kwargs.pop("training_kwargs", {}), tqdm_kwargs=tqdm_kwargs),
            training_loop=training_loop,
            epochs=epochs,
            optimizer_kwargs=dict(lr=self.learning_rate),
            evaluation_kwargs=dict(use_tqdm=False, batch_size=256),
            random_seed=seed,
            **kwargs,
        )
        if not record:
            return
        metrics = get_metrics(result)
        labels = {"training loop": training_loop, "seed": seed}
        self.runs.append({**labels, **metrics, SECONDS: curve.seconds})
        self.points.extend({**labels, **point} for point in curve.points)

    def table(self) -> pd.DataFrame:
        """Return mean and standard deviation over the seeds, and the speed-up over the slowest training loop.

        With a single seed, there is no deviation.
        """
        groups = pd.DataFrame(self.runs).drop(columns="seed").groupby("training loop", sort=False)
        means, deviations = groups.mean(), groups.std().add_suffix(" std")
        table = pd.concat([means, deviations], axis="columns")
        return table.assign(ratio=means[SECONDS].max() / means[SECONDS])

    def format_table(self) -> str:
        """Return the table as readable text, as mean ± standard deviation."""
        table = self.table()
        rows = {
            name: [
                f"{mean:.3f}" if math.isnan(std) else f"{mean:.3f} ± {std:.3f}"
                for mean, std in zip(table[name], table[f"{name} std"], strict=True)
            ]
            for name in (*METRICS, SECONDS)
        }
        rows["ratio"] = [f"{ratio:.1f}×" for ratio in table["ratio"]]
        return str(pd.DataFrame(rows, index=table.index).T.to_string())

    def curves(self) -> pd.DataFrame:
        """Return the learning curves of all runs."""
        return pd.DataFrame(self.points)

    def plot(self, path: Path, title: str) -> None:
        """Draw the learning curves, one line per run, one color per training loop.

        :param path: the file to write
        :param title: the title
        """
        lines = {
            str(training_loop): [run for _, run in points.groupby("seed")]
            for training_loop, points in self.curves().groupby("training loop", sort=False)
        }
        plot_curves(path, title, lines, "validation" if self.dataset.validation else "test", highest=1.0)


@click.command(name="compare")
@click.option("--dataset", default="kinships", show_default=True, help="The name of a PyKEEN dataset.")
@click.option("--training", type=TRIPLES, help="TSV file of your own training triples.")
@click.option("--testing", type=TRIPLES, help="TSV file of your own test triples.")
@click.option("--model", default="ComplEx", show_default=True, help="The name of a PyKEEN model.")
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
    help="Epochs with sampling; each is one optimizer step per batch.",
)
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Triples per batch with sampling."
)
@click.option(
    "--num-negatives",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    help="Negative samples per triple with sampling.",
)
@click.option(
    "--negative-weight",
    type=float,
    show_default="derived from graph and model",
    help="Weight of a negative triple without sampling.",
)
@click.option("--learning-rate", type=POSITIVE, default=0.01, show_default=True, help="Adam's learning rate, for all loops.")
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="The number of random seeds.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("comparison"),
    show_default=True,
    help="The directory for table and plot.",
)
@force_option
@click.pass_context
def command(
    context: click.Context,
    dataset: str,
    training: Path | None,
    testing: Path | None,
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
    force: bool,
) -> None:
    """Compare training on all negatives with training on sampled ones.

    Trains the same model with the training loops nonsampling, nonsamplinglcwa and slcwa (PyKEEN's default, with the model's
    default loss), evaluates all with PyKEEN's evaluator, prints a table, and writes it along with the learning curves.
    """
    check_matplotlib()
    if (training is None) != (testing is None):
        raise click.UsageError("--training and --testing go together: give both files, or neither.")
    if training and context.get_parameter_source("dataset") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--dataset and --training/--testing are mutually exclusive: give one of them.")
    paths = [output / name for name in FILES]
    check_free(paths, force)
    silence()
    model_cls = lookup(model_resolver, model, "model")
    model = model_cls.__name__
    if training and testing:
        check_triples(training, "--training")
        check_triples(testing, "--testing")
        data, name, dataset_cls = get_dataset(training=training, testing=testing), training.name, None
    else:
        dataset_cls = lookup(dataset_resolver, dataset, "dataset")
        data, name = load(dataset_cls), dataset
    check_literals(model_cls, data, name)
    check_evaluation(data, name, dataset_cls)
    check_writable(output, "--output")
    click.echo(
        f"{model} with {dim} dimensions on {name}: {data.num_entities:,} entities, {data.num_relations:,} relations, "
        f"{data.training.num_triples:,} training triples.\n"
        f"nonsampling: {epochs} epochs on all {data.num_entities**2 * data.num_relations:,} triples; nonsamplinglcwa: "
        f"{epochs} epochs on all candidates of each query; slcwa: {slcwa_epochs} epochs with {num_negatives} negatives per "
        f"triple."
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
            # what happens only once per process, such as lazy imports, must not count as training time
            comparison.run(training_loop, seed=0, record=False, **{**kwargs, "epochs": 1})
        for seed, (training_loop, kwargs) in itertools.product(range(seeds), settings.items()):
            comparison.run(training_loop, seed=seed, **kwargs)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except RuntimeError as error:
        # steps that are too large end in numbers that are not finite, on which the one or the other part of PyTorch fails
        if learning_rate <= 1 and not isinstance(error, NonFiniteLossError):
            raise
        message = f"Steps of {learning_rate:g} are too large for {training_loop} ({error}): use less, e.g. 0.01."
        raise click.BadParameter(message, param_hint="--learning-rate") from error

    output.mkdir(parents=True, exist_ok=True)
    table, curves, plot = paths
    comparison.table().to_csv(table)
    comparison.curves().to_csv(curves, index=False)
    comparison.plot(plot, title=f"{model} (d={dim}) on {name}")
    spread = f"Mean ± standard deviation over {seeds} seeds" if seeds > 1 else "One seed"
    click.echo(f"\n{comparison.format_table()}\n\n{spread}, on the {data.testing.num_triples:,} test triples.")
    click.echo(f"Table and learning curves: {', '.join(map(str, paths))}")
