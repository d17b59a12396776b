"""Settings of a custom source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from distcommit.core.interfaces.source import Source
from distcommit.core.interfaces.source_table import Extract, TableType
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.custom_class import CustomClass
from distcommit.sources.extract_settings import DeclaredExtract, DescribedSource


class PythonSource(
    CustomClass,
    DescribedSource,
    interface=Source,
    section="source",
    unguarded=frozenset({"plan", "incarnations", "group_positions", "open"}),
    not_forwarded=frozenset({"named_by", "current_name"}),
):
    """A custom source: a subclass of `Source`."""

    is_imported: ClassVar[bool] = True
    type: Literal["python"]

    def extract_of(self, dataset_urn: str) -> Extract | None:
        """Return the class's extract with the declared keys and delta fields."""
        with self.guard():
            extract = self.instance.extract_of(dataset_urn)
        if extract is None and self.extract == DeclaredExtract():
            return None
        return self.described(extract or Extract(self.type, dataset_urn, TableType.APPEND_ONLY))

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return the class's name as `class`, and the fixed settings of the class. After a renaming of the class,
        these can return the old name as `class`."""
        with self.guard():
            return {"class": FixedSetting(self.class_name), **self.instance.fixed_settings()}
