"""Training with and without negative sampling, side by side."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from pykeen.datasets import Dataset
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import model_resolver
from pykeen.pipeline import pipeline
from pykeen.training import TrainingCallback, TrainingLoop
from pykeen.triples import CoreTriplesFactory

from .defaults import MODEL_DEFAULTS

__all__ = [
    "Comparison",
    "LearningCurve",
]

#: the column of each metric, and its name in PyKEEN
METRICS: Mapping[str, str] = {
    "MRR": "both.realistic.inverse_harmonic_mean_rank",
    "Hits@1": "both.realistic.hits_at_1",
    "Hits@3": "both.realistic.hits_at_3",
    "Hits@10": "both.realistic.hits_at_10",
    "MR": "both.realistic.arithmetic_mean_rank",
}
SECONDS = "training seconds"


class LearningCurve(TrainingCallback):
    """Evaluates the model now and then during training, and takes the time without the evaluations."""

    def __init__(self, evaluation: CoreTriplesFactory, known: Sequence[CoreTriplesFactory], frequency: int):
        """Initialize the callback.

        :param evaluation: the triples to evaluate on
        :param known: more triples that are true, to leave out when ranking
        :param frequency: the number of epochs between evaluations
        """
        super().__init__()
        self.evaluation = evaluation
        self.known = known
        self.frequency = frequency
        self.evaluator = RankBasedEvaluator()
        self.points: list[dict[str, float]] = []
        self.seconds = 0.0

    # docstr-coverage: inherited
    def register_training_loop(self, training_loop: TrainingLoop) -> None:  # noqa: D102
        super().register_training_loop(training_loop)
        self._last = time.perf_counter()

    # docstr-coverage: inherited
    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:  # noqa: D102
        self.seconds += time.perf_counter() - self._last
        if epoch == 1 or epoch % self.frequency == 0:
            result = self.evaluator.evaluate(
                model=self.model,
                mapped_triples=self.evaluation.mapped_triples,
                additional_filter_triples=[factory.mapped_triples for factory in self.known],
                batch_size=256,
                use_tqdm=False,
            )
            self.points.append({"epoch": epoch, SECONDS: self.seconds, "MRR": float(result.get_metric(METRICS["MRR"]))})
        self._last = time.perf_counter()


@dataclass
class Comparison:
    """Trains one model by several training loops and seeds, and collects what comes out."""

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
        training_kwargs = dict(
            kwargs.pop("training_kwargs", {}),
            callbacks=curve,
            use_tqdm_batch=False,
            tqdm_kwargs=dict(desc=f"{self.model}, {training_loop}, seed {seed}", leave=False),
        )
        result = pipeline(
            dataset=self.dataset,
            model=self.model,
            # what this package fills in for its training loops; all get the same
            model_kwargs=dict(embedding_dim=self.dimension, **MODEL_DEFAULTS.get(model_resolver.lookup(self.model), {})),
            training_loop=training_loop,
            training_kwargs=training_kwargs,
            epochs=epochs,
            optimizer="Adam",
            optimizer_kwargs=dict(lr=self.learning_rate),
            evaluation_kwargs=dict(use_tqdm=False, batch_size=256),
            random_seed=seed,
            **kwargs,
        )
        if not record:
            return
        metrics = {column: float(result.get_metric(name)) for column, name in METRICS.items()}
        labels = {"training loop": training_loop, "seed": seed}
        self.runs.append({**labels, **metrics, SECONDS: curve.seconds})
        self.points.extend({**labels, **point} for point in curve.points)

    def table(self) -> pd.DataFrame:
        """Return mean and standard deviation over the seeds, and the seconds in relation to the slowest training loop's."""
        groups = pd.DataFrame(self.runs).drop(columns="seed").groupby("training loop", sort=False)
        means, deviations = groups.mean(), groups.std().fillna(0.0).add_suffix(" std")
        table = pd.concat([means, deviations], axis="columns")
        return table.assign(ratio=means[SECONDS].max() / means[SECONDS])

    def format_table(self) -> str:
        """Return the table for reading, as mean ± standard deviation."""
        table = self.table()
        rows = {
            name: [f"{mean:.3f} ± {std:.3f}" for mean, std in zip(table[name], table[f"{name} std"], strict=True)]
            for name in (*METRICS, SECONDS)
        }
        rows["ratio"] = [f"{ratio:.1f}×" for ratio in table["ratio"]]
        return str(pd.DataFrame(rows, index=table.index).T.to_string())

    def curves(self) -> pd.DataFrame:
        """Return the learning curves of all runs."""
        return pd.DataFrame(self.points)

    def plot(self, path: Path, title: str) -> None:
        """Draw the learning curves, one line a run, one colour a training loop.

        :param path: the file to write
        :param title: the title
        """
        # matplotlib is an extra, and the canvas is chosen without changing the user's own choice
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for colour, (training_loop, points) in zip(
            _colours(), self.curves().groupby("training loop", sort=False), strict=False
        ):
            for i, (_, run) in enumerate(points.groupby("seed")):
                label = training_loop if i == 0 else None
                axes.plot(run[SECONDS], run["MRR"], color=colour, marker="o", markersize=3, alpha=0.8, label=label)
        axes.set(
            xscale="log",
            xlabel="training time [s]",
            ylabel=f"MRR on the {'validation' if self.dataset.validation else 'test'} triples",
            ylim=(0, 1),
            title=title,
        )
        axes.grid(alpha=0.3)
        axes.legend(title="training loop")
        figure.savefig(path, dpi=150)


def _colours() -> Iterable[str]:
    return (f"C{i}" for i in range(10))
