"""A report as one HTML file that needs nothing else: style, script and pictures are in it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from .content import Block, Cell, Command, Figure, Report, Table, Text


def write_html(report: Report, directory: Path) -> str:
    """Write a report.

    :param report: the report
    :param directory: where the pictures are
    :return: the page
    """
    style, script = ((files(__package__) / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    contents = "".join(f'<li><a href="#{_anchor(x.title)}">{escape(x.title)}</a></li>' for x in report.sections)
    sections = "".join(
        f'<section id="{_anchor(section.title)}"><h2>{escape(section.title)}</h2>'
        f"{''.join(_blocks(section.blocks, directory))}</section>\n"
        for section in report.sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(report.title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{style}</style>\n</head>\n<body>\n"
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav>\n'
        f"<main>\n<h1>{escape(report.title)}</h1>\n{''.join(_blocks(report.introduction, directory))}"
        f'<p class="muted">Click on the head of a column to sort a table by it.</p>\n{sections}</main>\n'
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def _text(text: str) -> str:
    """Escape a text, but for code and links."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\[([^\]]+)\]\((https://[^)\s]+)\)", r'<a href="\2">\1</a>', text)


def _blocks(blocks: Sequence[Block], directory: Path) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Text):
            yield f"<p>{_text(block.text)}</p>\n"
        elif isinstance(block, Command):
            yield f"<pre><code>{escape(block.text)}</code></pre>\n"
        elif isinstance(block, Figure):
            picture = base64.b64encode((directory / f"{block.name}.svg").read_bytes()).decode()
            yield f'<figure><img src="data:image/svg+xml;base64,{picture}" alt="{escape(block.alt)}"></figure>\n'
        else:
            yield _table(block)


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col"><button type="button">{_text(name)}</button></th>' for name in table.columns)
    body = "".join(f"<tr>{_row(row)}</tr>\n" for row in table.rows)
    caption = f"<caption>{_text(table.caption)}</caption>" if table.caption else ""
    # the element that scrolls must be reachable with the keyboard
    return (
        f'<div class="table" tabindex="0"><table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>'
        f"</div>\n"
    )


def _row(row: Sequence[Cell]) -> str:
    return "".join(_cell(cell, "th" if i == 0 else "td") for i, cell in enumerate(row))


def _cell(cell: Cell, tag: str) -> str:
    scope = ' scope="row"' if tag == "th" else ""
    value = "" if cell.value is None else f' data-value="{cell.value:.10g}"'
    classes = " ".join(name for name, given in (("muted", cell.muted), ("number", cell.value is not None)) if given)
    classes = f' class="{classes}"' if classes else ""
    text = _text(cell.text)
    return f"<{tag}{scope}{value}{classes}>{f'<strong>{text}</strong>' if cell.bold else text}</{tag}>"
