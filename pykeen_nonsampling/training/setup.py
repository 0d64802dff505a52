"""What a training was set up with, as plain data, so that a checkpoint is continued by the same training only."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..losses import describe
from ..moments import Weights
from ..triples import Side, TripleIndex

__all__ = [
    "describe_graph",
    "describe_model",
    "describe_weights",
    "differences",
    "plain",
]

#: Attributes of modules that change during a training, or matter only before it
PASSING = {"training", "updated", "tracked_parameters", "initializer"}

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


def describe_graph(index: TripleIndex) -> dict[str, Any]:
    """Describe the triples of a graph: how many there are, and which."""
    digest = hashlib.sha256()
    for x in (index.pairs, index.offsets, index.answers):
        digest.update(x.cpu().numpy().tobytes())
    return {
        "entities": index.num_entities,
        "relations": index.num_relations,
        "triples": len(index),
        "digest": digest.hexdigest()[:16],
    }


def describe_weights(all_triples: Weights, sides: Sequence[Side]) -> list[Any]:
    """Describe the weights of all triples, and of each side's, by sums that depend on their order."""
    weights: list[Any] = [all_triples.heads, all_triples.relations, all_triples.tails]
    for x in (side.weights for side in sides):
        weights += [x.positives, x.queries, x.candidates, x.answers, None if x.ranges is None else x.ranges.weights]
    return [_summarize(x) if isinstance(x, Tensor) else x for x in weights]


def _summarize(weights: Tensor) -> list[float]:
    values = weights.detach().double().flatten()
    positions = 1 + torch.arange(len(values), device=values.device) % 97
    return [float(values.sum()), float((positions * values).sum())]


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
