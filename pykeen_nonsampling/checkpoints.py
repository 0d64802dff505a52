"""Checkpoint files that are complete or not there: written aside, sealed with a digest, and put in place at once."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pykeen.constants import PYKEEN_CHECKPOINTS

#: What directories for parts of checkpoints begin with
ROWS = "rows"

#: What a digest begins with. The checksums that PyTorch's archives have leave out headers, padding and the directory.
MARK = b"sha256:"

#: The length of a digest with its mark. PyTorch's files are zip archives, whose comment it becomes, so anyone can read them.
SEAL_SIZE = len(MARK) + 2 * hashlib.sha256().digest_size


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or a place where none can be written."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file aside, and put it in the place of another one when it is complete, sealed and on the disk.

    :param path: the file to replace
    :yield: the file to write
    :raises CheckpointError: if it cannot be written; the old one is unchanged then
    """
    part = None
    try:
        handle, name = tempfile.mkstemp(prefix=f"{path.name}.{os.getpid()}.", suffix=".part", dir=path.parent)
        os.close(handle)
        part = Path(name)
        yield part
        seal(part)
        os.replace(part, path)
        _flush(path.parent)
    except (OSError, RuntimeError) as error:
        # for a full disk, PyTorch has a RuntimeError that does not say so
        free = f", with {shutil.disk_usage(path.parent).free:,} bytes free" if path.parent.is_dir() else ""
        kept = " The last one is unchanged." if path.exists() else ""
        raise CheckpointError(
            f"The checkpoint {path} cannot be written{free}: {error}.{kept} Free some space, or use another "
            f"checkpoint_directory."
        ) from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def seal(path: Path) -> None:
    """Append the digest of a file that PyTorch has written to it, and wait until the disk has it."""
    with path.open("r+b") as file:
        # an archive ends with the length of its comment
        file.seek(-2, os.SEEK_END)
        file.write(SEAL_SIZE.to_bytes(2, "little"))
        file.seek(0)
        digest = _digest(file, path.stat().st_size)
        file.seek(0, os.SEEK_END)
        file.write(MARK + digest)
        file.flush()
        os.fsync(file.fileno())


def check(path: Path) -> None:
    """Refuse a file that has changed since it was sealed.

    :param path: the file
    :raises CheckpointError: if it has
    """
    advice = "Restore a copy of it, or remove it to train from the start."
    try:
        with path.open("rb") as file:
            size = path.stat().st_size - SEAL_SIZE
            digest = _digest(file, size) if size > 0 else b""
            sealed = file.read()
    except OSError as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read: {error}. {advice}") from error
    if not sealed.startswith(MARK):
        raise CheckpointError(
            f"The checkpoint {path} does not end with a digest: it has been cut off, or written by another program or an "
            f"earlier version. {advice}"
        )
    if sealed != MARK + digest:
        raise CheckpointError(f"The checkpoint {path} does not match its digest: it has been damaged. {advice}")


def prepare(training_kwargs: Mapping[str, Any] | None) -> None:
    """Check before any work that the checkpoint of a training can be read, if there is one, and written.

    :param training_kwargs: the keyword arguments of :meth:`pykeen.training.TrainingLoop.train`
    :raises CheckpointError: if it cannot
    """
    kwargs = training_kwargs or {}
    if not (kwargs.get("checkpoint_name") or kwargs.get("checkpoint_on_failure")):
        return
    directory = Path(kwargs.get("checkpoint_directory") or PYKEEN_CHECKPOINTS)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise CheckpointError(
            f"No checkpoint can be written to checkpoint_directory={str(directory)!r}: {error}. Use another one."
        ) from error
    if kwargs.get("checkpoint_name"):
        path = directory / kwargs["checkpoint_name"]
        _remove_parts(path)
        if path.is_file():
            check(path)


@contextmanager
def temporary_directory(directory: Path) -> Iterator[Path]:
    """Make a directory for files that a checkpoint is made of, and remove it in the end.

    :param directory: the directory of the checkpoint
    :yield: the directory
    """
    with tempfile.TemporaryDirectory(prefix=f"{ROWS}.{os.getpid()}.", suffix=".part", dir=directory) as name:
        yield Path(name)


def _remove_parts(path: Path) -> None:
    """Remove what killed processes have left half-written."""
    for prefix in (path.name, ROWS):
        for part in path.parent.glob(f"{prefix}.*.part"):
            process = part.name[len(prefix) + 1 :].partition(".")[0]
            if process.isdigit() and os.name == "posix" and not _is_running(int(process)):
                if part.is_dir():
                    shutil.rmtree(part, ignore_errors=True)
                else:
                    part.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        # another user's, or not a process
        return True
    return True


def _digest(file: Any, size: int) -> bytes:
    """Compute the digest of the first bytes of a file, as text."""
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, 2**20))):
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


def _flush(directory: Path) -> None:
    """Wait until the disk knows the new name of a file. Not all systems can open a directory."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
