"""Files that the user names: triples to read, and results to write, checked before any work is done."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import click
from pykeen.triples.triples_factory import INVERSE_SUFFIX

#: The type of an option for a file of triples
TRIPLES = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)

#: What unpacks a file, by the end of its name: as in pandas, with which PyKEEN reads it
UNPACK: Mapping[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: What pandas would also unpack, but may have several files
ARCHIVES = (".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".zip", ".zst")

COLUMNS = "head", "relation", "tail"

force_option = click.option("--force", is_flag=True, help="Overwrite files that exist already.")


def check_triples(path: Path, option: str) -> None:
    """Refuse a file that is not one triple per line, or that PyKEEN would read as other triples than are written in it.

    The triples are what splitting the lines at tabs gives. PyKEEN reads the file with pandas, which takes quotes at the
    beginning of a label for those of a quoted field that may span lines, and fills up lines that are too short. PyKEEN then
    drops relations that look like inverse ones.

    :param path: the file
    :param option: the option that names it
    :raises BadParameter: with the line, what is wrong with it, and the remedy
    """
    count = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, start=1):
                count += _check_line(line, first=number == 1, where=f"{path}, line {number}")
        if not count:
            raise ValueError(f"{path} has no triples. {_FORMAT}")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        message = f"{path} cannot be read: {error}. Check that the file is whole, and its name says how it is compressed."
        raise click.BadParameter(message, param_hint=option) from error


_FORMAT = "Write one triple per line, as UTF-8 text: head, relation and tail, with one tab between them."


def _open(path: Path) -> IO[bytes]:
    """Open a file as bytes, unpacked."""
    name = path.name.lower()
    if name.endswith(ARCHIVES):
        raise ValueError(f"{path} is an archive. Unpack it, and give the file that has the triples.")
    opener = next((opener for suffix, opener in UNPACK.items() if name.endswith(suffix)), None)
    file: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return file


def _check_line(line: bytes, first: bool, where: str) -> bool:
    """Check one line; return whether it has a triple."""
    if first and line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{where}: this is UTF-16, not UTF-8. Convert the file: {_convert('utf-16')}.")
    try:
        text = line.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where}: byte 0x{line[error.start]:02x} is not UTF-8. If the file has another encoding, such as Latin-1, "
            f"convert it: {_convert('latin1')}."
        ) from error
    text = text.removesuffix("\n").removesuffix("\r")
    if "\0" in text:
        raise ValueError(f"{where}: a null byte. The file is binary, or has another encoding, such as UTF-16. {_FORMAT}")
    if "\r" in text:
        raise ValueError(f"{where}: a carriage return (\\r) within the line. End lines with \\n or \\r\\n.")
    if not text:
        return False
    labels = text.split("\t")
    if len(labels) != len(COLUMNS):
        columns = "1 column" if len(labels) == 1 else f"{len(labels)} columns"
        raise ValueError(f"{where}: {columns} instead of 3 in {_shorten(text)}. {_FORMAT}")
    for column, label in zip(COLUMNS, labels, strict=True):
        if not label:
            raise ValueError(f"{where}: the {column} is empty in {_shorten(text)}. Give it a label, or leave out the line.")
        if label.startswith('"'):
            raise ValueError(
                f"{where}: the {column} {_shorten(label)} begins with a double quote. PyKEEN would take the quotes off, and "
                f"all up to the next quote for one label, even over several lines. Remove the quotes from all files, or "
                f"replace them, e.g. by single ones: tr '\"' \"'\" < FILE > NEW."
            )
    if labels[1].endswith(INVERSE_SUFFIX):
        raise ValueError(
            f"{where}: the relation {_shorten(labels[1])} ends in {INVERSE_SUFFIX!r}. PyKEEN takes it for one of the "
            f"inverse relations that it creates itself, and would drop the triple. Rename the relation, or leave out its "
            f"triples."
        )
    return True


def _convert(encoding: str) -> str:
    return f"iconv -f {encoding} -t utf-8 FILE > NEW"


def _shorten(text: str) -> str:
    """Quote the beginning of a text."""
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def check_writable(directory: Path, option: str) -> None:
    """Refuse a directory in which no file can be written. Leaves nothing behind.

    :param directory: the directory, which need not exist
    :param option: the option that names it
    :raises BadParameter: with the reason
    """
    created = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        message = f"{directory} cannot be written to ({error.strerror}). Use another directory."
        raise click.BadParameter(message, param_hint=option) from error
    finally:
        for path in created:
            with contextlib.suppress(OSError):
                path.rmdir()


def check_free(paths: Iterable[Path], force: bool, source: str = "") -> None:
    """Refuse to overwrite files.

    :param paths: the files that will be written
    :param force: whether they may be overwritten
    :param source: where they are from, if that is known
    :raises UsageError: with the files that exist
    """
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        verb, them = ("exists", "it") if len(existing) == 1 else ("exist", "them")
        raise click.UsageError(
            f"{', '.join(existing)} {verb} already{source}. Choose another place with --output, or add --force to "
            f"overwrite {them}."
        )
