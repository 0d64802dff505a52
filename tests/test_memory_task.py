"""What is trained, and how much of it is kept."""

from __future__ import annotations

import torch

from pykeen_nonsampling.memory.task import Task


def test_optimizers_keep_different_numbers_of_tensors() -> None:
    x = [torch.zeros(1, requires_grad=True)]
    optim = torch.optim
    made = (optim.SGD(x), optim.SGD(x, momentum=0.9), optim.Adagrad(x), optim.Adam(x), optim.Adam(x, amsgrad=True))
    assert [Task().with_optimizer(optimizer).optimizer_copies for optimizer in made] == [0, 1, 1, 2, 3]
