"""What a step of a training computes, and what it allocates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import CoreTriplesFactory
from sweeps import training_with
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pykeen_nonsampling.training import FactorizedTrainingLoop

TOLERANCE = dict(rtol=1e-9, atol=1e-9)


class Recorder(TrainingCallback):
    """Records parameters and gradients right before each optimizer step."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[Mapping[str, Tensor]] = []
        self.gradients: list[Mapping[str, Tensor | None]] = []

    def pre_step(self, **kwargs: Any) -> None:
        self.states.append({name: x.detach().clone() for name, x in self.model.state_dict().items()})
        self.gradients.append({name: copy(p.grad) for name, p in self.model.named_parameters()})


def copy(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().clone()


def assert_first_step_equals(
    loop: FactorizedTrainingLoop,
    factory: CoreTriplesFactory,
    enumerate_loss: Callable[[], Tensor],
    tolerance: Mapping[str, float] = TOLERANCE,
    *,
    sweep: tuple[str, int | None],
    **kwargs: Any,
) -> None:
    """Check the loss and the gradients of the first step of a training loop, computed by a sweep with a memory budget."""
    recorder = Recorder()
    # one step, also with inverse triples
    kwargs.setdefault("batch_size", 2 * factory.num_triples)
    with training_with(*sweep):
        losses = loop.train(factory, num_epochs=1, callbacks=recorder, use_tqdm=False, **kwargs)
    assert losses is not None
    loop.model.load_state_dict(recorder.states[0])
    loop.model.zero_grad()
    # PyKEEN's regularizers have the shape (1,)
    expected = enumerate_loss().squeeze()
    expected.backward()
    torch.testing.assert_close(torch.tensor(losses[0], dtype=torch.double), expected.detach(), **tolerance)
    for name, parameter in loop.model.named_parameters():
        torch.testing.assert_close(recorder.gradients[0][name], parameter.grad, **tolerance)


class Allocations(TorchDispatchMode):
    """Counts what is allocated: the number of elements of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            if isinstance(x, Tensor) and not x.is_sparse_csr:
                # views, e.g. of one number in all places, are no memory
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size())
        return result
