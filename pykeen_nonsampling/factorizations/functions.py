"""Functions of factorized scores, such as roots of squared distances, for losses that see every score."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override


class ScoreFunction(ABC):
    """A function of each score, with its derivative, both computed in the memory of the scores."""

    @abstractmethod
    def __call__(self, scores: Tensor) -> Tensor:
        """Compute the values.

        :param scores: any number of scores
        :return: their values, differentiable
        """

    @abstractmethod
    def apply(self, scores: Tensor, room: Tensor) -> Any:
        """Put the values in the place of the scores.

        :param scores: the scores, which are overwritten
        :param room: memory of the same shape
        :return: what :meth:`pull_back` needs to know of them
        """

    @abstractmethod
    def pull_back(self, known: Any, derivatives: Tensor) -> None:
        """Turn derivatives by values into derivatives by scores.

        :param known: what :meth:`apply` returned
        :param derivatives: the derivatives, which are overwritten
        """


@dataclass(frozen=True)
class SquareFunction(ScoreFunction):
    r"""From $f = b - a x^2$ to $-x^2$."""

    scale: float
    offset: float

    @override
    def __call__(self, scores: Tensor) -> Tensor:
        return scores.sub(self.offset).div(self.scale)

    @override
    def apply(self, scores: Tensor, room: Tensor) -> None:
        scores.sub_(self.offset).div_(self.scale)

    @override
    def pull_back(self, known: Any, derivatives: Tensor) -> None:
        derivatives.div_(self.scale)


@dataclass(frozen=True)
class NormFunction(ScoreFunction):
    r"""From $f = b - a x^2$ to $-x$."""

    scale: float
    offset: float

    @override
    def __call__(self, scores: Tensor) -> Tensor:
        # a square that is all rounding error has no root, and no direction to change in
        return scores.sub(self.offset).div(-self.scale).clamp(min=torch.finfo(scores.dtype).eps).sqrt().neg()

    @override
    def apply(self, scores: Tensor, room: Tensor) -> Tensor:
        least = torch.finfo(scores.dtype).eps
        scores.sub_(self.offset).div_(-self.scale).clamp_(min=least).sqrt_()
        # what derivatives are divided by; without comparisons, which need memory of their own
        norms = functional.threshold(room.copy_(scores), 1.0001 * math.sqrt(least), math.inf, inplace=True)
        scores.neg_()
        return norms

    @override
    def pull_back(self, known: Tensor, derivatives: Tensor) -> None:
        derivatives.div_(known).mul_(0.5 / self.scale)


@dataclass(frozen=True)
class ClampFunction(ScoreFunction):
    """Scores, or a function of them, no less and no more than bounds."""

    base: ScoreFunction | None
    low: float | None
    high: float | None

    @override
    def __call__(self, scores: Tensor) -> Tensor:
        return (scores if self.base is None else self.base(scores)).clamp(min=self.low, max=self.high)

    @override
    def apply(self, scores: Tensor, room: Tensor) -> tuple[Any, Tensor]:
        known = None if self.base is None else self.base.apply(scores, room)
        outside = torch.zeros_like(scores, dtype=torch.bool)
        if self.low is not None:
            outside |= scores < self.low
        if self.high is not None:
            outside |= scores > self.high
        scores.clamp_(min=self.low, max=self.high)
        return known, outside

    @override
    def pull_back(self, known: tuple[Any, Tensor], derivatives: Tensor) -> None:
        of_base, outside = known
        derivatives.masked_fill_(outside, 0.0)
        if self.base is not None:
            self.base.pull_back(of_base, derivatives)
