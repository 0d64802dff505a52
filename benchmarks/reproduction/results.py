"""What has been done, by part of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import pandas as pd

from ..quality import Quality, QualitySettings
from .plan import SAMPLED, Preset, Query, plan_part
from .statistics import as_frame
from .storage import Record, Storage


@dataclass
class Results:
    """The runs in a directory, and what they were planned for."""

    storage: Storage
    #: what was asked for in the part with examples, by dataset
    queries: Mapping[str, Sequence[Query]]
    #: readable names of entities
    labels: Mapping[str, str]

    @cached_property
    def preset(self) -> Preset:
        """The preset, with all changes."""
        names = {field.name for field in fields(Preset)}
        return Preset(**{name: value for name, value in self.storage.settings.items() if name in names})

    def planned(self, part: str) -> list[str]:
        """Return the keys of the runs of a part, each once."""
        return list(dict.fromkeys(run.key for run in plan_part(part, self.preset, self.queries)))

    def done(self, part: str) -> list[Record]:
        """Return the runs of a part that are done."""
        return [self.storage.records[key] for key in self.planned(part) if key in self.storage.records]

    def frame(self, part: str) -> pd.DataFrame:
        """Return the trainings of a part that are done, as a table."""
        return as_frame(self.done(part))

    def shipped(self) -> pd.DataFrame:
        """Return the trainings with configurations, and those with sampling to compare them with."""
        accuracy = self.frame("accuracy")
        return pd.concat([accuracy[accuracy["loop"] == SAMPLED], self.frame("shipped")], ignore_index=True)

    def label(self, entity: str) -> str:
        """Return the readable name of an entity, if there is one."""
        return self.labels.get(entity, entity)

    def qualities(self) -> dict[str, Quality]:
        """Collect the curves of all training loops, by dataset."""
        found: dict[str, Quality] = {}
        for record in self.done("quality"):
            run = {name: value for name, value in record.run.items() if name not in ("kind", "loop")}
            quality = found.setdefault(run["dataset"], Quality(QualitySettings(**run)))
            quality.curves[record.run["loop"]] = record.result["curves"]
        return found
