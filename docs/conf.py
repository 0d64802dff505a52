"""Configuration of Sphinx."""

import re
import zlib
from importlib.metadata import version as installed_version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sphinx.application import Sphinx

project = "pykeen-nonsampling"
copyright = "the pykeen-nonsampling maintainers"
release = version = installed_version("pykeen-nonsampling")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.intersphinx", "sphinx.ext.mathjax"]
# a report is included in a page
exclude_patterns = ["_build", "reproduction/report.md"]
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

# Without network, an empty inventory takes the place of each one that cannot be fetched: references to other projects become
# plain text, instead of a warning that fails the build. The directory is removed when the build ends.
_inventories = TemporaryDirectory(prefix="inventories-")
_empty_inventory = Path(_inventories.name, "objects.inv")
_empty_inventory.write_bytes(
    b"# Sphinx inventory version 2\n"
    b"# Project: empty\n"
    b"# Version: 0\n"
    b"# The remainder of this file is compressed using zlib.\n" + zlib.compress(b"")
)
intersphinx_mapping = {
    name: (url, (None, str(_empty_inventory)))
    for name, url in {
        "pykeen": "https://pykeen.readthedocs.io/en/stable/",
        "python": "https://docs.python.org/3/",
        "torch": "https://docs.pytorch.org/docs/stable/",
    }.items()
}
intersphinx_timeout = 5  # seconds
# Always fetch. Sphinx prefers a local inventory to one that it has cached, so a second build would use the empty ones.
intersphinx_cache_limit = 0


def convert_dollar_math(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn the ``$…$`` of docstrings, which may span lines, into reStructuredText's math."""
    text = re.sub(r"(?<!`)\$([^$`]+)\$(?!`)", lambda match: f":math:`{' '.join(match[1].split())}`", "\n".join(lines))
    lines[:] = text.split("\n")


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.connect("autodoc-process-docstring", convert_dollar_math)
