"""The section `compact` of a job file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from distcommit.app.job_file.sections.freshness_settings import Seconds
from distcommit.core.interfaces.sink import Sink
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy

_REMOVE = "remove the section compact"
_LEAST_FILES, _MOST_FILES = 2, 1000
_ROW_GROUP_BYTES = 64 << 20


class CompactSettings(SettingsModel):
    """The small published files that `distcommit dataset compact` merges. Only sinks of type `files` with
    `publish: append` have such files. Runs do not merge files.

    Attributes:
        target_file_bytes: size that merged files have at most; 64 MiB, a row group, or more. A lower
            `sink.target_file_bytes` replaces it. A file of half the size, or more, is left.
        min_files: number of small files that a merged file replaces at least, 2 or more. If the target size is reached,
            two are enough.
        after: age at which a file may be merged: `30m`, `1h`, or seconds. A file in a time folder is as old as the end
            of the folder's period. Object stores report no age of other files, so these may be merged at any age.
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
                remedy=f"raise it, or {_REMOVE}",
            )
        if self.target_file_bytes < _ROW_GROUP_BYTES:
            yield SettingError(
                f"must be at least {_ROW_GROUP_BYTES}, the size of a row group",
                "target_file_bytes",
                remedy=f"raise it, or {_REMOVE}",
            )

    def sink_errors(self, sinks: Mapping[str, Sink]) -> Iterator[SettingError]:
        """Yield an error for each sink whose files cannot be merged by this policy.

        Args:
            sinks: sinks by their sections in the job file.
        """
        for section, sink in sinks.items():
            keys, most = section.split("."), getattr(sink, "target_file_bytes", self.target_file_bytes)
            if not sink.abilities.files:
                yield SettingError("must be files with the section compact", *keys, "type", remedy=_REMOVE)
            elif sink.publisher != "append":
                yield SettingError("must be append with the section compact", *keys, "publish", remedy=_REMOVE)
            elif "target_file_bytes" in self.model_fields_set and self.target_file_bytes > most:
                yield SettingError(
                    f"must be at most {section}.target_file_bytes ({most}), which merged files do not exceed",
                    *("compact", "target_file_bytes"),
                    remedy=f"remove it, or raise {section}.target_file_bytes",
                )

    def policy(self, now_ms: int) -> CompactionPolicy:
        """Return the policy of a compaction that begins at `now_ms`, in milliseconds since 1970."""
        return CompactionPolicy(self.target_file_bytes, self.min_files, now_ms - int(self.after * 1000))
