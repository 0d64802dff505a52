"""What a training was set up with, as plain data, so that a checkpoint is continued by the same training only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..distributed.shards import Sharding
from ..factorizations.moments import Weights
from ..graph.index import TripleIndex
from ..graph.sides import Side
from ..losses import FactorizedLoss, PykeenLoss, describe, parameters_of

#: Attributes of modules that change during a training, or matter only before it
PASSING = {"training", "updated", "tracked_parameters", "initializer", "reset_parameters"}

#: Factors that spread the digits of numbers
MIX = (0x2545F4914F6CDD1D, 0x1CE4E5B9BF58476D)

#: Numbers that differ by less come from another device
TOLERANCE = 1.0e-5


def plain(value: Any) -> Any:
    """Reduce a value to what JSON can hold, and what is the same in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    if callable(value) and not isinstance(value, nn.Module):
        keywords = getattr(value, "keywords", None)
        return describe(getattr(value, "func", value)) + (f" {plain(keywords)}" if keywords else "")
    return type(value).__name__


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Describe all modules of a model but its loss: their classes, and what they are configured with."""
    description: dict[str, Any] = {}
    for name, module in model.named_modules():
        if name == "loss" or name.startswith("loss."):
            continue
        attributes = {key: value for key, value in vars(module).items() if not key.startswith("_") and key not in PASSING}
        tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
        description[name or "model"] = {
            "class": type(module).__name__,
            **{key: plain(value) for key, value in attributes.items() if not isinstance(value, Tensor)},
            **{key: [str(x.dtype), list(x.shape)] for key, x in tensors.items()},
        }
    return description


def describe_loss(loss: FactorizedLoss) -> dict[str, Any]:
    """Describe a loss: its class, and all its parameters."""
    if isinstance(loss, PykeenLoss):
        return {"class": loss.name, **parameters_of(loss.loss), "modules": describe_model(loss.loss)}
    return {"class": loss.name, **plain(loss.kwargs)}


def describe_graph(index: TripleIndex, sharding: Sharding) -> dict[str, Any]:
    """Describe the triples of a graph: how many there are, and which, no matter how they are divided among processes.

    :param index: the triples of this process, from heads to tails
    :param sharding: which process has which entities
    :return: the description
    """
    summary = torch.stack([_identify(index.triples, sharding).sum(), torch.tensor(len(index), device=index.answers.device)])
    sharding.group.add(summary)
    digest, count = summary.tolist()
    return {
        "entities": index.num_entities,
        "relations": index.num_relations,
        "triples": count,
        "digest": f"{digest % 2**64:016x}",
    }


def _identify(ids: Tensor, sharding: Sharding) -> Tensor:
    """Give triples, or pairs of given entity and relation, numbers that look random: sums of them depend on all."""
    numbers = torch.zeros_like(ids[:, 0])
    for column, x in enumerate(ids.unbind(dim=-1)):
        numbers ^= x if column == 1 else sharding.original(x)
        for shift, factor in ((32, MIX[0]), (29, MIX[1])):
            # integers overflow, and the sign is shifted in, which does no harm
            numbers = (numbers ^ (numbers >> shift)) * factor + column
    return numbers ^ (numbers >> 31)


def describe_weights(all_triples: Weights, sides: Sequence[Side], sharding: Sharding) -> list[Any]:
    """Describe the weights of all triples, and of each side's, by sums that depend on what they belong to.

    :param all_triples: the weights of all triples; of entities, those of this process
    :param sides: the sides
    :param sharding: which process has which entities
    :return: the description
    """
    device = sides[0].index.answers.device
    entities = sharding.original(torch.arange(sharding.mine.start, sharding.mine.stop, device=device))

    def summarize(weights: Tensor | float | None, keys: Tensor, divided: bool = True) -> Any:
        if not isinstance(weights, Tensor):
            return weights
        values = weights.detach().double().flatten()
        sums = torch.stack([values.sum(), ((1 + keys % 97) * values).sum()])
        if divided:
            sharding.group.add(sums)
        return sums.tolist()

    relations = all_triples.relations
    description = [
        summarize(all_triples.heads, entities),
        None if relations is None else summarize(relations, torch.arange(len(relations), device=device), divided=False),
        summarize(all_triples.tails, entities),
    ]
    for side in sides:
        weights = side.weights
        triples, queries = (_identify(x, sharding) for x in (side.index.triples, side.index.pairs))
        description += [
            summarize(weights.positives, triples),
            summarize(weights.queries, queries),
            summarize(weights.candidates, entities),
            summarize(weights.answers, triples),
        ]
    return description


def differences(there: Any, here: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Compare two descriptions.

    :param there: the one from a checkpoint
    :param here: the one of this training
    :param name: what is described
    :yield: the name of each part that differs, and what it is there and here
    """
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in {**there, **here}:
            yield from differences(there.get(key), here.get(key), f"{name}.{key}" if name else key)
    elif isinstance(there, float | int) and isinstance(here, float | int):
        if not math.isclose(there, here, rel_tol=TOLERANCE):
            yield name, there, here
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for x, y in zip(there, here, strict=True):
            if any(True for _ in differences(x, y)):
                yield name, there, here
                return
    elif there != here:
        yield name, there, here
