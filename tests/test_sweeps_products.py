"""Products of queries and keys, the fastest that work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pykeen_nonsampling.sweeps.products import GatherProducts, SparseProducts, products_for


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_fast_products_where_the_build_has_them(dtype: torch.dtype) -> None:
    products = products_for(torch.device("cpu"), dtype)
    assert isinstance(products, SparseProducts if torch.backends.mkl.is_available() else GatherProducts)


@pytest.mark.parametrize("error", [RuntimeError("requires MKL"), NotImplementedError("no such operator on this device")])
def test_fallback_where_it_has_not(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(torch.sparse, "sampled_addmm", fail)
    assert isinstance(products_for.__wrapped__(torch.device("cpu"), torch.float), GatherProducts)


def test_fallback_where_they_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparseProducts, "scores", lambda *args: torch.zeros(3))
    assert isinstance(products_for.__wrapped__(torch.device("cpu"), torch.float), GatherProducts)
