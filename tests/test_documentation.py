"""What the documentation shows, works."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from runpy import run_path
from textwrap import dedent
from typing import NamedTuple

import click
import pytest
from commands import ROOT, run, run_python

import pykeen_nonsampling
from benchmarks.__main__ import main as benchmarks
from pykeen_nonsampling import cli, defaults
from pykeen_nonsampling.factorizations import factorization_resolver
from pykeen_nonsampling.losses import constants

FENCE = re.compile(r"^( *`{3,})(\S*)[^\n]*\n(.*?)^\1$", flags=re.MULTILINE | re.DOTALL)
PAGES = {str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


RESULTS = ROOT / "docs" / "benchmark"
PACKAGE = Path(pykeen_nonsampling.__file__).parent
#: A reference in Markdown or a docstring, as in {class}`~torch.Tensor` or :class:`a tensor <torch.Tensor>`
REFERENCE = re.compile(r"(?:\{|:)(?:attr|class|func|meth|mod)(?:\}|:)`(?:[^`<]*<|~)?((?:pykeen|torch)[\w.]*)>?`")
#: A command of this project, and its arguments
COMMAND = re.compile(
    r"(?:\$ |[A-Z_]+=\S+ )?(?:pykeen-nonsampling|(?:torchrun .*|python) -m (pykeen_nonsampling|benchmarks))(?: (.*))?"
)
GROUPS = {"benchmarks": benchmarks, "pykeen_nonsampling": cli.main, None: cli.main}
#: The page whose commands use what its code has written
TUTORIAL = "docs/tutorial.md"


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    text: str
    #: the number of lines before it
    line: int


def blocks(path: Path, *languages: str) -> list[Block]:
    """Find the blocks of code on a page."""
    page = path.read_text(encoding="utf-8")
    found = [Block(m[2], dedent(m[3]), page.count("\n", 0, m.start(3))) for m in FENCE.finditer(page)]
    return [block for block in found if block.language in languages]


def commands(path: Path) -> list[Block]:
    """Find the blocks of commands that PyKEEN or this package provides."""
    return [block for block in blocks(path, "shell", "bash") if re.match(r"pykeen(-nonsampling)? ", block.text)]


def run_commands(page: str, directory: Path) -> None:
    """Run the commands of a page one after the other."""
    for block in commands(PAGES[page]):
        for line in block.text.replace("\\\n", " ").splitlines():
            name, *arguments = shlex.split(line)
            if name == "pykeen-nonsampling":
                run_python("-m", "pykeen_nonsampling", *arguments, cwd=directory)
            else:
                run(name, *arguments, cwd=directory)


@pytest.mark.parametrize("page", [name for name, path in PAGES.items() if blocks(path, "python")])
def test_python(page: str, tmp_path: Path) -> None:
    """The blocks of a page run one after the other, and print what the page says they print."""
    source = ""
    for block in blocks(PAGES[page], "python"):
        # at the line that it has on the page, to which an error then points
        source += "\n" * (block.line - source.count("\n")) + block.text
    (tmp_path / "page.py").write_text(source, encoding="utf-8")
    printed = run_python("page.py", cwd=tmp_path)
    for block in blocks(PAGES[page], "output"):
        assert block.text in printed
    if page == TUTORIAL:
        run_commands(page, tmp_path)


@pytest.mark.parametrize("page", [name for name, path in PAGES.items() if commands(path) and name != TUTORIAL])
def test_commands(page: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    run_commands(page, tmp_path)


def named_commands(path: Path) -> Iterator[tuple[click.Command, list[str]]]:
    """Find the commands of this project that a page names, with their arguments, in blocks or within a line."""
    page = re.sub(r" *\\\n *", " ", path.read_text(encoding="utf-8"))
    for line in (line.strip() for part in page.split("\n") for line in (part, *re.findall("`([^`]+)`", part))):
        if (command := COMMAND.fullmatch(line)) and "…" not in line:
            yield GROUPS[command[1]], shlex.split(command[2] or "")


@pytest.mark.parametrize("page", [name for name, path in PAGES.items() if any(named_commands(path))])
def test_commands_exist(page: str) -> None:
    """Those that take too long to run here have at least the names and options of what there is."""
    for command, arguments in named_commands(PAGES[page]):
        while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            name, *arguments = arguments
            found = command.get_command(click.Context(command), name)
            assert found is not None, f"{page} names {name}, which does not exist"
            command = found
        # names are checked, but values are not: files may be missing
        command.make_parser(click.Context(command)).parse_args(arguments)


def test_layers_are_current() -> None:
    """Else run ``python docs/layers.py``."""
    pytest.importorskip("tomllib", reason="needs Python 3.11")
    for path, content in run_path(str(ROOT / "docs" / "layers.py"))["files"]().items():
        assert path.read_text(encoding="utf-8") == content, f"{path} is not current: run python docs/layers.py"


@pytest.mark.parametrize("page", PAGES)
def test_json(page: str) -> None:
    for block in blocks(PAGES[page], "json"):
        json.loads(block.text)


@pytest.mark.parametrize(
    ("name", "table"), [("defaults", defaults.format_markdown()), ("weights", constants.format_markdown())]
)
def test_tables_of_defaults_are_current(name: str, table: str) -> None:
    page = PAGES["docs/usage.md"].read_text(encoding="utf-8")
    written = page.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]
    assert written.strip() == table, f"write into docs/usage.md:\n{table}"


DEFAULTS = ["defaults", "report", "--file", str(RESULTS / "defaults.jsonl")]
EXPERIMENTS = [str(path) for path in sorted((ROOT / "pykeen_nonsampling" / "experiments").glob("*/*.json"))]


@pytest.mark.parametrize(
    ("page", "name", "command"),
    [
        ("README.md", "summary", ["accuracy", "report", "--summary", *EXPERIMENTS]),
        ("docs/benchmarks.md", "cross-entropy", ["tables", "cross_entropy", "--file", str(RESULTS / "cross_entropy.json")]),
        ("docs/benchmarks.md", "times", ["tables", "speed", "--file", str(RESULTS / "benchmark.json")]),
        ("docs/choosing.md", "defaults", DEFAULTS),
        ("docs/choosing.md", "squared", [*DEFAULTS, "--loss", "squared"]),
        ("docs/choosing.md", "results", ["accuracy", "report", *EXPERIMENTS]),
        ("docs/tuning.md", "searches", ["tuning", "report", "--file", str(RESULTS / "tuning.jsonl")]),
        ("docs/promises.md", "estimates", ["memory", "report"]),
        ("docs/scaling.md", "memory", ["shards", "report"]),
        ("docs/scaling.md", "projections", ["shards", "project"]),
        ("docs/scaling.md", "ways", ["tables", "ranks"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tables_of_results_are_current(page: str, name: str, command: list[str], tmp_path: Path) -> None:
    printed = run_python("-m", "benchmarks", *command, cwd=tmp_path)
    table, _, summary = printed.strip().partition("\n\n")
    text = PAGES[page].read_text(encoding="utf-8")
    written = text.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]
    assert written.strip() == table, f"write into {page}:\n{table}"
    for share in re.findall(r"defaults of the package reach ([\d.]+)% on average", summary):
        assert f"{share} %" in text


def test_output_is_that_of_python() -> None:
    for name, path in PAGES.items():
        assert not blocks(path, "output") or blocks(path, "python"), f"{name} shows the output of nothing"


def test_reference_is_complete() -> None:
    shipped = {cls.__name__ for cls in factorization_resolver if cls.__module__.startswith("pykeen_nonsampling.")}
    reference = PAGES["docs/reference.md"].read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. \w+:: pykeen_nonsampling\.(?:\w+\.)*(\w+)$", reference, re.MULTILINE)
    assert {*pykeen_nonsampling.__all__, *shipped} <= set(documented)


def test_references_lead_somewhere() -> None:
    """Sphinx takes references to other projects for plain text, if it cannot find them."""
    texts = [path.read_text(encoding="utf-8") for path in (*PAGES.values(), *PACKAGE.rglob("*.py"))]
    targets = {name for text in texts for name in REFERENCE.findall(text)}
    assert {name.partition(".")[0] for name in targets} == {"pykeen", "pykeen_nonsampling", "torch"}
    for name in sorted(targets):
        assert resolve_name(name) is not None


def test_readme_names_the_command_that_continuous_integration_runs() -> None:
    section = re.search(
        r"^## Tests$.*?(?=^## |\Z)", PAGES["README.md"].read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert section is not None, "README.md has no section 'Tests'"
    command = FENCE.search(section[0])
    assert command is not None
    assert command[2] in {"shell", "bash"}
    assert (ROOT / ".ci" / "run").read_text().strip().splitlines()[-1] == command[3].strip()
