"""Processes that train one model together, on :mod:`torch.distributed`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

from ..factorizations.moments import Moments

T = TypeVar("T")


class GroupError(RuntimeError):
    """Another process of the group has failed, so that this one cannot go on."""


class Group:
    """Processes that train one model together, of which this is one. Without :mod:`torch.distributed`, it is alone.

    All of them have to call the same methods in the same order.
    """

    def __init__(self, rank: int = 0, size: int = 1):
        """Initialize the group.

        :param rank: the number of this process
        :param size: how many there are
        """
        self.rank = rank
        self.size = size
        #: the number of bytes that this process has sent so far, without those of single numbers
        self.num_bytes = 0

    @classmethod
    def current(cls) -> Group:
        """Return the default group, if the program has made one; this process alone otherwise."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls()

    @property
    def is_first(self) -> bool:
        """Whether this is the one that reports and writes files."""
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """Return the rows of a matrix that belong to this process."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    @contextmanager
    def _communicating(self, *tensors: Tensor) -> Iterator[None]:
        """Count the bytes of tensors that are summed or spread, and say what it means if another process does not answer."""
        # what a ring sends: to sum or to gather a vector takes twice its size at most
        sizes = [x.numel() * x.element_size() for x in tensors if x.ndim]
        self.num_bytes += sum(2 * (self.size - 1) * size // self.size for size in sizes)
        try:
            yield
        except RuntimeError as error:
            raise GroupError(
                f"Rank {self.rank} of {self.size} waits in vain for another one, which has failed or takes too long: "
                f"{error}. The other one says why. The last checkpoint is complete: with torchrun --max-restarts=3, or "
                f"started again, the training goes on from there."
            ) from error

    def add(self, *tensors: Tensor) -> None:
        """Sum tensors over all processes, in place."""
        if self.size == 1:
            return
        parts = [torch.view_as_real(x) if x.is_complex() else x for x in tensors]
        with self._communicating(*parts):
            for x in parts:
                distributed.all_reduce(x)

    def sum(self, x: Tensor) -> Tensor:
        """Sum a tensor over all processes. Its gradient is the sum of their gradients."""
        return x if self.size == 1 else _Sum.apply(x, self)

    def total(self, x: Tensor) -> Tensor:
        """Sum a tensor over all processes, and leave the gradient of this one's share as it is."""
        if self.size == 1:
            return x
        total = x.detach().clone()
        self.add(total)
        return x + (total - x.detach())

    def largest(self, x: Tensor) -> Tensor:
        """Return the largest numbers of all processes, element by element."""
        if self.size == 1:
            return x
        result = x.clone()
        with self._communicating(result):
            distributed.all_reduce(result, op=distributed.ReduceOp.MAX)
        return result

    def exchange(self, x: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Send some rows of a matrix to each process, and receive some from each.

        :param x: the rows to send, in the order of the processes
        :param sent: the number of rows for each process
        :param received: the number of rows from each process
        :return: the rows received, in the order of the processes
        """
        if self.size == 1:
            return x
        result = x.new_empty(sum(received), *x.shape[1:])
        self.num_bytes += (len(x) - sent[self.rank]) * x[:1].numel() * x.element_size()
        with self._communicating():
            distributed.all_to_all_single(result, x.contiguous(), list(received), list(sent))
        return result

    def moments(self, x: Tensor, weights: Tensor | None = None) -> Moments:
        """Collect the moments of the rows of a matrix that all processes have, each of some rows.

        :param x: shape: (n, d), the matrix
        :param weights: shape: (n,), the weights of the rows
        :return: the moments of all rows
        """
        if self.size == 1:
            return Moments.of(x, weights)
        rows = self.rows(len(x))
        return self.moments_of_parts(x[rows], None if weights is None else weights[rows])

    def moments_of_parts(self, x: Tensor, weights: Tensor | None = None) -> Moments:
        """Collect the moments of the rows of a matrix of which each process has a part.

        :param x: shape: (n, d), the part of this process
        :param weights: shape: (n,), the weights of its rows
        :return: the moments of all rows
        """
        mine = Moments.of(x, weights)
        if self.size == 1:
            return mine
        both = self.sum(torch.cat([mine.second, mine.first[None]]))
        count = torch.tensor(mine.count, dtype=torch.double, device=x.device)
        self.add(count)
        return Moments(count.item(), both[-1], both[:-1])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let what fails in one process fail in all of them, instead of leaving the others waiting."""
        error: Exception | None = None
        try:
            yield
        except Exception as caught:
            error = caught
        reasons = self.all_of(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        for rank, reason in enumerate(reasons):
            if reason is not None:
                raise GroupError(f"Rank {rank} of {self.size} has failed, so none can go on: {reason}")

    def share(self, *tensors: Tensor) -> None:
        """Give all processes the values of the first one, in place."""
        if self.size == 1:
            return
        with self._communicating(*tensors):
            for x in tensors:
                distributed.broadcast(torch.view_as_real(x) if x.is_complex() else x, src=0)

    def same(self, value: T) -> T:
        """Return the value of the first process in all of them."""
        if self.size == 1:
            return value
        values: list[Any] = [value]
        with self._communicating():
            distributed.broadcast_object_list(values, src=0)
        return values[0]

    def all_of(self, value: T) -> list[T]:
        """Return the values of all processes, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._communicating():
            distributed.all_gather_object(values, value)
        return values


@contextmanager
def join(timeout: timedelta) -> Iterator[Group]:
    """Join the other processes, if torchrun has started several, and leave them in the end.

    Each restart has a part of torchrun's store of its own. Otherwise, a process may find the address that another one had
    before it died.

    :param timeout: how long to wait for another process
    :yield: the group
    """
    if not distributed.is_available() or not distributed.is_torchelastic_launched():
        yield Group()
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, rank, size = next(rendezvous("env://", timeout=timeout))
    distributed.init_process_group(
        backend="cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=PrefixStore(f"restart {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store),
        rank=rank,
        world_size=size,
        timeout=timeout,
    )
    try:
        yield Group.current()
    finally:
        distributed.destroy_process_group()


class _Sum(torch.autograd.Function):
    # PyTorch's torch.distributed.nn.functional.all_reduce is deprecated in favor of a private one, and counts no bytes

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        result = x.clone()
        group.add(result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        gradient = grad_outputs[0].clone()
        ctx.group.add(gradient)
        return gradient, None
