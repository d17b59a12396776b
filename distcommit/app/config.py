"""The job file: one typed tree. Unknown keys are errors that name the key that was probably meant."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from distcommit.app.built_in import Section, settings_class
from distcommit.app.flow_settings import ChainSettings, FlowSettings
from distcommit.app.places import check_places, keeps_access, normal_place
from distcommit.model.errors import ConfigurationError
from distcommit.protocol.readiness import CommitPolicy
from distcommit.protocol.retries import RetryPolicy
from distcommit.sources.micro_batch.source import MicroBatchSource
from distcommit.spark.settings import SparkSettings
from distcommit.stores.job_store import MAX_BUCKETS


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PathSettings(_Section):
    """The job's folders on one file system: paths (absolute, or relative to the job file) or URLs."""

    store: str
    staging: str
    output: str


class PolicySettings(_Section):
    """A policy for datasets whose whole names match one of these regular expressions."""

    datasets: tuple[str, ...] = Field(min_length=1)
    policy: CommitPolicy

    @field_validator("datasets")
    @classmethod
    def _compiles(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return patterns


class CommitSettings(_Section):
    """How datasets are committed. `policies` wins over `policy`; of several that match the first."""

    buckets: int | None = Field(default=None, ge=1, le=MAX_BUCKETS)
    policy: CommitPolicy = CommitPolicy.FULL
    policies: tuple[PolicySettings, ...] = ()
    scope: Literal["dataset", "job"] = "dataset"
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    min_interval_ms: int = Field(default=500, ge=0)
    durability: Literal["fsync", "none"] = "fsync"

    @property
    def dataset_policies(self) -> tuple[tuple[str, CommitPolicy], ...]:
        """Patterns with their policies, as a run is given them."""
        return tuple((pattern, each.policy) for each in self.policies for pattern in each.datasets)

    @model_validator(mode="after")
    def _job_level_is_full(self) -> CommitSettings:
        policies = {self.policy, *(each.policy for each in self.policies)}
        if self.scope == "job" and policies != {CommitPolicy.FULL}:
            raise ValueError("scope: job goes with policy: full only")
        return self

    @model_validator(mode="after")
    def _job_level_is_written_ahead(self) -> CommitSettings:
        if self.scope == "job" and self.delivery == "at_least_once":
            raise ValueError(
                "scope: job goes with delivery: exactly_once only. At-least-once publishes each dataset before anything"
                " is written down, so that nothing could wait for the job's decision"
            )
        return self


class ReplaySettings(_Section):
    """When replay gives up on a dataset."""

    max_attempts: int = Field(default=3, ge=1)


class TaskSettings(_Section):
    """How often a task tries its work units, and what later runs do about those that failed."""

    attempts: int = Field(default=2, ge=1)
    retry_wait_s: float = Field(default=1, ge=0)
    retry_across_runs: RetryPolicy = RetryPolicy.NEVER
    stop_after_failed_runs: int = Field(default=0, ge=0)


class RunLimits(_Section):
    """How much one run reads; 0 means no limit."""

    seconds: float = Field(default=0, ge=0)


class LockSettings(_Section):
    """The job lock."""

    lease_ttl_s: float = Field(default=30, gt=0)


class JobConfig(FlowSettings, frozen=True, extra="forbid", arbitrary_types_allowed=True):
    """A job, as its file says it."""

    job: str = Field(min_length=1, max_length=200)
    paths: PathSettings
    commit: CommitSettings = CommitSettings()
    replay: ReplaySettings = ReplaySettings()
    task: TaskSettings = TaskSettings()
    limits: RunLimits = RunLimits()
    lock: LockSettings = LockSettings()
    spark: SparkSettings = SparkSettings()

    @model_validator(mode="after")
    def _micro_batches_are_whole(self) -> JobConfig:
        if isinstance(self.source, MicroBatchSource) and self.limits.seconds:
            raise ValueError("limits.seconds would cut a micro-batch: limit what the streaming query reads instead")
        return self

    @model_validator(mode="after")
    def _what_is_read_again_can_be(self) -> JobConfig:
        if self.task.retry_across_runs is not RetryPolicy.NEVER and not self.source.reads_again:
            raise ValueError(
                f"task.retry_across_runs: {self.task.retry_across_runs} does not go with this source, which is always"
                " planned up to its newest end: leave it out"
            )
        return self

    @model_validator(mode="after")
    def _what_replaces_is_whole(self) -> JobConfig:
        publishers = {getattr(sink, "publish", "append") for sink in self.sink_sections().values()}
        if publishers == {"append"}:
            return self
        if len(publishers) > 1:
            raise ValueError(
                "publish has to be the same in all branches: what was turned away before them is theirs all"
            )
        how = f"publish: {publishers.pop()}"
        if self.commit.delivery == "at_least_once":
            raise ValueError(f"{how} goes with commit.delivery: exactly_once only, which writes ahead what goes")
        if {self.commit.policy, *(each.policy for each in self.commit.policies)} != {CommitPolicy.FULL}:
            raise ValueError(f"{how} goes with policy: full only: else a part would take the place of the whole")
        if self.limits.seconds:
            raise ValueError(f"{how} goes without limits.seconds: else a part would take the place of the whole")
        if self.fork is not None and any(branch.optional for branch in self.fork.branches.values()):
            raise ValueError(f"{how} goes without optional branches: nothing would take the place of what one has")
        return self

    @model_validator(mode="after")
    def _own_sinks_are_exactly_once(self) -> JobConfig:
        sinks = self.sink_sections().values()
        if self.commit.delivery == "at_least_once" and not all(sink.abilities.at_least_once for sink in sinks):
            raise ValueError(
                "commit.delivery: at_least_once goes with the sink of type files only. A sink's proof is one row for"
                " each dataset and epoch: of two attempts that nobody chose between, the second would be taken for"
                " committed, and its records might be missing"
            )
        return self


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> JobConfig:
    """Reads a job file. `${NAME}` and `${NAME:-default}` in values come from the environment; `${file:PATH}` in
    source.client, in a password of the source or a sink, or in a converter's registry.client, is a secret that is read
    from the file only when it is used.

    Args:
        path: a YAML file.
        overrides: `section.key=value` texts that win over the file; values are YAML.

    Raises:
        ConfigurationError: if it is missing, not YAML, or says something that is not known or not possible.
    """
    file = Path(path)
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError("the job file can't be read", path=file, found=str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError("the job file is not YAML", path=file, found=str(error)) from error
    if not isinstance(tree, dict):
        raise ConfigurationError("the job file is empty or not a mapping", path=file, found=type(tree).__name__)
    for override in overrides:
        _override(tree, override)
    return parse_config(tree, file)


def parse_config(tree: Mapping[str, Any], file: Path) -> JobConfig:
    """The job that a tree of plain values describes; relative folders are relative to the folder of `file`.

    Raises:
        ConfigurationError: as `load_config`.
    """
    tree = _with_environment(tree, str(file))
    try:
        config = JobConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigurationError(
            "the job file is wrong",
            path=file,
            found="; ".join(_explain(problem, tree) for problem in error.errors(include_url=False)),
            todo="correct it; conf/ has commented examples",
        ) from None
    places = {name: normal_place(value, file.parent) for name, value in config.paths.model_dump().items()}
    check_places(places)
    needs_access = any(sink.file_access for sink in config.sink_sections().values())
    if not keeps_access(places["output"]) and needs_access:
        raise ConfigurationError(
            "files have no owner and mode there",
            path=places["output"],
            expected="no sink.access",
            todo="remove it; who may read them is said by the bucket's policy, or the share's",
        )
    return config.model_copy(update={"paths": PathSettings(**places)})


def _override(tree: dict[str, Any], text: str) -> None:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ConfigurationError("this override is not section.key=value", found=text)
    *sections, last = key.split(".")
    holder = tree
    for section in sections:
        below = holder.setdefault(section, {})
        if not isinstance(below, dict):
            raise ConfigurationError("this override goes into something that is not a section", found=text)
        holder = below
    holder[last] = yaml.safe_load(value)


_LISTS: Mapping[str, Section] = {
    "converters": "converter",
    "row_checkers": "row_checker",
    "task_checkers": "task_checker",
}
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def _with_environment(value: Any, path: str, keys: tuple[str, ...] = ()) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_environment(below, path, (*keys, str(key))) for key, below in value.items()}
    if isinstance(value, list):
        return [_with_environment(below, path, keys) for below in value]
    if not isinstance(value, str):
        return value
    of_client = keys[:2] == ("source", "client") or keys[-3:-1] == ("registry", "client")
    of_secret = of_client or keys[-2:] in (("source", "password"), ("sink", "password"))
    if "${file:" in value and not of_secret:
        raise ConfigurationError(
            "${file:PATH} is for secrets only: source.client, a password of the source or a sink, a registry.client",
            path=path,
            found=".".join(keys),
            todo="write it out",
        )

    def replaced(match: re.Match[str]) -> str:
        found = os.environ.get(match[1], match[2])
        if found is None:
            raise ConfigurationError(
                "the job file names an environment variable that is not set", path=path, expected=match[1]
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
    return f"{shown}: {problem['msg'].removeprefix('Value error, ')}"


def _known_keys(keys: Sequence[str], tree: Any) -> list[str]:
    """The keys that the section has which `keys` lead to in a tree; none if it is not known what it is."""
    model: Any = JobConfig
    section: Any = None
    for part in keys:
        try:
            tree = tree[int(part)] if isinstance(tree, list) else tree[part]
        except (LookupError, ValueError, TypeError):
            return []
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
