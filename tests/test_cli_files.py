"""The command line: files of triples that it reads, and results that it does not overwrite."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from pykeen.triples import TriplesFactory

from pykeen_nonsampling.cli import main
from pykeen_nonsampling.cli.files import check_triples

GOOD = b"a\tr\tb\nb\tr\tc\nc\ts\ta\n"
#: A place where nothing can be written, which commands find out last, just before they train
NOWHERE = str(Path(__file__) / "out")


def invoke(*args: str | Path) -> Result:
    """Run a command that shows the traceback of whatever was not foreseen."""
    result = CliRunner().invoke(main, ["--debug", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


def compare(training: Path, testing: Path, output: str | Path = NOWHERE) -> Result:
    return invoke("compare", "--training", training, "--testing", testing, "--output", output)


def tune(training: Path, testing: Path) -> Result:
    return invoke("tune", "--training", training, "--validation", training, "--testing", testing, "--output", NOWHERE)


def flat(result: Result) -> str:
    return " ".join(result.output.split())


#: The content of a file, and what is said about it
BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "has no triples. Write one triple per line"),
    "only line breaks": (b"\n\r\n\n", "has no triples"),
    "one column": (b"a\n", "line 1: 1 column instead of 3 in 'a'"),
    "separated by commas": (b"a,r,b\n", "line 1: 1 column instead of 3"),
    "two columns": (GOOD + b"a\tr\n", "line 4: 2 columns instead of 3 in 'a\\tr'"),
    "four columns": (b"a\tr\tb\t1\n", "line 1: 4 columns instead of 3"),
    "a stray column": (GOOD + b"\na\tr\tb\t\n", "line 5: 4 columns instead of 3"),
    "an empty label": (GOOD + b"a\t\tb\n", "line 4: the relation is empty"),
    "Latin-1": (GOOD + "café\tr\tb\n".encode("latin1"), "line 4: byte 0xe9 is not UTF-8"),
    "UTF-16": ("a\tr\tb\n".encode("utf-16"), "line 1: this is UTF-16, not UTF-8. Convert the file: iconv -f utf-16"),
    "UTF-16 without mark": ("a\tr\tb\n".encode("utf-16-le"), "line 1: a null byte"),
    "binary": (b"\x89PNG\r\n\x1a\n\x00\x00", "line 1: byte 0x89 is not UTF-8"),
    "lone carriage returns": (b"a\tr\tb\rb\tr\tc\r", "line 1: a carriage return"),
    "quotes that merge rows": (b'"a\tr\tb\nb\tr\tc"\n', "line 1: the head '\"a' begins with a double quote"),
    "quotes that would be taken off": (GOOD + b'a\tr\t"b"\n', "line 4: the tail '\"b\"' begins with a double quote"),
    "inverse relations": (GOOD + b"a\tr_inverse\tb\n", "line 4: the relation 'r_inverse' ends in '_inverse'"),
}


@pytest.mark.parametrize("command", [compare, tune])
@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused_by_line(kind: str, command: Callable[[Path, Path], Result], tmp_path: Path) -> None:
    good, bad = tmp_path / "good.tsv", tmp_path / "bad.tsv"
    content, message = BAD[kind]
    good.write_bytes(GOOD)
    bad.write_bytes(content)
    for option, paths in (("--training", (bad, good)), ("--testing", (good, bad))):
        result = command(*paths)
        assert result.exit_code == 2
        assert f"Invalid value for {option}: {bad}" in result.output
        assert message in flat(result)


#: The name and the content of a file
FINE: dict[str, bytes] = {
    "line breaks.tsv": b"\n\na\tr\tb\r\n\nb\tr\tc",
    "byte order mark.tsv": b"\xef\xbb\xbf" + GOOD,
    "spaces.tsv": b"  a \t r\tb c\nb c\tr r\t  a \n",
    "quotes within labels.tsv": b"a\"b\"\tr\"\t'c'\n'c'\tr\"\td\n",
    "other line breaks.tsv": "é\u2028\tr\x85\t\x1a\n日本\tr\té\n".encode(),
    "packed.tsv.gz": gzip.compress(GOOD),
    "packed.tsv.XZ": lzma.compress(GOOD),
}


@pytest.mark.parametrize("name", FINE)
def test_good_files_are_not(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(FINE[name])
    for command in (compare, tune):
        result = command(path, path)
        assert result.exit_code == 2
        assert f"{NOWHERE} cannot be written to" in result.output


PACKED: dict[str, tuple[bytes, str]] = {
    "broken.tsv.gz": (GOOD, "cannot be read: Not a gzipped file"),
    "short.tsv.gz": (gzip.compress(GOOD)[:-9], "cannot be read: Compressed file ended"),
    "broken.tsv.xz": (GOOD, "cannot be read: Input format not supported"),
    "archive.zip": (b"PK", "is an archive. Unpack it"),
}


@pytest.mark.parametrize("name", PACKED)
def test_files_that_cannot_be_unpacked(name: str, tmp_path: Path) -> None:
    path, (content, message) = tmp_path / name, PACKED[name]
    path.write_bytes(content)
    result = compare(path, path)
    assert result.exit_code == 2
    assert message in flat(result)


def split(data: bytes) -> set[tuple[str, ...]]:
    """Split lines at tabs, which is what the triples of a file are."""
    lines = (line.removesuffix("\r") for line in data.decode("utf-8-sig").split("\n"))
    return {tuple(line.split("\t")) for line in lines if line}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Name a file that each example writes anew."""
    return tmp_path_factory.mktemp("files") / "triples.tsv"


class TestProperties:
    """For any file, however odd."""

    text = st.text(alphabet="ab_ \t\n\r\"'\\#,\0é\ufeff\u2028日", max_size=60)
    label = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0"), min_size=1, max_size=6)
    tricky = st.sampled_from(['"a', '"a"', 'a"', "b_inverse", "b\0", "\ufeff", " ", ""])
    row = st.tuples(*[label | tricky] * 3) | st.lists(text | label | tricky, min_size=1, max_size=4)
    rows = st.lists(row.map("\t".join), max_size=6).map("\n".join)
    files = st.binary(max_size=60) | text.map(str.encode) | rows.map(str.encode)
    files |= rows.map(lambda text: text.encode("latin1", errors="replace"))

    @settings(max_examples=300)
    @given(content=files)
    def test_either_its_triples_are_read_or_it_is_refused(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        try:
            check_triples(path, "--training")
        except click.BadParameter:
            return
        assert {*map(tuple, TriplesFactory.from_path(path).triples.tolist())} == split(content)

    good = label.filter(lambda x: not x.startswith(('"', "\ufeff")) and not x.endswith("_inverse"))

    @settings(max_examples=100)
    @given(triples=st.lists(st.tuples(good, good, good), min_size=1, max_size=8), end=st.sampled_from(["\n", "\r\n"]))
    def test_triples_that_one_writes_are_read(self, path: Path, triples: list[tuple[str, str, str]], end: str) -> None:
        path.write_text("".join("\t".join(triple) + end for triple in triples), encoding="utf-8", newline="")
        check_triples(path, "--training")
        assert {*map(tuple, TriplesFactory.from_path(path).triples.tolist())} == {*triples}

    @settings(max_examples=60)
    @given(training=files, testing=files)
    def test_commands_never_show_a_traceback(self, path: Path, training: bytes, testing: bytes) -> None:
        other = path.with_name("other.tsv")
        path.write_bytes(training)
        other.write_bytes(testing)
        for command in (compare, tune):
            result = command(path, other)
            assert result.exit_code in (1, 2)
            assert "Error: " in result.output
