"""Draw the layers of the code, and list what is in them.

    python docs/layers.py

writes the drawings and the tables of docs/layout.md. The layers are those that
import-linter checks, from pyproject.toml, and the descriptions are the first sentences
of the modules. It needs Python 3.11, for ``tomllib``.
"""

import ast
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

import tomllib

DOCS = Path(__file__).parent
ROOT = DOCS.parent

#: pixels: a drawing is not wider than this, so that it can be read on a phone
WIDTH, HEIGHT, GAP = 480, 34, 12


def contracts() -> Iterator[tuple[str, list[list[str]]]]:
    """Read the layers of each package, the highest one first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        (package,) = contract["containers"]
        yield package, [layer.split(" | ") for layer in contract["layers"]]


def describe(package: str, module: str) -> str:
    """Find the first paragraph of a module's docstring, as Markdown."""
    path = ROOT / package.replace(".", "/") / module
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if text is None:
        raise ValueError(f"{path} has no docstring. Say in one sentence what is in it.")
    first = " ".join(text.partition("\n\n")[0].split())
    first = re.sub(r":(\w+):`", r"{\1}`", first.replace("``", "`"))
    return first.replace(r"\|", r"\Vert ")  # a bar would end the cell


def draw(layers: list[list[str]]) -> str:
    """Draw layers on top of each other, each with its modules side by side."""
    height = len(layers) * (HEIGHT + GAP) + GAP
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#f4f6f8"/>',
        '<g font-family="monospace" font-size="14" text-anchor="middle" fill="#123">',
    ]
    right = WIDTH - 40  # the rest is for the arrow
    for i, modules in enumerate(layers):
        top = GAP + i * (HEIGHT + GAP)
        width = (right - GAP) / len(modules)
        for j, module in enumerate(modules):
            left = GAP + j * width
            lines.append(
                f'<rect x="{left:.1f}" y="{top}" width="{width - 6:.1f}" '
                f'height="{HEIGHT}" rx="4" fill="#cfe2f3" stroke="#5b7f9e"/>'
            )
            x, y = left + (width - 6) / 2, top + HEIGHT / 2 + 5
            lines.append(f'<text x="{x:.1f}" y="{y:g}">{escape(module)}</text>')
    x, end = right + 14, height - GAP
    lines += [
        "</g>",
        f'<path d="M{x} {GAP}V{end}m-5 -9l5 9l5 -9" fill="none" stroke="#5b7f9e"/>',
        f'<text transform="translate({x + 9} {height / 2:g}) rotate(90)" fill="#123" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">imports</text>',
        "</svg>\n",
    ]
    return "\n".join(lines)


def tabulate(package: str, layers: list[list[str]]) -> str:
    """List the modules from the ground up."""
    lines = ["| module | contains |", "|---|---|"]
    for modules in reversed(layers):
        lines += [f"| `{module}` | {describe(package, module)} |" for module in modules]
    return "\n".join(lines)


def files() -> dict[Path, str]:
    """Make the content of all files."""
    page = DOCS / "layout.md"
    contents = {page: page.read_text(encoding="utf-8")}
    for package, layers in contracts():
        name = package.rpartition(".")[2]
        contents[DOCS / "layers" / f"{name}.svg"] = draw(layers)
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = contents[page].partition(begin)
        after = rest.partition(end)[2]
        table = tabulate(package, layers)
        contents[page] = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return contents


if __name__ == "__main__":
    for path, content in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
