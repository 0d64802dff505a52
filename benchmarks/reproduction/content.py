"""What the templates of a report lay out: the content of all of its sections, and the commands that made them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from . import paper, sections
from .examples import UNKNOWN
from .plan import PRESETS, REPORT_PARTS
from .results import Results

TITLE = "Efficient non-sampling knowledge graph embedding, reproduced"

#: The options that change a preset, by its field
OPTIONS: Mapping[str, str] = {
    "datasets": "--dataset",
    "models": "--model",
    "seeds": "--seeds",
    "dim": "--dim",
    "epochs": "--epochs",
    "budget": "--budget",
}


def collect(results: Results) -> dict[str, Any]:
    """Collect all that the templates of a report lay out.

    :param results: what has been done
    :return: the variables of the templates; a part that was not run is None
    """
    makers: Mapping[str, Callable[[Results], dict[str, Any]]] = {
        "accuracy": sections.accuracy,
        "shipped": sections.shipped,
        "stability": sections.stability,
        "time": sections.time,
        "dimension": partial(sections.sweep, part="dimension"),
        "weight": partial(sections.sweep, part="weight"),
        "examples": sections.examples,
        "quality": sections.quality,
    }
    settings = results.storage.settings
    commands = {part: write_command(settings, f"--part {part}") for part in REPORT_PARTS}
    commands["examples"] = " ".join([commands["examples"], *write_queries(results)])
    titles = {name: part.title for name, part in REPORT_PARTS.items()}
    return {
        "title": TITLE,
        "headings": {"overview": "What was run", **titles, "settings": "Settings and machine"},
        "paper": paper,
        "preset": results.preset,
        "significant": sections.SIGNIFICANT,
        "commands": {**commands, "all": write_command(settings)},
        "overview": sections.overview(results),
        "parts": {part: make(results) if results.done(part) else None for part, make in makers.items()},
        "settings_tables": list(sections.settings_tables(results)),
    }


def write_command(settings: Mapping[str, Any], *more: str) -> str:
    """Write the command for settings, with the options in which they differ from their preset."""
    words = ["python -m benchmarks reproduce", f"--preset {settings['preset']}"]
    preset = PRESETS[settings["preset"]]
    for name, option in OPTIONS.items():
        value, usual = settings[name], getattr(preset, name)
        if isinstance(value, list):
            words += [f"{option} {x}" for x in value] if value != list(usual) else []
        elif value != usual:
            words.append(f"{option} {value:g}")
    return " ".join([*words, *more])


def write_queries(results: Results) -> list[str]:
    """Write the options for the queries of the examples."""
    queries = [query for some in results.queries.values() for query in some]
    return [f"--query {' '.join(shlex.quote(UNKNOWN if x is None else x) for x in query)}" for query in queries]
