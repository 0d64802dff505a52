"""Scores at observed triples, and their gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = [
    "paired_products",
]

#: The number of triples handled at once, so that no intermediate result is larger than this many rows
CHUNK = 2**14


class _PairedProducts(torch.autograd.Function):
    """Inner products of chosen rows, without keeping the gathered rows for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
        ctx.save_for_backward(x, y, i, j)
        return torch.cat([(x[ii] * y[jj]).sum(dim=-1) for ii, jj in zip(i.split(CHUNK), j.split(CHUNK), strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, y, i, j = ctx.saved_tensors
        grad_x, grad_y = torch.zeros_like(x), torch.zeros_like(y)
        for ii, jj, g in zip(i.split(CHUNK), j.split(CHUNK), grads[0].split(CHUNK), strict=True):
            grad_x.index_add_(0, ii, g[:, None] * y[jj])
            grad_y.index_add_(0, jj, g[:, None] * x[ii])
        return grad_x, grad_y, None, None


def paired_products(x: Tensor, y: Tensor, i: Tensor, j: Tensor) -> Tensor:
    r"""Compute $x_{i_n}^\top y_{j_n}$ for each n, in O(n·k).

    :param x: shape: (a, k)
    :param y: shape: (b, k)
    :param i: shape: (n,), rows of x
    :param j: shape: (n,), rows of y
    :return: shape: (n,)
    """
    products: Tensor = _PairedProducts.apply(x, y, i, j)
    return products
