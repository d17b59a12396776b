"""Settings of a custom source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from distcommit.core.interfaces.source import Source, SourceSettings
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.custom_class import CustomClass


class PythonSource(
    CustomClass,
    SourceSettings,
    interface=Source,
    section="source",
    unguarded=frozenset({"plan", "incarnations", "group_positions", "open"}),
    not_forwarded=frozenset({"named_by", "current_name"}),
):
    """A custom source: a subclass of `Source`."""

    is_imported: ClassVar[bool] = True
    type: Literal["python"]

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return the class's name as `class`, and the fixed settings of the class. If the class is renamed, its own
        `fixed_settings` can return the old name as `class`.
        """
        with self.guard():
            return {"class": FixedSetting(self.class_name), **self.instance.fixed_settings()}
