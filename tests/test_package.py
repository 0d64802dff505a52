"""What is published contains what it must, and nothing else."""

from __future__ import annotations

import re
import sys
import tarfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from commands import ROOT, run

pytest.importorskip("hatch_fancy_pypi_readme", reason="builds the wheel")

#: What the source distribution has beside the package, so that its tests and documentation work where it is unpacked
DIRECTORIES = "benchmarks", "docs", "examples", "pykeen_nonsampling", "tests"
FILES = (
    *(".ci/run", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "constraints-oldest.txt"),
    *("constraints.txt", "pyproject.toml", "tox.ini"),
)

LEFT_BEHIND = {".ruff_cache", "__pycache__", "_build"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both distributions."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", str(directory), cwd=ROOT)
    return directory


@pytest.fixture(scope="module")
def wheel(built: Path) -> ZipFile:
    (path,) = built.glob("*.whl")
    return ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    return message_from_bytes(wheel.read(name))


def list_files(*directories: str) -> set[str]:
    """List what is in directories of the repository, but for what programs leave behind."""
    paths = (path.relative_to(ROOT) for name in directories for path in (ROOT / name).rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if not LEFT_BEHIND & set(path.parts)}


def test_source_distribution_is_complete(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    # metadata, and what says which files of a checkout are not published
    assert names - {"PKG-INFO", ".gitignore"} == list_files(*DIRECTORIES) | set(FILES)


def test_wheel_is_the_package_alone(wheel: ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == list_files("pykeen_nonsampling")
    assert "pykeen_nonsampling/py.typed" in names


def test_description_has_no_links_that_break_elsewhere(metadata: Message) -> None:
    description = metadata.get_payload()
    assert isinstance(description, str)
    targets = re.findall(r"\]\(([^)]*)\)", description)
    assert targets
    assert not [target for target in targets if not target.startswith("https://")]


def test_links_of_the_readme_lead_somewhere() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https://)([^)#]+)", readme):
        assert (ROOT / target).exists(), f"README.md links {target}, which does not exist"
