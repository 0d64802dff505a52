"""Configuration of Sphinx."""

import re
import zlib
from importlib.metadata import version as installed_version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import latex2mathml.converter
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator

logger = getLogger(__name__)

project = "pykeen-nonsampling"
copyright = "the pykeen-nonsampling maintainers"
release = version = installed_version("pykeen-nonsampling")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.intersphinx"]
# a report is included in a page
exclude_patterns = ["_build", "reproduction/*/report.md"]
html_theme = "furo"
html_title = "pykeen-nonsampling"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Formulas become MathML, which browsers draw themselves, so that pages need neither
# network nor scripts. MathJax would be several MB in the repository or a download,
# pictures would need LaTeX, and the converter of docutils is provisional and does not
# know \Big.
html_math_renderer = "mathml"

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3

autoclass_content = "both"
# a method without a docstring has the meaning that its base class documents
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
# PyKEEN's type hints are unions of unions, which would hide the parameters
autodoc_typehints = "none"

# Without network, an empty inventory takes the place of each that cannot be fetched:
# references to other projects become plain text, instead of a warning that fails the
# build. The directory is removed when the build ends.
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
# Always fetch. Sphinx prefers a local inventory to one that it has cached, so a second
# build would use the empty ones.
intersphinx_cache_limit = 0


def convert_dollar_math(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Turn the ``$…$`` of docstrings, which may span lines, into Sphinx's math."""
    text = re.sub(
        r"(?<!`)\$([^$`]+)\$(?!`)",
        lambda match: f":math:`{' '.join(match[1].split())}`",
        "\n".join(lines),
    )
    lines[:] = text.split("\n")


def convert_formula(latex: str, display: str) -> str:
    """Convert a formula to MathML."""
    # the converter knows no names of brackets after \Big
    for name, bracket in ((r"\langle", "⟨"), (r"\rangle", "⟩")):
        latex = latex.replace(rf"\Big{name}", rf"\Big{bracket}")
    formula = latex2mathml.converter.convert(latex, display=display)
    # it takes operators, which have space around them, for letters
    formula = re.sub("<mi>([;:]|&#x029F5;)</mi>", r"<mo>\1</mo>", formula)
    # and bars for operators, although they are brackets
    bar = r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'
    bars = '<mo(?: fence="false")?(?: stretchy="false")?>(&#x0007C;|&#x02016;)</mo>'
    formula = re.sub(bars, bar, formula)
    if "\\" in formula:  # it keeps what it does not know
        logger.warning("This formula is not fully converted to MathML: %s", latex)
    return formula


def write_formula(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(convert_formula(node.astext(), display="inline"))
    raise nodes.SkipNode


def write_displayed_formula(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, in a box."""
    formula = convert_formula(node.astext(), display="block")
    self.body.append(f'<div class="formula">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.connect("autodoc-process-docstring", convert_dollar_math)
    app.add_html_math_renderer(
        "mathml", (write_formula, None), (write_displayed_formula, None)
    )
