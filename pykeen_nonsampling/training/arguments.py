"""What a training loop refuses, before it does anything."""

from __future__ import annotations

from typing import Any

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.models import ERModel
from pykeen.sampling import NegativeSampler

from ..validation import as_integer, as_number

#: The precisions that the sums over all triples are exact in
DTYPES = (torch.float32, torch.float64)


def check_numbers(model: ERModel, dtype: torch.dtype) -> None:
    """Refuse models whose parameters have no values, or not enough digits."""
    if model.device.type == "meta":
        raise ValueError(
            f"{type(model).__name__} is on the device 'meta', where tensors have no values to train. Move it to another "
            f"one, e.g. with device='cpu'."
        )
    if dtype not in DTYPES:
        raise ValueError(
            f"{type(model).__name__} has parameters of {dtype}, which is not precise enough: the cost of negatives is a "
            f"difference of sums over all triples. Use torch.float32, e.g. with model.float()."
        )


def check_negative_sampler(negative_sampler: HintOrType[NegativeSampler], negative_sampler_kwargs: OptionalKwargs) -> None:
    """Refuse a negative sampler."""
    if negative_sampler is None and not negative_sampler_kwargs:
        return
    raise ValueError(
        f"{negative_sampler=} with {negative_sampler_kwargs=} does not apply here: this loop trains on every negative "
        f"triple, so there is nothing to sample. Remove it, or use training_loop='slcwa'."
    )


def check_training_arguments(
    num_entities: int,
    *,
    num_epochs: int,
    batch_size: int | None = None,
    sub_batch_size: int | None = None,
    slice_size: int | None = None,
    label_smoothing: float = 0.0,
    sampler: str | None = None,
    **_kwargs: Any,
) -> None:
    """Refuse arguments of :meth:`TrainingLoop.train` that are out of range, or have no meaning here."""
    if slice_size is not None:
        raise ValueError(
            f"{slice_size=} does not apply here: this loop scores no candidates that could be sliced. Remove it; to limit "
            f"the memory, set sub_batch_size instead."
        )
    if sampler is not None:
        raise ValueError(
            f"{sampler=} does not apply here: this loop trains on the whole graph, so there is no subgraph to sample. "
            f"Remove it."
        )
    as_integer("num_epochs", num_epochs, 200, least=0, otherwise=", which is epochs=200 for pipeline()")
    for name, size in (("batch_size", batch_size), ("sub_batch_size", sub_batch_size)):
        if size is not None:
            as_integer(name, size, 1024, otherwise=", or leave it out to train on the whole graph")
    as_number("label_smoothing", label_smoothing, 0.1, least=0, below=1)
    if label_smoothing and num_entities < 2:
        raise ValueError(f"{label_smoothing=} is spread over all other entities, but there is only one. Remove it.")
