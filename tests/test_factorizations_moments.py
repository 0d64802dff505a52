"""Moments are sums, so those of parts add up."""

import torch

from pykeen_nonsampling.factorizations.moments import PANEL, Moments, Weights, add_gram, gram, mirror


def test_gram() -> None:
    x = torch.randn(7, 3, dtype=torch.double, requires_grad=True)
    torch.testing.assert_close(gram(x), x.T @ x)
    assert torch.autograd.gradcheck(gram, x)


def test_wide_gram_is_symmetric_though_only_half_of_it_is_computed() -> None:
    x, w = torch.randn(50, 2 * PANEL + 3, dtype=torch.double, requires_grad=True), torch.rand(50, dtype=torch.double)
    torch.testing.assert_close(gram(x), x.T @ x)
    torch.testing.assert_close(*(torch.autograd.grad(y[:, :9].cos().sum(), x)[0] for y in (gram(x), x.T @ x)))
    total = torch.zeros(x.shape[1], x.shape[1], dtype=torch.double)
    for part in (slice(0, 20), slice(20, 50)):
        add_gram(total, x[part].detach(), w[part, None] * x[part].detach())
    assert not total[-1, 0]
    torch.testing.assert_close(mirror(total), (x.T @ (w[:, None] * x)).detach())


def test_shards_add_up_to_the_whole() -> None:
    x, w = torch.randn(9, 4, dtype=torch.double), torch.rand(9, dtype=torch.double)
    whole = Moments.of(x, w)
    parts = Moments.of(x[:2], w[:2]) + Moments.of(x[2:2], w[2:2]) + Moments.of(x[2:], w[2:])
    keys = Moments.of(torch.randn(5, 4, dtype=torch.double))
    scores = Moments.of(x[:2], w[:2]).of_scores(keys) + Moments.of(x[2:], w[2:]).of_scores(keys)
    for actual, expected in ((parts, whole), (scores, whole.of_scores(keys))):
        torch.testing.assert_close(torch.as_tensor(actual.count), torch.as_tensor(expected.count), check_dtype=False)
        torch.testing.assert_close(actual.first, expected.first)
        torch.testing.assert_close(actual.second, expected.second)


def test_weights_of_triples_are_products() -> None:
    weights = Weights(heads=torch.tensor([1.0, 2.0]), tails=torch.tensor([3.0, 5.0]))
    assert weights.of(torch.tensor([[0, 7, 1], [1, 3, 0]])).tolist() == [5.0, 6.0]  # type: ignore[union-attr]
    assert Weights().of(torch.tensor([[0, 0, 0]])) == 1.0
