"""Configuration of Sphinx."""

import re
from importlib.metadata import version as installed_version
from typing import Any

from sphinx.application import Sphinx

project = "pykeen-nonsampling"
copyright = "the pykeen-nonsampling maintainers"
release = version = installed_version("pykeen-nonsampling")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "pykeen-nonsampling"

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

autoclass_content = "both"
# a method without a docstring has the meaning that its base class, of this package or PyKEEN's, documents
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
# PyKEEN's type hints are unions of unions, which would hide the parameters
autodoc_typehints = "none"


def convert_dollar_math(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the ``$…$`` of docstrings, which may span lines, into reStructuredText's math."""
    text = re.sub(r"(?<!`)\$([^$`]+)\$(?!`)", lambda match: f":math:`{' '.join(match[1].split())}`", "\n".join(lines))
    lines[:] = text.split("\n")


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.connect("autodoc-process-docstring", convert_dollar_math)
