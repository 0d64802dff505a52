"""The plain sweep, in blocks that fit cache and budget."""

from __future__ import annotations

import gc

import pytest
import torch
from problems import INDEX, make_features
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.nn.modules import DistMultInteraction

from pykeen_nonsampling import NonSamplingLoss, NonSamplingTrainingLoop
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.graph.sides import Side
from pykeen_nonsampling.losses.squared import SquaredObjective
from pykeen_nonsampling.sweeps import plain
from pykeen_nonsampling.sweeps.plain import PlainSweep
from pykeen_nonsampling.sweeps.problem import Problem
from pykeen_nonsampling.sweeps.products import GatherProducts


def test_blocks_go_with_their_index() -> None:
    sweeper, features = PlainSweep(), [x.detach() for x in make_features()]
    index = TripleIndex(INDEX.triples, 14, 55)
    problem = Problem(Side("tail", index), factorize(DistMultInteraction()).form, SquaredObjective(), *features)
    sweeper(problem, False)
    (blocks,) = (blocks for _, blocks in sweeper._blocks.values())
    sweeper(problem, False)
    assert next(iter(sweeper._blocks.values()))[1] is blocks
    del problem, index, blocks
    gc.collect()
    assert not sweeper._blocks


class TestBlockSize:
    def test_fits_the_cache(self) -> None:
        assert plain.block_size(200, 4, torch.device("cpu"), 2**40) == plain.BLOCK_ELEMENTS // 200

    @pytest.mark.parametrize("budget", [10**5, 10**6, 10**7])
    def test_fits_the_budget(self, budget: int) -> None:
        size = plain.block_size(100, 8, torch.device("cpu"), budget)
        assert size * 100 * 8 * plain.TRIPLE_MATRICES <= budget < (size + 1) * 100 * 8 * plain.TRIPLE_MATRICES

    def test_is_at_least_one(self) -> None:
        assert plain.block_size(10**9, 8, torch.device("cpu"), 1) == 1

    def test_default_is_a_quarter_of_what_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plain, "free_memory", lambda device: 4 * 10**6)
        for device in ("cpu", "cuda"):
            explicit = plain.block_size(100, 8, torch.device(device), 10**6)
            assert plain.block_size(100, 8, torch.device(device)) == explicit == 10**6 // (100 * 8 * plain.TRIPLE_MATRICES)

    def test_large_queries_are_gathered_in_chunks(self) -> None:
        """A query with more answers than a block has room for is one block, but its vectors are not gathered at once."""
        index = TripleIndex(torch.tensor([[0, 0, a] for a in range(10)]), 10, 1)
        sweeper = PlainSweep(memory_budget=plain.TRIPLE_MATRICES * 6 * 8 * 3, products=GatherProducts())
        features = [torch.randn(n, 6, dtype=torch.double) for n in (10, 1, 10)]
        problem = Problem(Side("tail", index), factorize(DistMultInteraction()).form, SquaredObjective(), *features)
        total, gradients = sweeper(problem, True)
        ((_, (block,)),) = sweeper._blocks.values()
        assert [len(range(*part.indices(10))) for part in block.chunks] == [3, 3, 3, 1]
        expected, expected_gradients = PlainSweep()(problem, True)
        torch.testing.assert_close(total, expected)
        assert gradients is not None
        assert expected_gradients is not None
        torch.testing.assert_close(gradients.given, expected_gradients.given)
        torch.testing.assert_close(gradients.answers, expected_gradients.answers)


@pytest.mark.parametrize("memory_budget", [1, 5_000, 200_000])
def test_training_is_the_same_for_any_budget(memory_budget: int) -> None:
    dataset = Nations()
    losses = []
    for budget in (None, memory_budget):
        model = DistMult(triples_factory=dataset.training, random_seed=0, loss=NonSamplingLoss()).double()
        loop = NonSamplingTrainingLoop(model=model, triples_factory=dataset.training, memory_budget=budget)
        losses.append(loop.train(dataset.training, num_epochs=3, use_tqdm=False))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    with pytest.raises(ValueError, match="memory_budget=0 is out of range: use an integer ≥ 1"):
        NonSamplingTrainingLoop(model=model, triples_factory=dataset.training, memory_budget=0)
