"""What vectors cost: their norms, weighted by how often they occur in observed triples."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _SumOfNorms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, power: float) -> Tensor:
        rows = weights.nonzero().squeeze(dim=-1)
        if 2 * len(rows) > len(x):
            ctx.gradient = gradient = _differentiate(x, weights, power)
        else:
            # only some of the entities occur in a small batch
            whole, x = x, x.index_select(0, rows)
            gradient = _differentiate(x, weights.index_select(0, rows), power)
            ctx.gradient = torch.zeros_like(whole).index_copy_(0, rows, gradient)
        return torch.vdot(x.reshape(-1), gradient.view(-1)).real / power

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient if grad_outputs[0].item() == 1.0 else gradient.mul_(grad_outputs[0]), None, None


def _differentiate(x: Tensor, weights: Tensor, power: float) -> Tensor:
    """Compute the gradient of the sum: p w x |x|^(p - 2), also where x is zero."""
    factors = (power * weights.to(x.real.dtype)).view(-1, *(1,) * (x.ndim - 1))
    if power == 3:
        return x * _absolute(x).mul_(factors)
    if power == 2:
        return x * factors
    return x.sgn().mul_(_absolute(x).pow_(power - 1).mul_(factors))


def _absolute(x: Tensor) -> Tensor:
    """Compute absolute values. PyTorch's own avoid overflows of squares, which takes several times as long."""
    if not x.is_complex():
        return x.abs()
    real, imaginary = torch.view_as_real(x).unbind(dim=-1)
    return torch.addcmul(real.square(), imaginary, imaginary).sqrt_()


def sum_of_norms(x: Tensor, weights: Tensor, power: float) -> Tensor:
    r"""Sum $w_i \|x_i\|_p^p$ over the rows, with absolute values of complex numbers. Value and gradient in one pass.

    :param x: shape: (n, …), the vectors, real or complex
    :param weights: shape: (n,), the weights
    :param power: the power p
    :return: the sum
    """
    return _SumOfNorms.apply(x, weights, power)
