"""Which metrics are reported, and what PyKEEN calls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: From the names of metrics in tables and files to those in PyKEEN
METRICS: Mapping[str, str] = {
    "MRR": "both.realistic.inverse_harmonic_mean_rank",
    "Hits@1": "both.realistic.hits_at_1",
    "Hits@3": "both.realistic.hits_at_3",
    "Hits@10": "both.realistic.hits_at_10",
    "MR": "both.realistic.arithmetic_mean_rank",
}


def get_metrics(result: Any, names: Iterable[str] = METRICS) -> dict[str, float]:
    """Return some metrics of a pipeline's or an evaluator's result."""
    return {name: float(result.get_metric(METRICS[name])) for name in names}
