"""Trains with checkpoints, in two processes that are started again, as by torchrun, when the second one is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from pykeen.pipeline import pipeline
from pykeen.training.callbacks import TrainingCallback
from torch import distributed
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from pykeen_nonsampling.distributed.group import join

CONFIGURATION: dict[str, Any] = dict(
    dataset="nations",
    model="DistMult",
    model_kwargs=dict(embedding_dim=8),
    training_loop="nonsamplinglcwa",
    epochs=10,
    evaluator="factorized",
    random_seed=0,
)


class Kill(TrainingCallback):
    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        marker = Path(sys.argv[1]) / "killed"
        if epoch == 6 and distributed.get_rank() == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def train() -> None:
    """Do what each of the processes does."""
    with join(timedelta(minutes=2)) as ranks:
        checkpoint = dict(checkpoint_name="x.pt", checkpoint_directory=sys.argv[1], checkpoint_frequency=0)
        result = pipeline(**CONFIGURATION, training_kwargs=dict(callbacks=Kill, use_tqdm=False, **checkpoint))
        if ranks.is_first:
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            (Path(sys.argv[1]) / "result.json").write_text(json.dumps([attempt, result.losses, result.get_metric("mrr")]))


if __name__ == "__main__":
    # what torchrun --standalone --nproc-per-node=2 --max-restarts=1 does, but with processes that need not import all again
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id="restart",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=1,
        monitor_interval=0.1,
        start_method="fork",
    )
    elastic_launch(config, train)()
