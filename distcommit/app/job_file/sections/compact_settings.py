"""The section `compact` of a job file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from distcommit.app.job_file.sections.freshness_settings import Seconds
from distcommit.core.interfaces.sink import Sink
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule

WITHOUT_COMPACTION = "remove the section compact"
"""Remedy for a job whose files can't be compacted."""
_LEAST_TARGET_BYTES = 1 << 20
_LEAST_FILES, _MOST_FILES = 2, 1000


class CompactSettings(SettingsModel):
    """When runs merge small published files, as `distcommit dataset compact` does. With the section, also if it is
    empty (`compact: {}`), a run that has published all of its datasets merges files of some datasets afterwards.

    Attributes:
        target_file_bytes: size that merged files have at most. At least 1 MiB. A lower `sink.target_file_bytes`
            replaces it. A file of half the size, or more, is left.
        min_files: number of small files that a merged file replaces at least, 2 or more. If the target size is reached,
            two are enough.
        after: age at which a file may be merged: `30m`, `1h`, or seconds. A file in a time folder is as old as the end
            of the folder's period.
    """

    target_file_bytes: int = 128 << 20
    min_files: int = Field(default=8, le=_MOST_FILES)
    after: Seconds = 3600

    @rule
    def _can_be_met(self) -> Iterator[SettingError]:
        if self.min_files < _LEAST_FILES:
            yield SettingError(
                f"must be at least {_LEAST_FILES}, because one file is not merged",
                "min_files",
                remedy=f"raise it, or {WITHOUT_COMPACTION}",
            )
        if self.target_file_bytes < _LEAST_TARGET_BYTES:
            yield SettingError(
                f"must be at least {_LEAST_TARGET_BYTES}, because files of half the size or more are not merged",
                "target_file_bytes",
                remedy=f"raise it, or {WITHOUT_COMPACTION}",
            )

    def errors_of_sinks(self, sinks: Mapping[str, Sink]) -> Iterator[SettingError]:
        """Yield the settings of sinks, by their sections in the job file, with which no file is ever merged."""
        for section, sink in sinks.items():
            at, target_bytes = section.split("."), getattr(sink, "target_file_bytes", None)
            if not sink.abilities.files or target_bytes is None:
                yield SettingError("must be files with compact", *at, "type", remedy=WITHOUT_COMPACTION)
            elif sink.publisher != "append":
                yield SettingError("must be append with compact", *at, "publish", remedy=WITHOUT_COMPACTION)
            elif target_bytes < _LEAST_TARGET_BYTES:
                yield SettingError(
                    f"must be at least {_LEAST_TARGET_BYTES} with compact, because merged files are not larger",
                    *(*at, "target_file_bytes"),
                    remedy=f"raise it, or {WITHOUT_COMPACTION}",
                )
            elif "target_file_bytes" in self.model_fields_set and self.target_file_bytes > target_bytes:
                yield SettingError(
                    f"must be at most {section}.target_file_bytes ({target_bytes}), which merged files do not exceed",
                    *("compact", "target_file_bytes"),
                    remedy=f"lower it, or raise {section}.target_file_bytes",
                )
