"""Cross-entropy: what is measured is what the names say."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from pykeen.datasets import Nations
from pykeen.nn import Representation
from pykeen.training import TrainingCallback
from pykeen.typing import LABEL_HEAD, LABEL_TAIL
from steps import assert_first_step_equals
from torch import Tensor

from benchmarks import cross_entropy, machine
from benchmarks.__main__ import main
from benchmarks.cross_entropy import RATIOS, AutogradTrainingLoop, CrossEntropy, autograd_cross_entropy
from benchmarks.subject import make_loop, make_model
from benchmarks.tables import CROSS_ENTROPY_ROWS
from pykeen_nonsampling import NonSamplingLCWATrainingLoop
from pykeen_nonsampling.factorizations.features import factorize_model
from pykeen_nonsampling.losses import SoftmaxLoss

#: The rows that are measured with float32 only
FLOAT32_ONLY = "lcwa_seconds", "squared_seconds", "lcwa/batches", "step/squared"


def measure(*args: str) -> Result:
    return CliRunner().invoke(main, ["cross_entropy", "--dataset", "nations", "--dim", "8", "--repeats", "2", *args])


@pytest.mark.parametrize("bfloat16", [False, True])
def test_everything_is_measured_and_written(bfloat16: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without bfloat16, the second precision stands for any other."""
    monkeypatch.setattr(cross_entropy, "has_bfloat16", lambda: bfloat16)
    monkeypatch.setitem(cross_entropy.PRECISIONS, "bfloat16", "high")
    monkeypatch.setattr(cross_entropy, "BATCH_QUERIES", 100)
    seen: list[str] = []
    step = CrossEntropy.step

    def record(subject: CrossEntropy) -> float:
        seen.append(torch.get_float32_matmul_precision())
        return step(subject)

    monkeypatch.setattr(CrossEntropy, "step", record)
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    few = ["--batches", "1", "--lcwa-batch-size", "100", "--threads", "1"]
    result = measure(*few, "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before

    precisions = ["float32", "bfloat16"] if bfloat16 else ["float32"]
    assert seen == ["highest", "high"][: len(precisions)] * 2
    path = tmp_path / "out" / "cross_entropy.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    assert [(row["model"], row["dim"], row["precision"]) for row in data["results"]] == [
        ("ComplEx", 8, precision) for precision in precisions
    ]
    triples = Nations().training.mapped_triples.tolist()
    queries = {LABEL_TAIL: len({(h, r) for h, r, _ in triples}), LABEL_HEAD: len({(r, t) for _, r, t in triples})}
    assert data["dataset"]["queries"] == queries
    assert data["machine"]["threads"] == 1
    for row, samples in zip(data["results"], data["samples"], strict=True):
        for name, _ in CROSS_ENTROPY_ROWS.values():
            if row["precision"] != "float32" and name in FLOAT32_ONLY:
                assert name not in row
            elif name in RATIOS:
                a, b = RATIOS[name]
                assert row[name] == pytest.approx(row[a] / row[b])
            else:
                assert row[name] == statistics.median(samples[name]) > 0
                assert len(samples[name]) == 2
        # 1,592 triples are 16 batches of 100 for each end, of which one is timed
        assert (row["autograd_timed"], row["autograd_total"]) == (2, 32)
        assert (row["floor_timed"], row["floor_total"]) == (2, 2)
        assert (row["batches_timed"], row["batches_total"]) == (1, pytest.approx(sum(queries.values()) / 100, abs=1))
        if row["precision"] == "float32":
            assert (row["lcwa_timed"], row["lcwa_total"]) == (1, math.ceil(queries[LABEL_TAIL] / 100))

    printed = [line for line in result.output.splitlines() if line.startswith("|")]
    for label, (name, write) in CROSS_ENTROPY_ROWS.items():
        mark = "≈ " if name in ("autograd_seconds", "lcwa_seconds", "batches_seconds") else ""
        cells = [mark + write(row[name]) if name in row else "–" for row in data["results"]]
        assert f"| {' | '.join([label, *cells])} |" in printed
    assert CliRunner().invoke(main, ["tables", "cross_entropy", "--file", str(path)]).output.splitlines() == printed


def test_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "cross_entropy.json").write_text("mine")
    result = measure("--output", str(tmp_path))
    assert result.exit_code == 2
    assert "exists already" in " ".join(result.output.split())
    assert (tmp_path / "cross_entropy.json").read_text() == "mine"


@pytest.mark.parametrize("weight", [0.0, 0.1])
@pytest.mark.parametrize("model", ["ComplEx", "DistMult", "SimplE", "TransE"])
def test_autograd_computes_the_same_loss(model: str, weight: float) -> None:
    factory = Nations().training
    loss_function = SoftmaxLoss(scale=1.0, regularization_weight=weight)
    loop = make_loop(model, factory, 8, NonSamplingLCWATrainingLoop, loss_function)
    loop.model.double()
    for module in loop.model.modules():
        if isinstance(module, Representation):
            # it counts once per step, and here, there is one step for several batches
            module.regularizer = None
    factorization = factorize_model(loop.model)

    def loss() -> Tensor:
        parts = itertools.product(factory.mapped_triples.split(1000), (LABEL_TAIL, LABEL_HEAD))
        return torch.stack(
            [autograd_cross_entropy(loop.model, factorization, *part, weight).squeeze() for part in parts]
        ).sum()

    assert_first_step_equals(loop, factory, loss, sweep=("scores", None))


def test_the_training_loop_with_autograd_sees_all_triples_and_their_inverses_once() -> None:
    factory = Nations(create_inverse_triples=True).training
    model = make_model("ComplEx", factory, 4, regularizer=None)
    loop = AutogradTrainingLoop(
        model=model, triples_factory=factory, regularization_weight=0.1, automatic_memory_optimization=False
    )
    batches: list[Tensor] = []

    class Batches(TrainingCallback):
        def on_batch(self, epoch: int, batch: Tensor, batch_loss: float, **kwargs: Any) -> None:
            batches.append(batch)
            with torch.no_grad():
                total = autograd_cross_entropy(model, loop.factorization, batch, LABEL_TAIL, 0.1)
            assert batch_loss == pytest.approx(total.item() / len(batch))

    loop.train(factory, num_epochs=1, batch_size=1000, use_tqdm=False, callbacks=Batches())
    assert [len(batch) for batch in batches] == [1000, 1000, 1000, 184]
    triples = factory._add_inverse_triples_if_necessary(factory.mapped_triples)
    assert sorted(torch.cat(batches).tolist()) == sorted(triples.tolist())


def test_mini_batches_have_the_queries_that_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "BATCH_QUERIES", 50)
    subject = CrossEntropy(Nations().training, "ComplEx", 2, lcwa_batch_size=100)
    sizes: list[int] = []
    process = NonSamplingLCWATrainingLoop._process_batch

    def record(loop: Any, batch: Any, *args: Any, **kwargs: Any) -> Tensor:
        sizes.append(batch.num_queries)
        return process(loop, batch, *args, **kwargs)

    monkeypatch.setattr(NonSamplingLCWATrainingLoop, "_process_batch", record)
    subject.batches(10**6)
    assert subject.parts["batches"] == (len(sizes), len(sizes))
    assert sum(sizes) == sum(subject.num_queries.values())
    assert 45 < min(sizes) <= max(sizes) < 55


@pytest.mark.parametrize(
    ("flags", "capability", "expected"),
    [
        ("fpu avx512f avx512_bf16", "AVX512", True),
        ("fpu avx512f amx_bf16", "AVX512", True),
        ("fpu avx512f", "AVX512", False),
        ("fpu avx512f avx512_bf16", "AVX2", False),
    ],
)
def test_bfloat16_is_looked_up(
    flags: str, capability: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"model name\t: none\nflags\t\t: {flags}\n")
    monkeypatch.setattr(machine, "CPUINFO", cpuinfo)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert machine.has_bfloat16() == expected
    cpuinfo.unlink()
    assert not machine.has_bfloat16()
