"""The job file: one typed tree. An error about an unknown key names the key that was probably meant."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from distcommit.app.job_file.alert_settings import AlertSettings
from distcommit.app.job_file.built_in import Section, settings_class
from distcommit.app.job_file.flow_settings import ChainSettings, FlowSettings
from distcommit.app.job_file.freshness_settings import FreshnessSettings
from distcommit.app.job_file.job_sections import (
    CommitSettings,
    LockSettings,
    PathSettings,
    ReaderSettings,
    ReplaySettings,
    RetentionSettings,
    RunLimits,
    TaskSettings,
)
from distcommit.app.job_file.locations import check_places, keeps_access, normal_place, require_apart
from distcommit.app.job_file.schedule_settings import ScheduleSettings
from distcommit.app.job_file.secrets import PLACES, secret_values, takes_secret_file
from distcommit.app.job_file.telemetry_settings import ObservingSettings
from distcommit.app.job_file.yaml_loading import load_yaml
from distcommit.core.errors import ConfigurationError
from distcommit.core.records.freshness import NO_TARGETS, Freshness
from distcommit.core.redaction import HIDDEN, Redaction, redact
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.readiness import CommitPolicy, RetryPolicy
from distcommit.spark.settings import SparkSettings
from distcommit.stores.snapshots.snapshots import KEPT_CUTS


class JobConfig(FlowSettings, frozen=True, extra="forbid", arbitrary_types_allowed=True):
    """A job, as its file describes it.

    Attributes:
        job: its name. The store, output and staging belong to it.
        on_rejected: what becomes of a record that a converter or the fork rejects: its work unit fails (`fail`), or the
            record goes to the error branch (`divert`).
    """

    job: str = Field(min_length=1, max_length=200)
    paths: PathSettings
    commit: CommitSettings = CommitSettings()
    replay: ReplaySettings = ReplaySettings()
    task: TaskSettings = TaskSettings()
    limits: RunLimits = RunLimits()
    lock: LockSettings = LockSettings()
    retention: RetentionSettings = RetentionSettings()
    alerts: AlertSettings = AlertSettings()
    readers: ReaderSettings = ReaderSettings()
    schedule: ScheduleSettings | None = None
    freshness: FreshnessSettings | None = None
    observing: ObservingSettings = ObservingSettings()
    spark: SparkSettings = SparkSettings()

    @model_validator(mode="after")
    def _what_is_read_whole_is_not_cut(self) -> JobConfig:
        if self.source.reads_whole_units and self.limits.seconds:
            raise ValueError(
                "limits.seconds must not be set for micro-batches, snapshots and Spark's readers, which it "
                "would truncate; limit the records of the source instead"
            )
        return self

    @model_validator(mode="after")
    def _what_is_read_again_can_be(self) -> JobConfig:
        if self.task.retry_across_runs is not RetryPolicy.NEVER and not self.source.supports_retry_ranges:
            raise ValueError(
                f"task.retry_across_runs: {self.task.retry_across_runs} does not go with this source: it is not known"
                " where reading ends (snapshots, integers or text of REST, micro-batches): leave it out"
            )
        return self

    @model_validator(mode="after")
    def _what_replaces_is_whole(self) -> JobConfig:
        sinks = self.sink_sections().values()
        publishers = {sink.publisher for sink in sinks}
        if self._replaces_at_target:
            self._require_whole("mode: replace")
        if self.source.is_snapshot and publishers != {"replace"} and not self.tries_out:
            raise ValueError(
                "each run reads all records of each dataset (with source.watermark, only those above that "
                "column's last value), which must replace the published ones: sink.publish: replace, of "
                "files, in all branches"
            )
        if publishers == {"append"}:
            return self
        if len(publishers) > 1:
            raise ValueError(
                "publish must be the same in all branches, because records that were rejected before the "
                "fork belong to all of them"
            )
        how = f"publish: {publishers.pop()}"
        if not all(sink.abilities.files for sink in sinks):
            raise ValueError(
                f"{how} requires sinks with the ability files, because tombstones in the output name the replaced files"
            )
        if self.commit.delivery == "at_least_once":
            raise ValueError(f"{how} requires commit.delivery: exactly_once, which seals the replaced files ahead")
        self._require_whole(how)
        return self

    @property
    def _replaces_at_target(self) -> bool:
        return any(sink.replaces_at_target for sink in self.sink_sections().values())

    def _require_whole(self, how: str) -> None:
        """Raise ValueError if a run may publish a part of a dataset's plan and continue after it."""
        if {self.commit.policy, *(each.policy for each in self.commit.policies)} != {CommitPolicy.FULL}:
            raise ValueError(f"{how} requires policy: full, because a part would replace the whole")
        if self.limits.seconds:
            raise ValueError(f"{how} must not be used with limits.seconds, because a part would replace the whole")
        if self.fork is not None and any(branch.optional for branch in self.fork.branches.values()):
            raise ValueError(
                f"{how} must not be used with optional branches, because the records of a failed one would "
                "not be replaced"
            )

    @model_validator(mode="after")
    def _failures_are_kept_as_long_as_they_count(self) -> JobConfig:
        if self.alerts.after_failed_runs > self.retention.runs:
            raise ValueError("alerts.after_failed_runs must be at most retention.runs, because it counts recorded runs")
        return self

    @model_validator(mode="after")
    def _source_does_not_read_what_sinks_write(self) -> JobConfig:
        """Check the datasets that the settings name. Those that a pattern selects, and all of a custom source, which is
        not imported to read a job file, are checked when they are planned."""
        if self.source.is_imported:
            return self
        sinks = self.sink_sections()
        for name, sink in sinks.items():
            fixed = {*sink.targets("a")} & {*sink.targets("b")}
            named = {target for urn in self.source.named_datasets for target in sink.targets(urn)}
            for target in sorted({*fixed, *named}, key=str):
                if self.source.reads(target.apart_from(self.spark.catalogs)):
                    hint = f", or {self.source.false_match_hint}" if self.source.false_match_hint else ""
                    raise ValueError(
                        f"{name} writes to {target.kind} {target.name}, which the source reads: each run would read"
                        f" what the last one wrote. Leave it out of the source, or let the sink write elsewhere{hint}"
                    )
        return self

    @model_validator(mode="after")
    def _targets_can_be_met(self) -> JobConfig:
        interval_s = self.schedule.interval_s if self.schedule is not None else None
        if interval_s is not None and 0 < self.targets.smallest_s < interval_s:
            raise ValueError(
                f"a freshness target of {self.targets.smallest_s:g} s can't be met by schedule.interval_s:"
                f" {interval_s:g}: a record waits as long for the next run"
            )
        return self

    def task_flow(self) -> TaskFlow:
        """Return the flow, within the job's limits."""
        hidden = Redaction.known()
        return replace(super().task_flow(), construct_seconds=self.limits.construct_seconds, hidden=hidden)

    @property
    def targets(self) -> Freshness:
        """The freshness targets of datasets."""
        if self.freshness is None:
            return NO_TARGETS
        takes_places = self.task_flow().publish != "append" or self._replaces_at_target
        return self.freshness.freshness(can_stop=not self.source.reads_whole_units and not takes_places)

    @property
    def kept_cuts(self) -> int:
        """How many snapshots are kept."""
        return self.readers.kept_cuts or (KEPT_CUTS if self.task_flow().publish == "append" else 2)

    @property
    def tries_out(self) -> bool:
        """Whether it is a preview, of which nothing is kept."""
        return any(sink.preview_records for sink in self.sink_sections().values())

    @model_validator(mode="after")
    def _all_or_nothing_is_tried_out(self) -> JobConfig:
        others = [name for name, sink in self.sink_sections().items() if not sink.preview_records]
        if self.tries_out and others:
            raise ValueError(f"type: console is for trying out a whole job; {', '.join(others)} would really commit")
        return self

    @model_validator(mode="after")
    def _sinks_can_deliver(self) -> JobConfig:
        sinks = self.sink_sections().values()
        written = [name for name, sink in self.sink_sections().items() if not sink.abilities.exactly_once]
        if self.commit.delivery == "exactly_once" and written:
            raise ValueError(
                f"{', '.join(written)} has a writer and no committer, and requires commit.delivery: "
                "at_least_once, because its records are visible when written: those of a failed attempt are "
                "duplicated"
            )
        if self.commit.delivery == "at_least_once" and not all(sink.abilities.at_least_once for sink in sinks):
            raise ValueError(
                "commit.delivery: at_least_once goes with sinks of type files, and those with a writer alone. The"
                " proof of any other is one row for each dataset and epoch: of two attempts that nobody chose between,"
                " the second would be taken for committed, and its records might be missing"
            )
        return self


_DEFAULT_TYPES = {"sink": "files"}


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> JobConfig:
    """Read a job file. `${NAME}` and `${NAME:-default}` in values come from the environment. `${file:PATH}` in
    source.client, in a password of the source or a sink, in a converter's registry.client, or in an alert, is a secret
    that is read from the file when it is used.

    Args:
        path: a YAML file.
        overrides: `section.key=value` texts that override the file; values are YAML. One that gives a section another
            `type` replaces the section, whose other keys belong to the old type.

    Raises:
        ConfigurationError: if it is missing, not YAML, or has unknown or invalid settings.
    """
    return parse_config(load_tree(path, overrides), Path(path))


def load_tree(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the content of a job file with overrides, without substitutions from the environment.

    Raises:
        ConfigurationError: if it is missing, not YAML, or not a mapping.
    """
    file = Path(path)
    try:
        tree = load_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _invalid("the job file can't be read", path=file, found=str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _invalid("the job file is not YAML", path=file, found=_where(error)) from None
    if not isinstance(tree, dict):
        raise _invalid("the job file is empty or not a mapping", path=file, found=type(tree).__name__)
    for override in sorted(overrides, key=lambda text: not text.partition("=")[0].endswith(".type")):
        _override(tree, override)
    return tree


def parse_config(tree: Mapping[str, Any], file: Path) -> JobConfig:
    """Return the job that a tree of plain values describes. Relative folders are relative to the folder of `file`.

    Raises:
        ConfigurationError: as `load_config`.
    """
    tree = _with_environment(tree, str(file))
    redact(secret_values(tree))
    try:
        config = JobConfig.model_validate(tree)
    except ValidationError as error:
        problems = "; ".join(_explain(problem, tree) for problem in error.errors(include_url=False))
        todo = "correct it; conf/ has commented examples"
        raise _invalid(f"the job file is wrong: {problems}", path=file, todo=todo) from None
    places = {name: normal_place(value, file.parent) for name, value in config.paths.model_dump().items()}
    check_places(places)
    if not config.source.is_imported:
        require_apart(config.source, places)
    needs_access = any(sink.file_access for sink in config.sink_sections().values())
    if not keeps_access(places["output"]) and needs_access:
        raise _invalid(
            "files have no owner and mode there",
            path=places["output"],
            expected="no sink.access",
            todo="remove it; the policy of the bucket, or of the share, determines access",
        )
    return config.model_copy(update={"paths": PathSettings(**places)})


def _where(error: Exception) -> str:
    """Return the fault of YAML and its place, without its lines, which may hold secrets."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return type(error).__name__
    place = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
    return f"{error.problem or error.context or 'a mistake'}{place}"


def _override(tree: dict[str, Any], text: str) -> None:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise _invalid(
            "an override must be section.key=value",
            found=text if _IS_KEY.fullmatch(text) else HIDDEN,
        )
    *sections, last = key.split(".")
    holder: Any = tree
    for section in sections:
        if isinstance(holder, list):  # one of a list, by its number
            holder = holder[int(section)] if section.isdecimal() and int(section) < len(holder) else None
        else:
            holder = holder.setdefault(section, {}) if isinstance(holder, dict) else None
    if not isinstance(holder, dict):
        raise _invalid("an override goes into something that is not a section", found=key)
    try:
        parsed = load_yaml(value)
    except yaml.YAMLError as error:
        raise _invalid("the value of an override is not YAML", found=f"{key}: {_where(error)}") from None
    if last == "type" and holder.get("type", _DEFAULT_TYPES.get(sections[-1] if sections else "", parsed)) != parsed:
        holder.clear()
    holder[last] = parsed


_LISTS: Mapping[str, Section] = {
    "converters": "converter",
    "row_checkers": "row_checker",
    "task_checkers": "task_checker",
}
_invalid = partial(ConfigurationError, id="JOB_FILE_INVALID")
_IS_KEY = re.compile(r"\w+(\.\w+)*")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def _with_environment(value: Any, path: str, keys: tuple[str, ...] = ()) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_environment(below, path, (*keys, str(key))) for key, below in value.items()}
    if isinstance(value, list):
        return [_with_environment(below, path, keys) for below in value]
    if not isinstance(value, str):
        return value
    if "${file:" in value and not takes_secret_file(keys):
        raise _invalid(
            f"${{file:PATH}} is for secrets only: {', '.join(PLACES)}",
            path=path,
            found=".".join(keys),
            todo="write it out",
        )

    def replaced(match: re.Match[str]) -> str:
        found = os.environ.get(match[1], match[2])
        if found is None:
            raise _invalid(
                "the job file names an environment variable that is not set",
                path=path,
                expected=match[1],
            )
        return found

    return _VARIABLE.sub(replaced, value)


def _explain(problem: Any, tree: Any) -> str:
    keys = [str(part) for part in problem["loc"]]
    shown = ".".join(keys)
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(keys[-1], _known_keys(keys[:-1], tree), n=1, cutoff=0.5)
        return f"unknown key {shown!r}" + (f", did you mean {near[0]!r}?" if near else "")
    if problem["type"] == "missing":
        return f"{shown} is missing"
    text = problem["msg"].removeprefix("Value error, ")
    return f"{shown}: {text}" if shown else text


def _known_keys(keys: Sequence[str], tree: Any) -> list[str]:
    """Return the keys of the section at `keys` in a tree; none if its type is unknown."""
    model: Any = JobConfig
    section: Any = None
    for part in keys:
        try:
            tree = tree[int(part)] if isinstance(tree, list) else tree[part]
        except (LookupError, ValueError, TypeError):
            return []
        if part.isdigit() and section is None:  # one of a list
            continue
        if section is not None or part in ("source", "sink"):
            of, section = section or part, None
            if of != "branch":
                model = settings_class(of, tree.get("type", "files"))
        elif part in _LISTS:
            section = _LISTS[part]
        elif part == "branches":
            section, model = "branch", ChainSettings
        elif part == "fork":
            model = settings_class("fork", tree.get("type", ""))
        else:
            model = _section_class(model, part)
    return [field.alias or name for name, field in model.model_fields.items()]


def _section_class(model: Any, part: str) -> Any:
    annotation = model.model_fields[part].annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    options = [a for a in getattr(annotation, "__args__", ()) if isinstance(a, type)]
    return next((a for a in options if issubclass(a, BaseModel)), model)
