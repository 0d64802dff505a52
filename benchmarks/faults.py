"""What survives a kill at any moment, and a changed bit at any place.

    python -m benchmarks faults kills --number 60
    python -m benchmarks faults flips --number 200

The first kills trainings at random moments, also while they write a checkpoint after every epoch, and resumes them each time
until they are done. In the end, losses and parameters must be those of a training that was never killed, bit for bit, and no
checkpoint may ever have been unreadable. The second changes single bits of a checkpoint at random places, each of which must
be noticed. Both print one line per case and a total, and exit with 1 if anything was lost.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch

from pykeen_nonsampling.checkpoints import CheckpointError, check

#: The trainings to kill: both training loops, the second with mini-batches, and a loss that sees every score
CASES = {
    "nonsampling": ("nonsampling", "nonsampling", None),
    "nonsamplinglcwa": ("nonsamplinglcwa", "nonsampling", 400),
    "softmax": ("nonsamplinglcwa", "softmax", None),
}

#: Trains with Adam and a cosine schedule, or goes on with it, and writes what it ends with
TRAIN = """
import sys
import torch
from pykeen.pipeline import pipeline

directory, training_loop, loss, batch_size, epochs = sys.argv[1:]
print("started", flush=True)
result = pipeline(
    dataset="nations",
    model="ComplEx",
    model_kwargs=dict(embedding_dim=64),
    training_loop=training_loop,
    loss=loss,
    epochs=int(epochs),
    training_kwargs=dict(
        checkpoint_name="x.pt",
        checkpoint_directory=directory,
        checkpoint_frequency=0,
        batch_size=None if batch_size == "None" else int(batch_size),
        use_tqdm=False,
    ),
    random_seed=0,
)
torch.save(dict(losses=result.losses, parameters=list(result.model.parameters())), f"{directory}/result.pt")
"""


def start(directory: Path, name: str, epochs: int) -> subprocess.Popen[str]:
    """Start or resume a training, and wait until its imports are done."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", TRAIN, str(directory), *map(str, CASES[name]), str(epochs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
    assert process.stdout is not None  # noqa: S101
    process.stdout.readline()
    return process


def train(directory: Path, name: str, epochs: int) -> float:
    """Train without being killed, and return the seconds that it takes."""
    process, begun = start(directory, name, epochs), time.perf_counter()
    if process.wait() != 0:
        raise click.ClickException(f"The training {name} failed without being killed. To see why, run it by hand.")
    return time.perf_counter() - begun


def same(a: Path, b: Path) -> bool:
    """Whether two trainings have ended with the same losses and parameters, bit for bit."""
    x, y = (torch.load(directory / "result.pt", weights_only=True) for directory in (a, b))
    parameters = zip(x["parameters"], y["parameters"], strict=True)
    return x["losses"] == y["losses"] and all(torch.equal(p, q) for p, q in parameters)


def kill(directory: Path, name: str, epochs: int, seconds: float, number: int) -> int:
    """Kill a training some times, each after a part of the time that it takes, and let it end.

    :return: how often its checkpoint could not be read afterwards
    """
    unreadable = 0
    for _ in range(number):
        process = start(directory, name, epochs)
        time.sleep(random.uniform(0, seconds))  # noqa: S311
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (directory / "x.pt").exists():
            try:
                check(directory / "x.pt")
            except CheckpointError as error:
                unreadable += 1
                click.echo(f"{name}: {error}", err=True)
                (directory / "x.pt").unlink()
    train(directory, name, epochs)
    return unreadable


@click.group(name="faults")
def command() -> None:
    """Try what survives kills and changed bits."""


@command.command()
@click.option("--number", default=60, show_default=True, help="How many kills.")
@click.option("--epochs", default=200, show_default=True)
@click.option("--case", "cases", type=click.Choice(list(CASES)), multiple=True, default=list(CASES), show_default=True)
@click.option("--seed", default=0, show_default=True)
def kills(number: int, epochs: int, cases: tuple[str, ...], seed: int) -> None:
    """Kill trainings, and resume them."""
    random.seed(seed)
    lost = 0
    with TemporaryDirectory() as name:
        root = Path(name)
        for i, case in enumerate(cases):
            share = number // len(cases) + (i < number % len(cases))
            seconds = train(root / case / "whole", case, epochs)
            unreadable = kill(root / case / "killed", case, epochs, seconds, share)
            equal = same(root / case / "whole", root / case / "killed")
            lost += unreadable + (not equal)
            click.echo(
                f"{case}: kills: {share}, unreadable checkpoints: {unreadable}, result: "
                f"{'the same, bit for bit' if equal else 'ANOTHER ONE'}"
            )
    click.echo(f"kills: {number}, losses: {lost}")
    sys.exit(lost > 0)


@command.command()
@click.option("--number", default=200, show_default=True, help="How many changed bits.")
@click.option("--seed", default=0, show_default=True)
def flips(number: int, seed: int) -> None:
    """Change single bits of a checkpoint."""
    random.seed(seed)
    noticed = 0
    with TemporaryDirectory() as name:
        path = Path(name) / "x.pt"
        train(path.parent, "nonsampling", epochs=2)
        content = path.read_bytes()
        for _ in range(number):
            changed = bytearray(content)
            changed[random.randrange(len(content))] ^= 1 << random.randrange(8)  # noqa: S311
            path.write_bytes(changed)
            try:
                check(path)
            except CheckpointError:
                noticed += 1
    click.echo(f"{noticed} of {number} changed bits are noticed, in a checkpoint of {len(content):,} bytes.")
    sys.exit(noticed < number)
