"""The report as a page: the ``content``, laid out by the templates of both formats.

What comes from Python is plain text: names of entities are read from users' files, and must become neither markup nor links.
Both environments escape it, so that only what stands in a template is markup.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

#: What Markdown may take for markup, with the extensions of GitHub and MyST; a colon only where an address may go on
SPECIAL = re.compile(r"[\\`*_\[\]<>&|~$]|:(?=\S)|(?<=www)\.")


def render_markdown(content: Mapping[str, Any]) -> str:
    """Lay out a report as Markdown, with pictures in files beside it.

    :param content: what :func:`benchmarks.reproduction.content.collect` returns
    """
    text = _environment(finalize=escape_markdown).get_template("report.md.jinja").render(content)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def render_html(content: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    """Lay out a report as one HTML file that needs nothing else: style, script and pictures are in it.

    :param content: what :func:`benchmarks.reproduction.content.collect` returns
    :param pictures: the pictures as SVG, by name
    """
    encoded = {name: base64.b64encode(picture).decode() for name, picture in pictures.items()}
    return _environment().get_template("report.html.jinja").render(content, pictures=encoded)


def escape_markdown(value: Any) -> Any:
    """Escape what is not markup already, and put it on one line, as a cell of a table needs it."""
    return value if isinstance(value, Markup) else Markup(SPECIAL.sub(r"\\\g<0>", re.sub(r"\s", " ", str(value))))  # noqa: S704


def _environment(**kwargs: Any) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **kwargs,
    )
    environment.filters["anchor"] = lambda title: re.sub(r"\W+", "-", title.lower()).strip("-")
    return environment
