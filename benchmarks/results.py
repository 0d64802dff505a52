"""The results that the documentation shows: files in docs/benchmark, most with one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

RESULTS = Path(__file__).parents[1] / "docs" / "benchmark"


def file_option(name: str) -> Callable[[Any], Any]:
    """Add an option for a file of results, with the one of this name as the default."""
    kind, default = click.Path(dir_okay=False, path_type=Path), RESULTS / name
    return click.option("--file", type=kind, default=default, show_default=True, help="The file for results.")


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Read the results so far."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def add_row(file: Path, row: Mapping[str, Any]) -> None:
    """Add a result."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row, ensure_ascii=False) + "\n")
