"""What a report is made of, before it is Markdown or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """A paragraph. What is between backticks is code."""

    text: str


@dataclass(frozen=True)
class Command:
    """A command to run."""

    text: str


@dataclass(frozen=True)
class Figure:
    """A picture, in one file per format."""

    #: the name of the files, without suffix
    name: str
    #: what is to be seen, for those who cannot see it
    alt: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    #: what to sort by, if it is not the text
    value: float | None = None
    bold: bool = False
    muted: bool = False


@dataclass(frozen=True)
class Table:
    """A table, whose first column names the rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


Block = Text | Command | Figure | Table


@dataclass
class Section:
    """A part of the report."""

    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Report:
    """The whole of it."""

    title: str
    introduction: list[Block]
    sections: list[Section]
