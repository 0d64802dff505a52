"""How good a model is after how many seconds of training: measured, and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pykeen.datasets import Dataset
from pykeen.evaluation import Evaluator, RankBasedEvaluator
from pykeen.models import model_resolver
from pykeen.pipeline import PipelineResult, pipeline
from pykeen.triples import CoreTriplesFactory
from typing_extensions import override

from ..defaults import model_defaults
from ..ranking.metrics import METRICS
from .console import make_figure
from .stopwatch import Stopwatch

if TYPE_CHECKING:
    import pandas as pd

#: PyKEEN's name of the mean reciprocal rank
MRR = METRICS["MRR"]
SECONDS = "training seconds"


class LearningCurve(Stopwatch):
    """Evaluates the model at intervals during training, and measures the time without the evaluations."""

    def __init__(
        self,
        evaluation: CoreTriplesFactory,
        known: Sequence[CoreTriplesFactory],
        frequency: int | None = None,
        evaluator: Evaluator | None = None,
        **kwargs: Any,
    ):
        """Initialize the callback.

        :param evaluation: the triples to evaluate on
        :param known: other true triples, to be left out of the ranking
        :param frequency: the number of epochs between evaluations. None evaluates after no epoch.
        :param evaluator: the evaluator. Defaults to PyKEEN's.
        :param kwargs: additional keyword-based parameters passed to :class:`Stopwatch`
        """
        super().__init__(**kwargs)
        self.evaluation = evaluation
        self.known = known
        self.frequency = frequency
        self.evaluator = evaluator or RankBasedEvaluator()
        self.points: list[dict[str, float]] = []

    @override
    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        super().post_epoch(epoch, epoch_loss, **kwargs)
        if self.frequency and (epoch == 1 or epoch % self.frequency == 0):
            self.evaluate(epoch=epoch)

    def evaluate(self, **labels: float) -> None:
        """Add a point to the curve.

        :param labels: what else to note at this point
        """
        result = self.evaluator.evaluate(
            model=self.model,
            mapped_triples=self.evaluation.mapped_triples,
            additional_filter_triples=[factory.mapped_triples for factory in self.known],
            batch_size=256,
            use_tqdm=False,
        )
        self.points.append({**labels, SECONDS: self.seconds, "MRR": float(result.get_metric(MRR))})
        self.resume()


def train_with_curve(
    curve: LearningCurve,
    dataset: Dataset,
    model: str,
    dim: int,
    model_kwargs: Mapping[str, Any] | None = None,
    training_kwargs: Mapping[str, Any] | None = None,
    optimizer: str = "Adam",
    **kwargs: Any,
) -> PipelineResult:
    """Train a model through PyKEEN's pipeline, and draw its learning curve.

    :param curve: the learning curve
    :param dataset: the dataset
    :param model: the name of the model
    :param dim: its dimension
    :param model_kwargs: its other keyword arguments. Those that are missing are this package's defaults, also for PyKEEN's
        training loops.
    :param training_kwargs: keyword arguments of the training loop's ``train``
    :param optimizer: the name of the optimizer
    :param kwargs: additional keyword-based parameters passed to :func:`pykeen.pipeline.pipeline`
    :return: the result
    """
    return pipeline(
        dataset=dataset,
        model=model,
        model_kwargs={"embedding_dim": dim, **model_defaults(model_resolver.lookup(model)), **(model_kwargs or {})},
        training_kwargs={**(training_kwargs or {}), "callbacks": curve, "use_tqdm_batch": False},
        optimizer=optimizer,
        **kwargs,
    )


def plot_curves(
    path: Path,
    title: str,
    lines: Mapping[str, Sequence[pd.DataFrame]],
    triples: str,
    highest: float,
    levels: Mapping[str, float] | None = None,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
    size: tuple[float, float] = (7, 5),
    legend: Mapping[str, Any] | None = None,
) -> None:
    """Draw the MRR over the training time, one line per run, one style per label.

    :param path: the file to write
    :param title: the title
    :param lines: the runs of each label
    :param triples: the triples that were evaluated on
    :param highest: the upper end of the axis
    :param levels: values to mark with a line, by label
    :param styles: how to draw the lines of each label. Defaults to one color of matplotlib's for each.
    :param size: width and height, in inches
    :param legend: what else to tell matplotlib of the legend, which is below
    """
    figure = make_figure(*size)
    axes = figure.add_subplot()
    for number, (label, runs) in enumerate(lines.items()):
        for i, run in enumerate(runs):
            style = {"color": f"C{number}", "marker": "o", **(styles or {}).get(label, {})}
            axes.plot(run[SECONDS], run["MRR"], markersize=3, alpha=0.8, label=label if i == 0 else None, **style)
    for label, level in (levels or {}).items():
        axes.axhline(level, color="gray", linewidth=0.8, linestyle=":")
        axes.text(
            0.005,
            level,
            label,
            transform=axes.get_yaxis_transform(),
            fontsize="x-small",
            color="gray",
            va="center",
            bbox=dict(facecolor="white", edgecolor="none", pad=0.5),
        )
    axes.set(
        xscale="log",
        xlabel="training time [s]",
        ylabel=f"MRR on the {triples} triples",
        ylim=(0, highest),
        title=title,
    )
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    # lines may be anywhere on the axes
    figure.legend(**{"title": "training loop", "loc": "outside lower center", "ncols": 2, **(legend or {})})
    figure.savefig(path, dpi=150)
