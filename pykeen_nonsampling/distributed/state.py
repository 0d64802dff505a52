"""States of models and optimizers whose entities are divided among processes: put together, and taken apart again.

No process ever has all vectors in memory: the first one writes them to a file, some rows at a time, which is then read like
memory. So a checkpoint is the same, no matter how many processes there were, and any number of processes can go on.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..checkpoints import replacing, temporary_directory
from .model import divided_parameters, find_sharding, unshard_model
from .shards import Sharding

#: A state, as PyTorch's ``state_dict()`` returns it
State: TypeAlias = dict[str, Any]

#: The number of bytes of a process's rows to send at once
BYTES_AT_ONCE = 2**26


def gather_rows(rows: Tensor, sharding: Sharding, path: Path) -> Tensor:
    """Put a matrix together whose rows are divided by entities.

    :param rows: shape: (num_rows, …), the rows of this process
    :param sharding: which process has which entities
    :param path: a file for the result
    :return: shape: (num_entities, …), all rows in their original order, in the first process, as a file that is mapped to
        memory; none in others
    """
    group = sharding.group
    shape = torch.Size([sharding.num_entities if group.is_first else 0, *rows.shape[1:]])
    whole = torch.empty(shape, dtype=rows.dtype)
    if group.is_first:
        whole = torch.from_file(str(path), shared=True, size=shape.numel(), dtype=rows.dtype).view(shape)
    counts = [y - x for x, y in zip(sharding.offsets, sharding.offsets[1:], strict=False)]
    step = max(1, BYTES_AT_ONCE // max(1, rows[:1].numel() * rows.element_size()))
    for start in range(0, max(counts), step):
        # of each process, the rows from start on
        sizes = [max(0, min(step, count - start)) for count in counts]
        sent = [sizes[group.rank]] + [0] * (group.size - 1)
        received = sizes if group.is_first else [0] * group.size
        parts = group.exchange(rows[start : start + step], sent, received).cpu()
        if group.is_first:
            for rank, part in enumerate(parts.split(sizes)):
                whole[rank + group.size * start :: group.size][: len(part)] = part
    return whole


def take_rows(whole: Tensor, sharding: Sharding) -> Tensor:
    """Return the rows of this process, in memory of its own."""
    return whole[sharding.group.rank :: sharding.group.size].clone()


@contextmanager
def whole_states(model: nn.Module, optimizer: torch.optim.Optimizer, sharding: Sharding, directory: Path) -> Iterator[None]:
    """Let ``state_dict()`` of a model and its optimizer return all entities meanwhile, in the first process.

    :param model: the model
    :param optimizer: the optimizer of its parameters
    :param sharding: which process has which entities
    :param directory: where there is room for files
    """
    with temporary_directory(directory) as place, ExitStack() as hooks:
        files = (place / str(i) for i in itertools.count())
        model_state, optimizer_state = _change(
            model, model.state_dict(), optimizer.state_dict(), lambda rows: gather_rows(rows, sharding, next(files))
        )
        hooks.callback(model.register_state_dict_post_hook(lambda _, state, *__: state.update(model_state)).remove)
        hooks.callback(optimizer.register_state_dict_post_hook(lambda *_: optimizer_state).remove)
        yield


def save_whole_model(model: nn.Module, path: Path) -> None:
    """Save a model with all entities, like :meth:`pykeen.pipeline.PipelineResult.save_model`.

    :param model: the model, whose entities are divided among processes, all of which call this
    :param path: the file, which the first one writes
    """
    sharding, divided = find_sharding(model), divided_parameters(model)
    if sharding is None:
        raise ValueError(f"The entities of this {type(model).__name__} are not divided.")
    with temporary_directory(path.parent) as place:
        replaced: dict[int, Any] = {}
        for i, (name, x) in enumerate(model.named_parameters()):
            if name in divided:
                whole = gather_rows(x.data, sharding, place / str(i))
                replaced[id(x)] = nn.Parameter(whole, requires_grad=x.requires_grad)
        if sharding.group.is_first:
            copied = copy.deepcopy(model, replaced)
            unshard_model(copied, sharding.num_entities)
            with replacing(path) as part:
                torch.save(copied, part)


def take_states(checkpoint: State, model: nn.Module, sharding: Sharding) -> None:
    """Replace the states in a checkpoint by the parts that belong to this process.

    :param checkpoint: the checkpoint
    :param model: the model
    :param sharding: which process has which entities
    """
    names = "model_state_dict", "optimizer_state_dict"
    model_state, optimizer_state = (checkpoint[name] for name in names)
    states = _change(model, model_state, optimizer_state, lambda whole: take_rows(whole, sharding))
    checkpoint.update(zip(names, states, strict=True))


def _change(
    model: nn.Module, model_state: State, optimizer_state: State, change: Callable[[Tensor], Tensor]
) -> tuple[State, State]:
    """Change all tensors in the states of a model and its optimizer whose rows are divided."""
    divided = divided_parameters(model)
    # an optimizer knows parameters by their position among those to train
    trained = [name for name, x in model.named_parameters() if x.requires_grad]

    def change_all(state: State, which: Collection[str]) -> State:
        return {key: change(x) if key in which else x for key, x in state.items()}

    def matrices(state: State) -> Collection[str]:
        return [key for key, x in state.items() if isinstance(x, Tensor) and x.ndim > 0]

    by_position = {
        i: change_all(state, matrices(state) if trained[i] in divided else ())
        for i, state in optimizer_state["state"].items()
    }
    return change_all(model_state, divided), {**optimizer_state, "state": by_position}
