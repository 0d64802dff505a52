"""A checkpoint is complete or not there, and belongs to one training."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from commands import run_python
from pykeen.datasets import Nations
from pykeen.models import ComplEx, DistMult
from pykeen.pipeline import pipeline
from pykeen.training.training_loop import CheckpointMismatchError
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import RelationLossWeighter
from torch.optim import Adam
from worlds import World

from pykeen_nonsampling import NonSamplingLoss
from pykeen_nonsampling.checkpoints import CheckpointError, check, replacing

NATIONS = Nations().training


def twice(counts: torch.Tensor) -> torch.Tensor:
    return 2 + counts


def other(counts: torch.Tensor) -> torch.Tensor:
    return 1 + counts**2


other.__qualname__ = twice.__qualname__


def run(directory: Path, epochs: int = 4, **kwargs: Any) -> Any:
    """Train with checkpoints, as a user would."""
    training_kwargs = dict(
        checkpoint_name="x.pt",
        checkpoint_directory=directory,
        checkpoint_frequency=0,
        use_tqdm=False,
        **kwargs.pop("training_kwargs", {}),
    )
    settings: dict[str, Any] = dict(
        dataset="nations",
        model="DistMult",
        model_kwargs=dict(embedding_dim=4),
        training_loop="nonsamplinglcwa",
        random_seed=0,
        evaluation_kwargs=dict(use_tqdm=False),
    )
    return pipeline(**{**settings, **kwargs}, epochs=epochs, training_kwargs=training_kwargs)


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "x.pt"
        self.write(path, torch.arange(1000.0))
        return path

    @staticmethod
    def write(path: Path, value: Any) -> None:
        with replacing(path) as part:
            torch.save(dict(value=value), part)

    def test_pytorch_can_read_it(self, path: Path) -> None:
        check(path)
        for mmap in (False, True):
            assert torch.load(path, mmap=mmap, weights_only=True)["value"].sum() == 499_500

    def test_every_changed_bit_is_noticed(self, path: Path) -> None:
        content = path.read_bytes()
        for position in (*range(0, len(content), 97), *range(len(content) - 100, len(content))):
            changed = bytearray(content)
            changed[position] ^= 1 << position % 8
            path.write_bytes(changed)
            with pytest.raises(CheckpointError, match=r"x\.pt does not (match its|end with a) digest.*remove it to train"):
                check(path)

    @pytest.mark.parametrize("size", [0, 1, 70, 71, 500, -1])
    def test_cut_off(self, path: Path, size: int) -> None:
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(CheckpointError, match=r"does not (match its|end with a) digest"):
            check(path)

    def test_failure_keeps_the_old_one_and_leaves_nothing(self, path: Path) -> None:
        content = path.read_bytes()
        message = r"cannot be written, with [\d,]+ bytes free: disk.*The last one is unchanged.*checkpoint_directory"
        with pytest.raises(CheckpointError, match=message), replacing(path):
            raise OSError("disk")
        with pytest.raises(KeyboardInterrupt), replacing(path):
            raise KeyboardInterrupt
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]

    @pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
    def test_limited_file_size(self, path: Path, tmp_path: Path) -> None:
        """As on a full disk: PyTorch fails in the middle of the file."""
        content = path.read_bytes()
        code = f"""
            import pathlib, resource, torch
            from pykeen_nonsampling.checkpoints import CheckpointError, replacing
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
            try:
                with replacing(pathlib.Path({str(path)!r})) as part:
                    torch.save(torch.arange(1000.0), part)
            except CheckpointError as error:
                print(error)
        """
        assert "The last one is unchanged" in run_python("-c", dedent(code), cwd=tmp_path)
        assert path.read_bytes() == content
        assert not list(tmp_path.glob("*.part"))


#: What the pipeline fills in
ADAGRAD: dict[str, Any] = dict(optimizer="Adagrad", optimizer_kwargs=dict(lr=0.2), lr_scheduler="CosineAnnealingLR")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """Train, and return the checkpoint and the losses until then."""
    directory = tmp_path_factory.mktemp("trained")
    losses = run(directory).losses
    return directory / "x.pt", losses


class TestPipeline:
    @pytest.fixture(autouse=True)
    def _copied(self, trained: tuple[Path, list[float]], tmp_path: Path) -> None:
        shutil.copy(trained[0], tmp_path)

    @pytest.mark.parametrize("damage", [lambda x: x[:-1], lambda x: b"", lambda x: x[:5000] + b"\0" + x[5001:]])
    def test_damaged(self, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
        path = tmp_path / "x.pt"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(CheckpointError, match=r"x\.pt.*digest.*Restore a copy of it, or remove it"):
            run(tmp_path, epochs=8)

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (dict(model="ComplEx"), r"model\.class was 'DistMult', and is 'ComplEx'"),
            (dict(model_kwargs=dict(embedding_dim=4, entity_constrainer="normalize")), r"constrainer was None"),
            (dict(training_loop="nonsampling"), r"training_loop was"),
            (dict(dataset_kwargs=dict(create_inverse_triples=True)), r"\d+ more"),
            (dict(optimizer="SGD"), r"optimizer\.class was 'Adagrad', and is 'SGD'"),
            # which leaves out the schedule
            (
                dict(optimizer="Adagrad", optimizer_kwargs=dict(lr=0.2)),
                r"lr_scheduler was .*CosineAnnealingLR.*, and is None",
            ),
            (
                dict(**ADAGRAD, loss_kwargs=dict(negative_weight=0.5)),
                r"loss\.class was 'SoftmaxLoss', and is 'NonSamplingLoss'",
            ),
            (dict(loss_kwargs=dict(regularization_weight=0.5)), r"loss\.regularization_weight was .*, and is 0\.5"),
            (dict(**ADAGRAD, training_loop_kwargs=dict(start_epochs=50)), r"start_epochs was 100, and is 50"),
            (dict(training_loop_kwargs=dict(target="tail")), r"target was \['tail', 'head'\], and is \['tail'\]"),
            (dict(training_loop_kwargs=dict(loss_weighter=RelationLossWeighter(torch.arange(55.0)))), r"weights was"),
            (dict(training_kwargs=dict(batch_size=128)), r"batch_size was 1592, and is 128"),
            (
                dict(training_kwargs=dict(gradient_clipping_max_norm=1.0)),
                r"gradient_clipping_max_norm was None, and is 1\.0",
            ),
            (dict(**ADAGRAD, training_kwargs=dict(label_smoothing=0.1)), r"label_smoothing was None, and is 0\.1"),
        ],
    )
    def test_another_training(self, tmp_path: Path, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(CheckpointMismatchError, match=rf"x\.pt is from another training: .*{message}.*checkpoint_name"):
            run(tmp_path, epochs=4, **changed)

    def test_more_epochs_than_the_schedule_was_made_for(
        self, trained: tuple[Path, list[float]], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The learning rate is that of the longer schedule from there on."""
        with caplog.at_level(logging.WARNING, "pykeen_nonsampling"):
            result = run(tmp_path, epochs=8)
        assert "a cosine schedule for 4 epochs" in caplog.text
        assert "for 8 epochs, and starts again at 0.1" in caplog.text
        losses = trained[1]
        assert result.losses[:4] == losses
        assert len(result.losses) == 8
        # it has gone on to learn
        assert result.losses[-1] < losses[-1]

    def test_no_directory_for_it(self, tmp_path: Path) -> None:
        """Found before any training, whoever runs it."""
        (tmp_path / "file").touch()
        with pytest.raises(
            CheckpointError, match=r"No checkpoint can be written to checkpoint_directory='.*file/x'.*another"
        ):
            run(tmp_path / "file" / "x")

    def test_rests_of_killed_processes_are_removed(self, tmp_path: Path) -> None:
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            pass
        dead, alive = (tmp_path / f"x.pt.{number}.abc.part" for number in (process.pid, os.getpid()))
        dead.touch()
        alive.touch()
        run(tmp_path)
        assert not dead.exists()
        assert alive.exists()


class TestLoop:
    """Without a pipeline."""

    def train(self, world: World, directory: Path, loss: Any = None, factory: CoreTriplesFactory = NATIONS) -> Any:
        model = DistMult(triples_factory=factory, embedding_dim=4, random_seed=0, loss=loss or NonSamplingLoss())
        loop = world.loop(model=model, triples_factory=factory, optimizer=Adam)
        return loop.train(factory, num_epochs=2, checkpoint_name="x.pt", checkpoint_directory=directory, use_tqdm=False)

    def test_another_graph(self, world: World, tmp_path: Path) -> None:
        self.train(world, tmp_path)
        fewer = NATIONS.clone_and_exchange_triples(NATIONS.mapped_triples[::2])
        with pytest.raises(CheckpointMismatchError, match=r"graph\.triples was 1592, and is 796"):
            self.train(world, tmp_path, factory=fewer)
        triples = NATIONS.mapped_triples.clone()
        triples[0, 2] = (triples[0, 2] + 1) % NATIONS.num_entities
        with pytest.raises(CheckpointMismatchError, match=r"graph\.(digest|triples) was"):
            self.train(world, tmp_path, factory=NATIONS.clone_and_exchange_triples(triples))

    def test_another_function_of_the_same_name(self, world: World, tmp_path: Path) -> None:
        self.train(world, tmp_path, NonSamplingLoss(tail_weight=twice))
        self.train(world, tmp_path, NonSamplingLoss(tail_weight=twice))
        with pytest.raises(CheckpointMismatchError, match=r"another training: weights was"):
            self.train(world, tmp_path, NonSamplingLoss(tail_weight=other))

    def test_a_scheduler_where_there_was_none(self, world: World, tmp_path: Path) -> None:
        self.train(world, tmp_path)
        model = DistMult(triples_factory=NATIONS, embedding_dim=4, random_seed=0, loss=NonSamplingLoss())
        loop = world.loop(
            model=model,
            triples_factory=NATIONS,
            optimizer=Adam,
            lr_scheduler="CosineAnnealingLR",
            lr_scheduler_kwargs=dict(T_max=2),
        )
        with pytest.raises(CheckpointMismatchError, match=r"lr_scheduler was None, and is {'class': 'CosineAnnealingLR'"):
            loop.train(NATIONS, num_epochs=2, checkpoint_name="x.pt", checkpoint_directory=tmp_path, use_tqdm=False)

    def test_setup_does_not_change_with_training(self, world: World) -> None:
        model = ComplEx(triples_factory=NATIONS, embedding_dim=4, random_seed=0, loss=NonSamplingLoss())
        loop = world.loop(
            model=model,
            triples_factory=NATIONS,
            optimizer=Adam,
            lr_scheduler="ExponentialLR",
            lr_scheduler_kwargs=dict(gamma=0.9),
        )
        loop.train(NATIONS, num_epochs=1, use_tqdm=False)
        before = loop.checksum
        loop.train(NATIONS, num_epochs=3, use_tqdm=False, continue_training=True)
        assert loop.checksum == before


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
class TestInterrupt:
    CODE = """
        import os, signal, sys
        from pykeen.pipeline import pipeline
        from pykeen.training.callbacks import TrainingCallback

        # as at a prompt: in the background, a shell lets programs ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)

        class Interrupt(TrainingCallback):
            def pre_batch(self, **kwargs):
                if self.training_loop._epoch + 1 == int(sys.argv[2]):
                    # once
                    sys.argv[2] = 0
                    os.kill(os.getpid(), signal.SIGINT)

        result = pipeline(
            dataset="nations", model="DistMult", model_kwargs=dict(embedding_dim=4), training_loop="nonsamplinglcwa",
            epochs=6, random_seed=0, stopper="early",
            stopper_kwargs=dict(frequency=1, patience=9),
            training_kwargs=dict(callbacks=Interrupt, checkpoint_name="x.pt", checkpoint_directory=sys.argv[1]),
        )
        print(result.losses)
    """

    def test_ends_with_a_checkpoint(self, tmp_path: Path) -> None:
        """And the result is that of a training that was not interrupted."""

        def train(directory: str, epoch: int) -> list[str]:
            return ["-c", dedent(self.CODE), str(tmp_path / directory), str(epoch)]

        whole = run_python(*train("a", 0), cwd=tmp_path)
        command = [sys.executable, *train("b", 3)]
        stopped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert stopped.returncode in (-signal.SIGINT, 130)
        assert "Interrupted: training ends after this epoch, with a checkpoint." in stopped.stderr
        assert "KeyboardInterrupt: Stopped after epoch 3. To go on from" in stopped.stderr
        assert run_python(*train("b", 0), cwd=tmp_path) == whole
