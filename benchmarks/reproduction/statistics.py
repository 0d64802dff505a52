"""Tables of what has been done: means, spreads, paired tests and speed-ups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from . import paper
from .plan import LOOPS, SAMPLED
from .storage import Record

#: The columns that name a cell of the paper's tables
CELL = ["dataset", "model", "loop"]


def as_frame(records: Iterable[Record]) -> pd.DataFrame:
    """Return one row per training: what was run, and what came out.

    Those that failed have no metrics, but a reason.
    """
    rows = [
        {
            **{name: value for name, value in record.run.items() if name not in ("kind", "epochs", "query")},
            "planned_epochs": record.run["epochs"],
            **{name: value for name, value in record.result.items() if not isinstance(value, list)},
        }
        for record in records
    ]
    columns = [
        *CELL,
        "seed",
        "start",
        "dim",
        "planned_epochs",
        *paper.REPORTED_METRICS,
        "seconds",
        "epochs",
        "stopped",
        "ranked",
        "failure",
    ]
    frame = pd.DataFrame(rows)
    return frame.reindex(columns=[*frame.columns, *(name for name in columns if name not in frame.columns)])


def paired_test(these: Sequence[float], those: Sequence[float]) -> float:
    """Return the p-value of a paired t-test, two-sided: how likely such a difference is if there is none.

    :param these: the values of one method, by seed
    :param those: the values of the other one, of the same seeds
    :return: the p-value; NaN if there are fewer than two pairs, or all are equal
    """
    differences = np.subtract(these, those)
    if len(differences) < 2 or not differences.any():
        return math.nan
    if np.ptp(differences) == 0:
        # always the same difference
        return 0.0
    return float(stats.ttest_rel(these, those).pvalue)


def summarize(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard deviation of each metric over seeds, and the p-value beside sampling.

    :param frame: the runs, of one dimension and weight
    :return: one row per dataset, model and training loop, in the order of the runs
    """
    rows = []
    for key, runs in frame.dropna(subset=["MRR"]).groupby(CELL, sort=False):
        row: dict[str, Any] = dict(zip(CELL, key, strict=True))
        row |= {"seeds": len(runs), "dim": runs["dim"].iloc[0], "planned_epochs": runs["planned_epochs"].iloc[0]}
        row |= {"epochs": runs["epochs"].mean(), "stopped": bool(runs["stopped"].any()), "ranked": runs["ranked"].iloc[0]}
        row |= {"seconds": runs["seconds"].mean(), "seconds std": runs["seconds"].std()}
        others = frame[(frame["dataset"] == key[0]) & (frame["model"] == key[1]) & (frame["loop"] == SAMPLED)]
        pairs = runs.merge(others, on="seed", suffixes=("", " sampled")).dropna(subset=["MRR", "MRR sampled"])
        for metric in paper.REPORTED_METRICS:
            row |= {metric: runs[metric].mean(), f"{metric} std": runs[metric].std()}
            if key[2] != SAMPLED:
                row[f"{metric} p"] = paired_test(pairs[metric], pairs[f"{metric} sampled"])
        rows.append(row)
    return pd.DataFrame(rows)


def spread(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how far the MRR of seeds is apart, for each training loop."""
    rows = []
    for key, runs in frame.dropna(subset=["MRR"]).groupby(CELL, sort=False):
        values = runs["MRR"]
        row: dict[str, Any] = dict(zip(CELL, key, strict=True))
        row |= {"seeds": len(values), "MRR": values.mean(), "std": values.std(), "range": values.max() - values.min()}
        row |= {"relative std": values.std() / values.mean(), "stopped": bool(runs["stopped"].any())}
        rows.append(row)
    return pd.DataFrame(rows)


def speed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the seconds per epoch, medians over seeds, and how many times as long an epoch with sampling takes.

    :param frame: the runs, of one dimension and weight
    :return: one row per dataset and model
    """
    done = frame.dropna(subset=["MRR"])
    done = done.assign(per_epoch=done["seconds"] / done["epochs"])
    rows = []
    for (dataset, model), runs in done.groupby(["dataset", "model"], sort=False):
        row: dict[str, Any] = {"dataset": dataset, "model": model}
        for loop in LOOPS:
            some = runs[runs["loop"] == loop]
            row |= {f"{loop} s": some["per_epoch"].median(), f"{loop} epochs": some["epochs"].mean()}
        for loop in LOOPS[1:]:
            row[f"{loop} speed-up"] = row[f"{SAMPLED} s"] / row[f"{loop} s"]
        sampled, without = paper.SECONDS.get(dataset, {}).get(model, (math.nan, math.nan))
        row |= {"paper sampled s": sampled / paper.EPOCHS, "paper s": without / paper.EPOCHS}
        row["paper speed-up"] = sampled / without
        rows.append(row)
    return pd.DataFrame(rows)
