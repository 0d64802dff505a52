"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .content import Block, Cell, Command, Figure, Report, Table, Text


def write_markdown(report: Report) -> str:
    """Write a report, with pictures in files beside it. Italics stand for what is gray in HTML."""
    parts = [f"# {report.title}", *_blocks(report.introduction)]
    for section in report.sections:
        parts += [f"## {section.title}", *_blocks(section.blocks)]
    return "\n\n".join(parts) + "\n"


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Text):
            yield block.text
        elif isinstance(block, Command):
            yield f"    {block.text}"
        elif isinstance(block, Figure):
            yield f"![{block.alt}]({block.name}.png)"
        else:
            yield _table(block)


def _table(table: Table) -> str:
    lines = [f"| {' | '.join(table.columns)} |", "|---" * len(table.columns) + "|"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in table.rows]
    caption = f"*{table.caption}*\n\n" if table.caption else ""
    return caption + "\n".join(lines)


def _cell(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|")
    mark = "**" if cell.bold else "*" if cell.muted else ""
    return f"{mark}{text.replace('*', chr(92) + '*')}{mark}" if text else ""
