"""The fixed settings of a job, and the commands that continue or restart the job with other values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from distcommit.app.job_file.job_config import JobConfig
from distcommit.core.interfaces.sink import BY_DATASET
from distcommit.core.interfaces.source import SourceSettings
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings

_ANOTHER_TYPE = (
    "restore the old source.type, because positions of one type of source have no meaning in another; or give the job"
    " new folders (paths)"
)
GROUPED_BY = "sink.commit_group"
_NUMBERED = re.compile(r"(.*)-(\d+)")


def fixed_settings_of(config: JobConfig, path: Path | None = None, overrides: Sequence[str] = ()) -> FixedSettings:
    """Return the fixed settings of a job.

    Args:
        path: job file, for commands in messages.
        overrides: the `--set` options, for commands in messages.

    Raises:
        ConfigurationError: if a custom class with fixed settings can't be created.
    """
    source, sinks = config.source, config.sink_sections()
    settings = {
        "source.type": FixedSetting(source.type, _ANOTHER_TYPE),
        **_in_section("source", source.fixed_settings()),
        **{f"{section}.type": FixedSetting(sink.type) for section, sink in sinks.items()},
        **{
            name: pin
            for section, sink in sinks.items()
            for name, pin in _in_section(section, sink.fixed_settings()).items()
        },
        GROUPED_BY: FixedSetting(config.task_flow().grouping_sink.grouped_by, unrecorded=BY_DATASET),
    }
    named = path if path is not None and not any(text.startswith("paths") for text in overrides) else None
    fixed_settings = FixedSettings(settings)
    if named:
        restarted_by = _command("run", named, (*overrides, *_new_locations(config)))
        fixed_settings = FixedSettings(settings, carry_over(config, named, overrides), restarted_by)
    moved = _command("store rebucket", named, overrides) if named else "distcommit store rebucket JOB.yaml"
    otherwise = (
        f"restore the old value. To keep the value of the job file and all positions, run `{moved}`, which moves the"
        f" datasets in these folders, or `{fixed_settings.carried_by}`, which continues them in new folders"
    )
    changed = {name: replace(settings[name], otherwise=otherwise) for name in movable(source)}
    return replace(fixed_settings, settings={**settings, **changed})


def movable(source: SourceSettings) -> tuple[str, ...]:
    """Return the fixed settings that `distcommit store rebucket` can change."""
    return (f"source.{source.named_by}", GROUPED_BY) if source.named_by else (GROUPED_BY,)


def carry_over(config: JobConfig, path: Path, overrides: Sequence[str]) -> str:
    """Return the command that gives the job new folders and copies the watermarks of the present ones."""
    moved = _command("migrate import-watermarks", path, (*overrides, *_new_locations(config)))
    return f"{moved} {shlex.join(['--from', str(path)])}"


def _new_locations(config: JobConfig) -> list[str]:
    return [f"paths.{name}={_next_name(location)}" for name, location in config.paths.model_dump().items()]


def _command(name: str, path: Path, overrides: Sequence[str]) -> str:
    return shlex.join(
        ["distcommit", *name.split(), str(path), *(part for text in overrides for part in ("--set", text))]
    )


def _in_section(section: str, settings: Mapping[str, FixedSetting]) -> dict[str, FixedSetting]:
    return {f"{section}.{name}": pin for name, pin in settings.items()}


def _next_name(location: str) -> str:
    numbered = _NUMBERED.fullmatch(location)
    return f"{numbered[1]}-{int(numbered[2]) + 1}" if numbered else f"{location}-2"
