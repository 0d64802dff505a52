"""A start from the squared solution, before a loss that sees every score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pykeen.datasets import Nations
from pykeen.models import ComplEx
from pykeen.pipeline import pipeline
from torch import Tensor

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss
from pykeen_nonsampling.losses import FactorizedLoss, SoftmaxLoss
from pykeen_nonsampling.training.loop import FactorizedTrainingLoop
from pykeen_nonsampling.training.start import LEARNING_RATE

TRAINING = Nations().training

#: Three epochs with the squared loss, and four with the other
START, EPOCHS = 3, 4


class Killed(BaseException):
    """Stands for a process that ends in the middle."""


def train(
    start_epochs: int = START, loss: Any = None, start_kwargs: Any = None, **kwargs: Any
) -> tuple[list[float], dict[str, Tensor]]:
    torch.manual_seed(0)
    loss = SoftmaxLoss() if loss is None else loss
    model = make_model(loss)
    loop = NonSamplingLCWATrainingLoop(
        model=model,
        triples_factory=TRAINING,
        start_epochs=start_epochs,
        start_kwargs=start_kwargs,
        optimizer="Adam",
        optimizer_kwargs=dict(lr=0.01),
    )
    losses = loop.train(TRAINING, num_epochs=EPOCHS, batch_size=500, use_tqdm=False, **kwargs)
    assert losses is not None
    assert type(model.loss) is type(loss)
    return losses, {name: x.detach().clone() for name, x in model.state_dict().items()}


def test_a_start_helps() -> None:
    (without, *_), (after, *rest) = train(0)[0], train(50)[0]
    assert len(rest) == EPOCHS - 1
    assert after < 0.9 * without


def make_model(loss: FactorizedLoss) -> ComplEx:
    return ComplEx(triples_factory=TRAINING, embedding_dim=4, random_seed=0, loss=loss, regularizer=None)


def test_it_is_the_squared_solution() -> None:
    """What is left after no steps of the other loss."""
    model, expected = make_model(SoftmaxLoss()), make_model(NonSamplingLoss())
    loop = NonSamplingLCWATrainingLoop(
        model=model, triples_factory=TRAINING, start_epochs=20, optimizer="SGD", optimizer_kwargs=dict(lr=0.0)
    )
    torch.manual_seed(0)
    loop.train(TRAINING, num_epochs=1, use_tqdm=False)
    optimizer = torch.optim.Adam(expected.parameters(), lr=LEARNING_RATE)
    other = NonSamplingLCWATrainingLoop(
        model=expected,
        triples_factory=TRAINING,
        optimizer=optimizer,
        lr_scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20),
    )
    torch.manual_seed(0)
    # whoever starts draws vectors anew
    expected.reset_parameters_()
    other.train(TRAINING, num_epochs=20, use_tqdm=False)
    for x, y in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("killed_in", range(1, START + EPOCHS + 1))
def test_a_killed_training_goes_on_with_the_same_bits(
    killed_in: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, state = train()
    original, count = FactorizedTrainingLoop._train_epoch, 0

    def train_epoch(self: Any, **kwargs: Any) -> float:
        nonlocal count
        starting = self.start.num_epochs and not self.losses_per_epochs
        result = original(self, **kwargs)
        # an epoch that begins with a start counts when it has ended
        count += 1
        if count == killed_in and not (starting and killed_in <= START):
            raise Killed
        return result

    arguments: dict[str, Any] = dict(checkpoint_directory=tmp_path, checkpoint_name="checkpoint.pt", checkpoint_frequency=0)
    with monkeypatch.context() as patch:
        patch.setattr(FactorizedTrainingLoop, "_train_epoch", train_epoch)
        with pytest.raises(Killed):
            train(**arguments)
    # what is left is of the start until there is a checkpoint of the rest
    names = {path.name for path in tmp_path.iterdir()}
    assert ("checkpoint.pt" in names) == (killed_in > START + 1)
    again, state_again = train(**arguments)
    assert again == losses
    for name, x in state.items():
        assert torch.equal(x, state_again[name])
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint.pt"}


def test_another_start_is_another_training(tmp_path: Path) -> None:
    arguments: dict[str, Any] = dict(checkpoint_directory=tmp_path, checkpoint_name="checkpoint.pt", checkpoint_frequency=0)
    train(**arguments)
    with pytest.raises(Exception, match="start_epochs was 3, and is 5"):
        train(5, **arguments)


@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (2.5, TypeError), ("many", TypeError), (True, TypeError)])
def test_bad_numbers(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="start_epochs="):
        train(value)


def test_it_is_trained_as_configured() -> None:
    """With weights and a learning rate of its own."""
    weights = dict(negative_weight=0.3, regularization_weight=0.0)
    model, expected = make_model(SoftmaxLoss()), make_model(NonSamplingLoss(**weights))
    torch.manual_seed(0)
    loop = NonSamplingLCWATrainingLoop(
        model=model,
        triples_factory=TRAINING,
        start_epochs=1,
        start_kwargs=dict(lr=0.02, **weights),
        optimizer="SGD",
        optimizer_kwargs=dict(lr=0.0),
    )
    loop.train(TRAINING, num_epochs=1, use_tqdm=False)
    torch.manual_seed(0)
    expected.reset_parameters_()
    other = NonSamplingLCWATrainingLoop(
        model=expected, triples_factory=TRAINING, optimizer="Adam", optimizer_kwargs=dict(lr=0.02)
    )
    other.train(TRAINING, num_epochs=1, use_tqdm=False)
    for x, y in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize(
    ("start_epochs", "start_kwargs", "error", "message"),
    [
        (0, dict(lr=0.1), ValueError, "there is no start. Set start_epochs=100"),
        (3, dict(lr=0), ValueError, "lr in start_kwargs=0"),
        (3, dict(negative_weight=-1), ValueError, "negative_weight=-1"),
        (
            3,
            dict(scale=2.0, lr=0.1),
            TypeError,
            "start_kwargs has scale, which is neither lr nor a parameter of the squared",
        ),
    ],
)
def test_bad_starts(start_epochs: int, start_kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        NonSamplingLCWATrainingLoop(
            model=make_model(SoftmaxLoss()), triples_factory=TRAINING, start_epochs=start_epochs, start_kwargs=start_kwargs
        )


def test_another_configuration_is_another_training(tmp_path: Path) -> None:
    arguments: dict[str, Any] = dict(checkpoint_directory=tmp_path, checkpoint_name="checkpoint.pt", checkpoint_frequency=0)
    train(start_kwargs=dict(negative_weight=0.5), **arguments)
    with pytest.raises(Exception, match=r"start_kwargs.negative_weight was 0.5, and is 0.25"):
        train(start_kwargs=dict(negative_weight=0.25), **arguments)


def test_losses_that_need_no_start() -> None:
    with pytest.raises(ValueError, match=r"start_epochs=3 is for losses that see every score, e.g. loss='softmax'"):
        train(loss=NonSamplingLoss())


def test_front_door() -> None:
    result = pipeline(
        dataset="nations",
        model="ComplEx",
        model_kwargs=dict(embedding_dim=16),
        training_loop="nonsamplinglcwa",
        training_loop_kwargs=dict(start_epochs=50),
        loss="softmax",
        epochs=5,
        random_seed=0,
        evaluator="factorized",
        use_tqdm=False,
    )
    assert len(result.losses) == 5
    recorded = result.configuration["training_loop_kwargs"]
    assert recorded["start_epochs"] == 50
    assert recorded["start_kwargs"]["lr"] == LEARNING_RATE
    assert recorded["start_kwargs"].keys() == {"lr", *NonSamplingLoss().kwargs}
    # derived from the graph
    assert recorded["start_kwargs"]["negative_weight"] > 0
    assert recorded["start_kwargs"]["regularization_weight"] > 0
    assert result.configuration["optimizer_kwargs"]["lr"] == 0.2
