"""What has been done: one line per run, written when it is finished, so that nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .plan import Run

SETTINGS, RUNS = "settings.json", "runs.jsonl"


class OtherSettingsError(ValueError):
    """A directory has runs with other settings."""


@dataclass(frozen=True)
class Record:
    """A run that is done."""

    #: what was run, with its kind
    run: Mapping[str, Any]
    result: Mapping[str, Any]
    #: the seconds that it took, with evaluation and everything else
    took: float
    #: the number of the machine that did it
    machine: int = 0

    @property
    def key(self) -> str:
        """The key of the run."""
        return json.dumps(self.run, sort_keys=True)


@dataclass
class Storage:
    """The runs in a directory, all with the same settings."""

    directory: Path
    settings: Mapping[str, Any]
    machines: list[Mapping[str, Any]] = field(default_factory=list)
    #: by key
    records: dict[str, Record] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> Storage:
        """Read all runs of a directory.

        :raises ValueError: if a file is damaged
        """
        content = json.loads((directory / SETTINGS).read_text(encoding="utf-8"))
        storage = cls(directory, content["settings"], content["machines"])
        path = directory / RUNS
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        for number, line in enumerate(lines, start=1):
            if number == len(lines) and not line.endswith("\n"):
                # of a process that was killed while it wrote: that run is done again
                path.write_text("".join(lines[:-1]), encoding="utf-8", newline="\n")
                break
            try:
                record = Record(**json.loads(line))
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}, line {number} is not a run: {error}. Delete the line, to do the run again."
                ) from error
            storage.records[record.key] = record
        return storage

    @classmethod
    def open(cls, directory: Path, settings: Mapping[str, Any]) -> Storage:
        """Go on with a directory, or begin one.

        :param directory: the directory
        :param settings: the settings of all its runs
        :return: the runs so far
        :raises OtherSettingsError: if it has runs with other settings
        """
        # as they will be read again: with lists for tuples
        settings = json.loads(json.dumps(settings))
        if not (directory / SETTINGS).exists():
            return cls(directory, settings)
        storage = cls.load(directory)
        found = "; ".join(_differences(storage.settings, settings))
        if found:
            raise OtherSettingsError(
                f"{directory} has runs with other settings: {found}. Use the same options to go on with them, another "
                f"--output, or --force to delete them."
            )
        return storage

    def add(self, run: Run, result: Mapping[str, Any], took: float, machine: Mapping[str, Any]) -> None:
        """Write down a run that is done.

        :param run: the run
        :param result: its results
        :param took: the seconds that it took
        :param machine: the machine that did it
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        if machine not in self.machines:
            self.machines.append(dict(machine))
            content = json.dumps({"settings": self.settings, "machines": self.machines}, indent=1, ensure_ascii=False)
            # in one piece, also if the process is killed
            part = self.directory / f"{SETTINGS}.part"
            part.write_text(content + "\n", encoding="utf-8", newline="\n")
            part.replace(self.directory / SETTINGS)
        record = Record(json.loads(run.key), result, round(took, 2), self.machines.index(machine))
        with (self.directory / RUNS).open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
        self.records[run.key] = record


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Say which settings differ."""
    for name in sorted({*there, *here}):
        if there.get(name) != here.get(name):
            yield f"{name} is {json.dumps(there.get(name))} there, and {json.dumps(here.get(name))} here"
