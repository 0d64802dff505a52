"""How fast this version is beside another one: epochs and evaluations of both, in turns, in one run.

    python -m benchmarks versions --against other/.venv/bin/python

The other version is whatever is installed beside the given interpreter, so what it runs of this module uses public names
only. Each version has a process of its own that stays for the whole run and answers one question at a time, while the other
one waits. What is printed are medians, and their ratio: below 1, this version is faster.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import click

#: The number of epochs that one time is the median of
EPOCHS = 5


def serve() -> None:
    """Answer questions on standard input: one JSON object per line, with what to time; the answer is a number of seconds."""
    import logging

    import torch
    from pykeen.datasets import get_dataset
    from pykeen.models import model_resolver
    from pykeen.training import TrainingCallback, training_loop_resolver

    from pykeen_nonsampling import FactorizedRankBasedEvaluator, NonSamplingLoss

    class Ends(TrainingCallback):
        """Notes when epochs end."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
            self.times.append(time.perf_counter())

    logging.disable(logging.WARNING)
    kwargs_of: dict[str, dict[str, Any]] = {
        "transe": dict(scoring_fct_norm=2),
        "complex": dict(entity_initializer="xavier_normal"),
    }
    made: dict[str, Any] = {}
    for line in sys.stdin:
        question = json.loads(line)
        dataset = made.setdefault(question["dataset"], get_dataset(dataset=question["dataset"]))
        training = dataset.training
        key = json.dumps({**question, "task": None})
        if key not in made:
            model = model_resolver.make(
                question["model"],
                triples_factory=training,
                embedding_dim=question["dim"],
                random_seed=0,
                loss=NonSamplingLoss(),
                **kwargs_of.get(question["model"].lower(), {}),
            )
            loop = training_loop_resolver.lookup(question["loop"])
            made[key] = loop(model=model, triples_factory=training, optimizer="adam", optimizer_kwargs=dict(fused=True))
        loop = made[key]
        if question["task"] == "epoch":
            ends, done = Ends(), len(loop.losses_per_epochs)
            loop.train(training, num_epochs=done + 1 + EPOCHS, continue_training=done > 0, use_tqdm=False, callbacks=ends)
            seconds = statistics.median(b - a for a, b in zip(ends.times, ends.times[1:], strict=False))
        else:
            start = time.perf_counter()
            FactorizedRankBasedEvaluator().evaluate(
                loop.model, dataset.testing.mapped_triples, additional_filter_triples=training.mapped_triples, use_tqdm=False
            )
            seconds = time.perf_counter() - start
        sys.stdout.write(json.dumps({"seconds": seconds, "threads": torch.get_num_threads()}) + "\n")
        sys.stdout.flush()


def ask(process: subprocess.Popen[str], question: dict[str, Any]) -> float:
    """Put one question to one version."""
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    try:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        raise click.ClickException(f"{process.args!r} has ended; see its messages above.")
    return float(json.loads(answer)["seconds"])


@click.command(name="versions")
@click.option("--against", required=True, help="The Python interpreter of the other version.")
@click.option("--dataset", default="fb15k237", show_default=True)
@click.option("--model", "models", multiple=True, default=["DistMult", "ComplEx", "TransE", "RESCAL"], show_default=True)
@click.option("--loop", "loops", multiple=True, default=["nonsampling", "nonsamplinglcwa"], show_default=True)
@click.option("--dim", default=200, show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--evaluation/--no-evaluation", default=True, show_default=True)
def command(
    against: str,
    dataset: str,
    models: tuple[str, ...],
    loops: tuple[str, ...],
    dim: int,
    repeats: int,
    evaluation: bool,
) -> None:
    """Compare the speed of this version with that of another one."""
    this, other = (
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        # isolated, the other one does not find the package of this checkout
        for program in ([sys.executable, "-m", __name__], [against, "-I", __file__])
    )
    try:
        click.echo(f"{'':40} {'this':>9} {'other':>9} {'ratio':>6}")
        for model in models:
            tasks = [("epoch", loop) for loop in loops] + ([("evaluation", loops[0])] if evaluation else [])
            for task, loop in tasks:
                question = dict(task=task, dataset=dataset, model=model, loop=loop, dim=dim)
                samples: list[tuple[float, float]] = []
                for _ in range(1 + repeats):
                    samples.append((ask(this, question), ask(other, question)))
                # the first time, everything is new
                a, b = (statistics.median(times) for times in zip(*samples[1:], strict=True))
                ratio = statistics.median(x / y for x, y in samples[1:])
                name = f"{model}, d={dim}, {loop if task == 'epoch' else task}"
                click.echo(f"{name:40} {a:8.4f}s {b:8.4f}s {ratio:6.2f}")
    finally:
        for process in (this, other):
            process.kill()


if __name__ == "__main__":
    serve()
