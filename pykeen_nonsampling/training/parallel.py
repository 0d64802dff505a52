"""Training loops that several processes run together, each on a part of every batch."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from pykeen.training.callbacks import MultiTrainingCallback, TrainingCallback
from pykeen.triples import CoreTriplesFactory
from torch import nn
from typing_extensions import override

from ..distributed.group import Ranks
from .resuming import ResumableTrainingLoop


class ParallelTrainingLoop(ResumableTrainingLoop, ABC):
    """A training loop that divides its work among the processes of :mod:`torch.distributed`, if there are several.

    Each has the whole model, and visits a part of the queries of every batch. Before each step, the gradients are summed, so
    that all take the same one.
    """

    #: the processes, of which this is one
    _ranks: Ranks = Ranks()
    #: the number of bytes that this process has sent in the last epoch
    num_bytes: int = 0
    #: whether all start from the same parameters
    _aligned: bool = False

    @override
    def train(self, triples_factory: CoreTriplesFactory, *args: Any, **kwargs: Any) -> list[float] | None:
        self._ranks, self._aligned = self._find_ranks(), False
        self._writes = self._ranks.is_first
        if self._ranks.size > 1:
            self._align_random_numbers()
            self._check_checkpoint(**kwargs)
            kwargs["use_tqdm"] = kwargs.get("use_tqdm", True) and self._ranks.is_first
        return super().train(triples_factory, *args, **kwargs)

    def _find_ranks(self) -> Ranks:
        """Return the processes that take part."""
        return Ranks.current()

    def _align_random_numbers(self) -> None:
        """Let all draw the same random numbers, as batches and dropout do."""
        torch.set_rng_state(self._ranks.same(torch.get_rng_state()))
        if self.model.device.type == "cuda":
            torch.cuda.set_rng_state(self._ranks.same(torch.cuda.get_rng_state(self.model.device)), self.model.device)

    def _check_checkpoint(
        self, checkpoint_name: str | None = None, checkpoint_directory: str | Path | None = None, **_kwargs: Any
    ) -> None:
        """Refuse to continue a checkpoint that not all of them can see."""
        if not checkpoint_name or checkpoint_directory is None:
            return
        path = Path(checkpoint_directory) / checkpoint_name
        seen = self._ranks.all_of(path.is_file())
        if any(seen) and not all(seen):
            found = ", ".join(str(rank) for rank, x in enumerate(seen) if x)
            raise ValueError(
                f"Only rank {found} can see the checkpoint {path}. Use a checkpoint_directory that all machines share."
            )

    @override
    def _train(self, *, callbacks: Any = None, callbacks_kwargs: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        if self._ranks.size > 1:
            given = MultiTrainingCallback(callbacks=callbacks, callbacks_kwargs=callbacks_kwargs)
            # before all others, which may look at gradients
            sum_gradients = _SumGradients(self._ranks, list(self._common_parameters()))
            callbacks, callbacks_kwargs = [sum_gradients, given], None
        return super()._train(callbacks=callbacks, callbacks_kwargs=callbacks_kwargs, **kwargs)

    @override
    def _train_epoch(self, **kwargs: Any) -> float:  # type: ignore[override]
        if not self._aligned:
            self._ranks.share(*(x.data for x in (*self._common_parameters(), *self.model.buffers())))
            self._aligned = True
        before = self._ranks.num_bytes
        loss = super()._train_epoch(**kwargs)
        self.num_bytes = self._ranks.num_bytes - before
        return loss

    def _common_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that all processes have."""
        return self.model.parameters()

    @override
    def _is_interrupted(self) -> bool:
        if self._checkpoint is None:
            return False
        self._interrupted = any(self._ranks.all_of(self._interrupted))
        return self._interrupted


class _SumGradients(TrainingCallback):
    """Sums the gradients of all processes before each step."""

    def __init__(self, ranks: Ranks, parameters: Sequence[nn.Parameter]):
        super().__init__()
        self.ranks = ranks
        self.parameters = [x for x in parameters if x.requires_grad]

    @override
    def pre_step(self, **kwargs: Any) -> None:
        for x in self.parameters:
            if x.grad is None:
                # it does not depend on this process's queries
                x.grad = torch.zeros_like(x)
            self.ranks.add(x.grad)
