"""Every kernel gives the same, in blocks of any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pykeen.datasets import Nations
from pykeen.models import DistMult
from torch import Tensor

from pykeen_nonsampling import NonSamplingLoss, NonSamplingTrainingLoop, kernels
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.graph import Batches, Graph


@pytest.fixture
def graph() -> Graph:
    dataset = Nations()
    return Graph.from_factory(dataset.training, num_entities=14, num_relations=55)


@pytest.fixture
def features() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 6, dtype=torch.double, generator=generator).requires_grad_() for n in (14, 55, 14)]


def plain_sum(graph: Graph, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    h, r, t = graph.triples.unbind(dim=-1)
    scores = (heads[h] * relations[r] * tails[t]).sum(dim=-1)
    return (scores**3 - scores).sum()


def cost(scores: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    assert len(scores) == len(graph)
    return (scores**3 - scores).sum(), 3 * scores**2 - 1


@pytest.mark.parametrize("kernel", [kernels.SparseKernel(), kernels.GatherKernel(), None])
@pytest.mark.parametrize("memory_budget", [1, 10_000, 10**9])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_sum_over_triples_equals_automatic_differentiation(
    graph: Graph, features: list[Tensor], kernel: Any, memory_budget: int, shared: bool, factor: float
) -> None:
    if shared:
        features[2] = features[0]
    factorization: Any = factorize(DistMult(triples_factory=Nations().training, random_seed=0).interaction)
    total = kernels.sum_over_triples(cost, factorization, graph, *features, memory_budget=memory_budget, kernel=kernel)
    expected = plain_sum(graph, *features)
    torch.testing.assert_close(total, expected)
    inputs = features[:2] if shared else features
    for actual, wanted in zip(
        torch.autograd.grad(factor * total, inputs), torch.autograd.grad(factor * expected, inputs), strict=True
    ):
        torch.testing.assert_close(actual, wanted)


def test_without_gradient(graph: Graph, features: list[Tensor]) -> None:
    factorization: Any = factorize(DistMult(triples_factory=Nations().training, random_seed=0).interaction)
    with torch.inference_mode():
        total = kernels.sum_over_triples(cost, factorization, graph, *features)
    assert not total.requires_grad
    torch.testing.assert_close(total, plain_sum(graph, *features).detach())


def test_gram() -> None:
    x = torch.randn(7, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(kernels.gram, x)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_fast_kernel_where_the_build_has_it(dtype: torch.dtype) -> None:
    kernel = kernels.kernel_for(torch.device("cpu"), dtype)
    assert isinstance(kernel, kernels.SparseKernel if torch.backends.mkl.is_available() else kernels.GatherKernel)


@pytest.mark.parametrize("error", [RuntimeError("requires MKL"), NotImplementedError("no such operator on this device")])
def test_fallback_where_it_has_not(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(torch.sparse, "sampled_addmm", fail)
    assert isinstance(kernels.kernel_for.__wrapped__(torch.device("cpu"), torch.float), kernels.GatherKernel)


def test_fallback_where_it_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.SparseKernel, "products", lambda *args: torch.zeros(3))
    assert isinstance(kernels.kernel_for.__wrapped__(torch.device("cpu"), torch.float), kernels.GatherKernel)


class TestBlockSize:
    def test_fits_the_cache(self) -> None:
        assert kernels.block_size(200, 4, torch.device("cpu"), 2**40) == kernels.CACHED_ELEMENTS // 200

    def test_fits_the_budget(self) -> None:
        for budget in (10**5, 10**6, 10**7):
            size = kernels.block_size(100, 8, torch.device("cpu"), budget)
            assert size * 100 * 8 * kernels.MATRICES <= budget

    def test_is_at_least_one(self) -> None:
        assert kernels.block_size(10**9, 8, torch.device("cpu"), 1) == 1

    def test_default_is_a_share_of_what_is_free(self) -> None:
        assert kernels.free_memory(torch.device("cpu")) > 0
        assert kernels.free_memory(torch.device("meta")) == 2**30


@pytest.mark.parametrize("memory_budget", [1, 5_000, 200_000])
def test_training_is_the_same_for_any_budget(memory_budget: int) -> None:
    dataset = Nations()
    losses = []
    for budget in (None, memory_budget):
        model = DistMult(triples_factory=dataset.training, random_seed=0, loss=NonSamplingLoss()).double()
        loop = NonSamplingTrainingLoop(model=model, triples_factory=dataset.training, memory_budget=budget)
        losses.append(loop.train(dataset.training, num_epochs=3, use_tqdm=False))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    with pytest.raises(ValueError, match="memory_budget=0 bytes hold nothing"):
        NonSamplingTrainingLoop(model=model, triples_factory=dataset.training, memory_budget=0)


class TestGraph:
    def test_index(self, graph: Graph) -> None:
        pairs = graph.pairs[graph.query_index]
        assert torch.equal(pairs, graph.triples[:, :2])
        assert len(graph.pairs) == len(graph.triples[:, :2].unique(dim=0))
        dense = torch.zeros(len(graph.pairs), 14)
        dense[graph.query_index, graph.tails] = 1
        offsets, tails = graph.rows
        by_rows = torch.sparse_csr_tensor(offsets, tails, torch.ones(len(graph)), size=dense.shape).to_dense()
        assert torch.equal(by_rows, dense)
        distinct, starts, queries, order = graph.columns
        assert torch.equal(graph.query_index[order], queries.long())
        assert torch.equal(graph.tails[order][starts.long()], distinct)

    def test_blocks_are_a_partition(self, graph: Graph) -> None:
        for size in (1, 100, 10**6):
            blocks = graph.blocks(size)
            assert torch.equal(torch.cat([block.triples for block in blocks]), graph.triples)
            assert max(map(len, blocks)) <= size
            assert sum(block.share for block in blocks) == pytest.approx(1.0)
            assert graph.blocks(size) is blocks

    @pytest.mark.parametrize(
        ("batch_size", "drop_last", "sizes"), [(4, False, [4, 4, 2]), (4, True, [4, 4]), (10, True, [10])]
    )
    def test_batches(self, batch_size: int, drop_last: bool, sizes: list[int]) -> None:
        batches = Batches(size=10, batch_size=batch_size, drop_last=drop_last)
        everything = torch.arange(10)
        drawn = [everything[positions] for positions in batches]
        assert [len(batch) for batch in drawn] == sizes
        assert len(batches) == len(sizes)
        assert len(torch.cat(drawn).unique()) == sum(sizes)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
@pytest.mark.parametrize("dtype", [torch.double, torch.cdouble])
def test_norms_equal_automatic_differentiation(power: float, dtype: torch.dtype) -> None:
    x = torch.randn(5, 2, 3, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = torch.tensor([0, 1, 2, 7, 3])
    actual = kernels.sum_of_norms(x, weights, power)
    expected = (weights * x.abs().pow(power).sum(dim=(1, 2))).sum()
    torch.testing.assert_close(actual, expected)
    for factor in (1.0, 0.3):
        (gradient,) = torch.autograd.grad(factor * kernels.sum_of_norms(x, weights, power), x)
        (wanted,) = torch.autograd.grad(factor * expected, x, retain_graph=True)
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 3.0])
def test_norm_of_zero_has_no_gradient(power: float) -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    kernels.sum_of_norms(x, torch.ones(2), power).backward()
    assert torch.equal(x.grad, torch.zeros(2, 3))
