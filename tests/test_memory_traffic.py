"""What processes send each other is what the formulas say."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from commands import run_ranks
from pykeen.datasets import Nations
from traffic_script import CASES, model_kwargs

from pykeen_nonsampling.memory.dry_run import outline
from pykeen_nonsampling.memory.task import Counts
from pykeen_nonsampling.memory.traffic import estimate_traffic

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed training")

TRAINING = Nations().training


def test_estimates_are_what_is_counted(tmp_path: Path) -> None:
    run_ranks(2, str(Path(__file__).parent / "traffic_script.py"), cwd=tmp_path)
    counted = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for name, (loop, cls, loss) in CASES.items():
        whole = outline(cls, model_kwargs(cls), TRAINING, partial(loop.plan_task, loss))
        parallel = replace(whole, counts=whole.counts.parallel(2))
        counts = whole.counts.shard(2)
        shard = outline(cls, model_kwargs(cls), counts.factory(), lambda *_, task=whole.task: task, counts)
        expected, at_most = (estimate_traffic(x, 2).total for x in (parallel, shard))
        for rank in range(2):
            assert counted[rank][name][0] == expected, name
            # each process has half of the entities, and all of them are needed
            assert counted[rank][name][1] == at_most, name


def test_answers_are_at_most_one_per_triple() -> None:
    """If there are more entities than a process fetches at once."""
    loop, cls, loss = CASES["local"]
    counts = Counts(100_000, 10, 300_000, (90_000, 80_000)).shard(4)
    made = outline(cls, model_kwargs(cls), counts.factory(), partial(loop.plan_task, loss), counts)
    # complex numbers of two floats each, to and fro, from both ends; three of four answers are elsewhere
    assert estimate_traffic(made, 4).answers == 2 * 2 * 75_000 * 3 // 4 * 12 * 4
