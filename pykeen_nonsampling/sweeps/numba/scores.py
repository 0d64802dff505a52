"""The sweep for objectives that see every score, where a softmax over them is compiled by Numba."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from ...factorizations.functions import NormFunction
from ...losses.objective import AllScores, FunctionObjective, ScoreObjective
from ...losses.softmax import SoftmaxObjective
from ..scores import ScoreSweep
from .exponentials import DIFFERENTIATE
from .threads import num_threads


class FusedScoreSweep(ScoreSweep):
    """Reads each score once to turn it into a derivative, if the objective is a softmax of products or norms.

    This is for single precision, on a CPU, where all candidates weigh the same. PyTorch does the rest.
    """

    @override
    def _differentiate(self, objective: ScoreObjective, x: AllScores) -> Tensor:
        function = None
        softmax = objective
        if isinstance(objective, FunctionObjective):
            softmax, function = objective.objective, objective.function
        if (
            type(softmax) is not SoftmaxObjective
            or softmax.filtered
            or x.candidate_weights is not None
            or not (function is None or type(function) is NormFunction)
            or x.scores.dtype != torch.float
            or x.scores.device.type != "cpu"
        ):
            return super()._differentiate(objective, x)
        shares, scores = softmax.shares(x), x.scores
        # those of the answers, before they are overwritten
        with torch.enable_grad():
            inputs = x.positives.requires_grad_()
            positives = softmax.scale * (inputs if function is None else function(inputs))
            (slopes,) = torch.autograd.grad(positives.sum(), inputs)
        factors = scores.new_zeros(len(scores)).index_add_(0, x.query_index, shares)
        largest, sums = torch.empty_like(factors), torch.empty_like(factors)
        single = np.float32
        DIFFERENTIATE(
            np.linspace(0, len(scores), 1 + min(num_threads(), len(scores)), dtype=np.int64),
            *(t.numpy() for t in (scores, factors)),
            *map(single, (softmax.scale, *((0, 0) if function is None else (function.scale, function.offset)))),
            single(torch.finfo(scores.dtype).eps),
            *(t.numpy() for t in (largest, sums)),
        )
        scores.index_put_((x.query_index, x.answers), -shares * slopes, accumulate=True)
        return torch.dot(shares, (largest + sums.log()).index_select(0, x.query_index) - positives.detach())
