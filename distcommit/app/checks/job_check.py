"""The check of a job before it runs: settings, secrets, flow, Java, folders, store, source and sinks.

Each run makes this check, but tolerates some outages and missing datasets (`check_before_run`). `distcommit check` also
checks the owner of the folders and the published types, if the checks before them passed. Invalid settings end the
check. All other problems are collected, each with its position in the job file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distcommit.app.checks.check_result import CheckedPart, CheckFailedError, CheckProblem, CheckResult
from distcommit.app.checks.dry_run import DryRun, PlannedDataset, plan_dry_run
from distcommit.app.checks.flow_description import FlowDescription, describe_flow
from distcommit.app.checks.folder_check import check_folder
from distcommit.app.checks.password_setting import set_password_remedy
from distcommit.app.checks.published_type_check import compare_published_types
from distcommit.app.job_file.folder_locations import require_separate
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import load_tree, parse_config
from distcommit.app.job_file.problems.key_positions import KeyPositions
from distcommit.app.job_file.problems.setting_problems import JobFileError
from distcommit.core.error_catalogue import ERRORS
from distcommit.core.errors import (
    ConfigurationError,
    DistcommitError,
    SinkUnavailableError,
    SourceError,
    SourceUnavailableError,
    TransientError,
    add_ids,
    error_text,
    shortened_cause,
    split_remedy,
)
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.redaction import redacted
from distcommit.core.support.counts import count_of
from distcommit.engine.system_clock import SystemClock
from distcommit.fs.secret_files import SECRET_FILE, with_secret_files
from distcommit.fs.separate_store import file_system_at
from distcommit.sources.plan_error import PlanError
from distcommit.spark.java_check import check_java
from distcommit.spark.master_check import check_master
from distcommit.spark.session_settings import is_cluster, is_submitted
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.logs.fencing import require_newest
from distcommit.stores.state.job_lock import is_held
from distcommit.stores.state.job_store import has_store, require_unpublished
from distcommit.stores.state.recorded_fixed_settings import require_settings

logger = logging.getLogger(__name__)

_ADDRESSES = ("brokers", "url", "path", "paths", "location", "catalog", "class", "type")
"""Settings with the address of a source or a sink. A failed connection is reported at the first one that is set."""

_MISSING = {"SOURCE_TOPIC_MISSING": "source.topics", "SOURCE_TABLE_MISSING": "source.tables"}
"""Ids of errors of listed datasets that do not exist, with the setting that lists them."""


def check_file(path: Path, overrides: Sequence[str] = (), *, connect: bool = True, plan: bool = False) -> CheckResult:
    """Check a job file without starting Spark. Writes only a probe file, into remote folders, and deletes it.

    Args:
        overrides: `section.key=value` texts that override it.
        connect: whether to connect to the job's folders, source and sinks.
        plan: whether to list the datasets that a run would read; needs `connect`.
    """
    checks = _Checks(path)
    with checks.part("settings"):
        tree = load_tree(path, overrides)
        config = parse_config(tree, path, overrides)
        checks.job = config.job
        folders = JobFolders(config, path, tuple(overrides), tree=tree)
    if checks.failures:
        return checks.result()
    _check(folders, checks, connect=connect, needs_java=connect)
    if connect and not config.tries_out and all(failure.is_missing for failure in checks.failures):
        with checks.part("owner of the folders", "paths"):
            _require_own_folders(folders)
    if connect and not checks.failures and not config.tries_out and folders.has_store():
        with checks.part("published types", "converters"):
            checks.found, warnings = compare_published_types(folders, folders.open_store(create=False))
            checks.warnings += warnings
    dry_run = None
    if plan and connect and all(failure.is_missing for failure in checks.failures):
        is_reported = bool(checks.failures)
        with checks.part("plan", "source"):
            dry_run = plan_dry_run(folders)
            checks.found = f"{dry_run.datasets_count:,} to read"
            _require_planned([row for row in dry_run.datasets if not (is_reported and _is_missing(row.problem))])
    return checks.result(dry_run)


def check_before_run(folders: JobFolders, *, needs_java: bool) -> None:
    """Check a job before a run, and raise the problems.

    If an earlier run may have left sealed commits, an unavailable source is not a problem, because the run can replay
    the commits. If the job has run before, an unavailable sink is not a problem, because commits can wait. In these
    cases the run begins and reports the outage.

    Listed topics or tables that do not exist prevent a first run only if no dataset is left to read.

    Args:
        needs_java: whether the run starts Spark, so that Java is checked. With a remote Spark it is not checked.

    Raises:
        DistcommitError: if a check failed. Several problems raise one CheckFailedError.
    """
    checks = _Checks(folders.path, folders.config.job)
    _check(folders, checks, connect=True, needs_java=needs_java)
    failures = checks.failures
    missing = [failure for failure in failures if failure.is_missing]
    if missing and (not missing[0].selects_nothing or folders.has_store()):
        failures = [failure for failure in failures if not failure.is_missing]  # the run reads the others, and replays
    if any(failure.is_outage for failure in failures):
        tolerated = _tolerated_outages(folders)
        failures = [failure for failure in failures if not (failure.is_outage and failure.name in tolerated)]
    if not failures:
        return
    if len(failures) == 1:
        cause, error = failures[0].error, failures[0].as_run_error(checks.job)
        if (at := checks.position(failures[0])) is not None:
            add_ids(error, at=at)
        raise error from (cause if cause is not error else cause.__cause__)
    problems = [checks.problem(failure) for failure in failures]
    causes = (f"{problem.setting or problem.check}: {shortened_cause(problem.text, 300)}" for problem in problems)
    raise CheckFailedError(
        f"the job can't run: {len(problems)} problems were found before it began",
        problems=problems,
        found="; ".join(causes),
        todo="correct them; `distcommit check JOB.yaml` lists each with its line",
    )


@dataclass(frozen=True, slots=True)
class _Failure:
    name: str
    setting: str
    error: Exception

    @property
    def is_outage(self) -> bool:
        """Whether a system could not be reached, rather than a setting being wrong."""
        is_wrong = isinstance(self.error, ConfigurationError) or self.is_missing
        return self.name in ("source", "sink") and not is_wrong

    @property
    def is_missing(self) -> bool:
        """Whether topics or tables that the job file lists do not exist."""
        return isinstance(self.error, SourceError) and self.error.id in _MISSING

    @property
    def selects_nothing(self) -> bool:
        """Whether no dataset exists that the job file selects."""
        return self.is_missing and isinstance(self.error, SourceError) and self.error.ids["selected"].startswith("0 ")

    def as_run_error(self, job: str) -> DistcommitError:
        """Return the error of a run that cannot begin because of this failure alone."""
        if self.name == "source" and self.is_outage:
            cause = str(self.error) if isinstance(self.error, DistcommitError) else error_text(self.error)
            todo = split_remedy(cause)[1] or "repair the source or its settings, and run again"
            return SourceUnavailableError("no dataset could be planned", job=job, found=cause, todo=todo)
        if isinstance(self.error, DistcommitError):
            return self.error
        kind = SinkUnavailableError if self.name == "sink" else TransientError
        todo = "start the target, or correct the address or the user of the sink, and run again"
        return kind(
            f"the check of the {self.name} failed",
            found=error_text(self.error),
            todo=todo if self.name == "sink" else "",
        )


@dataclass(slots=True)
class _Checks:
    path: Path | None
    job: str = ""
    tree: Mapping[str, Any] = field(default_factory=dict)
    parts: list[CheckedPart] = field(default_factory=list)
    failures: list[_Failure] = field(default_factory=list)
    flow: FlowDescription | None = None
    found: str = ""
    warnings: list[str] = field(default_factory=list)
    _positions: KeyPositions | None = None

    @contextmanager
    def part(self, name: str, setting: str = "") -> Iterator[None]:
        """Run one check and record its outcome. `setting` is the key at which an error is reported."""
        self.found = ""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - of any client; each is reported
            key = set_password_remedy(error, setting, self.tree) or _setting_of(error) or setting
            self.failures.append(_Failure(name, key, error))
            self.parts.append(CheckedPart(name, "failed", "see the problem below"))
        else:
            self.parts.append(CheckedPart(name, "passed", redacted(self.found)))

    def read(self, text: str) -> None:
        """Store the text of `check_connection`: the details of the check, and a warning in each further line."""
        self.found, *warnings = text.split("\n")
        self.warnings += map(redacted, warnings)

    def skip(self, name: str, reason: str) -> None:
        self.parts.append(CheckedPart(name, "skipped", reason))

    def position(self, failure: _Failure) -> str | None:
        """Return the position of a failure as `FILE:LINE:COLUMN`; None without a file."""
        if self.path is None:
            return None
        line, column = self._position_of(failure.setting)
        return f"{self.path}:{line or 1}:{column or 1}"

    def problem(self, failure: _Failure) -> CheckProblem:
        of_run = failure.as_run_error(self.job)
        error = failure.error if isinstance(failure.error, DistcommitError) else of_run
        text, remedy = split_remedy(redacted(str(error)))
        return CheckProblem(
            check=failure.name,
            text=text,
            remedy=remedy or ERRORS[error.id].action,
            setting=failure.setting,
            file=str(self.path or ""),
            line=self._position_of(failure.setting)[0],
            exit_code=of_run.exit_code,
            column=self._position_of(failure.setting)[1],
            id=error.id,
        )

    def result(self, plan: DryRun | None = None) -> CheckResult:
        problems = [problem for failure in self.failures for problem in self._problems(failure)]
        return CheckResult(self.job, not problems, self.parts, problems, self.flow, plan, self.warnings)

    def _problems(self, failure: _Failure) -> list[CheckProblem]:
        if not isinstance(failure.error, JobFileError):
            return [self.problem(failure)]
        problems = failure.error.problems
        return [
            CheckProblem(
                failure.name,
                problem.text,
                setting=problem.key,
                file=problem.file,
                line=problem.line,
                column=problem.column,
                id=failure.error.id,
            )
            for problem in problems
        ]

    def _position_of(self, setting: str) -> tuple[int, int]:
        if self.path is None:
            return 0, 0
        if self._positions is None:
            self._positions = KeyPositions(_text_of(self.path))
        keys = (int(key) if key.isdecimal() else key for key in setting.split("."))
        return self._positions.of(tuple(keys))


def _setting_of(error: Exception) -> str:
    """Return the key of the setting that an error is about; empty if the error does not name it."""
    return _MISSING.get(error.id, "") if isinstance(error, DistcommitError) else ""


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _check(folders: JobFolders, checks: _Checks, *, connect: bool, needs_java: bool) -> None:
    config, checks.tree = folders.config, folders.tree
    _check_secrets(folders.tree, checks)
    with checks.part("flow", "converters" if config.converters else "source"):
        checks.flow = describe_flow(config)
    if not connect:
        for name in ("java", "folders", "source", "sink"):
            checks.skip(name, "--offline")
        return
    if needs_java and not config.spark.remote:
        with checks.part("java", "spark"):
            check_java()
        if is_cluster(config.spark.master) and not is_submitted():
            with checks.part("spark.master", "spark.master"):
                checks.found = check_master(config.spark.master)
    _check_folders(folders, checks)
    with checks.part("source", _address("source", config.source)):
        checks.read(config.source.check_connection() or f"type {config.source.type}: not checked before a run")
    for section, sink in config.sink_sections().items():
        with checks.part("sink", _address(section, sink)):
            checks.read(sink.check_connection() or f"type {sink.type}: needs no connection")


def _require_own_folders(folders: JobFolders) -> None:
    """Raise the error that a run would raise if store, staging and output do not belong together. Claims no folder."""
    fs, roots = folders.roots()
    if has_store(fs, roots):
        require_newest(folders.open_store(create=False), read_only=True)
    else:
        require_unpublished(fs, roots, folders.config.job)


def _require_planned(datasets: Sequence[PlannedDataset]) -> None:
    """Raise the problem of the first dataset that can't be planned, with the number of all of them."""
    failing = [dataset for dataset in datasets if dataset.problem]
    if failing:
        count = f"{len(failing):,} of {count_of(len(datasets), 'dataset')} can't be planned"
        raise PlanError(count, dataset=failing[0].dataset, found=failing[0].problem)


def _is_missing(text: str) -> bool:
    return text.partition(":")[0] in _MISSING


def _check_secrets(tree: Mapping[str, Any], checks: _Checks) -> None:
    named = [*_secret_files(tree, ())]
    for keys, text in named:
        with checks.part("secret files", ".".join(keys)):
            with_secret_files(text)
            checks.found = f"{'.'.join(keys)} can be read"


def _secret_files(tree: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(tree, Mapping):
        for key, below in tree.items():
            yield from _secret_files(below, (*keys, str(key)))
    elif isinstance(tree, list):
        for number, below in enumerate(tree):
            yield from _secret_files(below, (*keys, str(number)))
    elif isinstance(tree, str) and SECRET_FILE.search(tree):
        yield keys, tree


def _check_folders(folders: JobFolders, checks: _Checks) -> None:
    config = folders.config
    opened: list[tuple[FileSystem, bool]] = []
    with checks.part("folders", "paths.store"):
        require_separate(config.source, config.paths.model_dump())
        fs, roots = folders.roots()
        opened.append((fs, has_store(fs, roots)))
        of_store = file_system_at(fs, roots.store)
        checks.found = f"on a file system of type {fs.scheme}"
        checks.found += f"; the store on one of type {of_store.scheme}" if of_store is not fs else ""
    for fs, is_used in opened:
        for name, path in (("store", roots.store), ("staging", roots.staging), ("output", roots.output)):
            with checks.part(f"paths.{name}", f"paths.{name}"):
                checks.found = check_folder(file_system_at(fs, path), path, is_used=is_used)
        if config.tries_out or not is_used:
            checks.skip("store", "the first run creates it")
            continue
        with checks.part("store", "commit.buckets"):
            store = folders.open_store(create=False)
            checks.found = count_of(store.buckets, "bucket")
        if checks.parts[-1].outcome == "passed":
            with checks.part("fixed settings", "source"):
                require_settings(store, folders.fixed_settings())


def _address(section: str, construct: Any) -> str:
    key = next((name for name in _ADDRESSES if getattr(construct, name, None)), "type")
    return f"{section}.{key}"


def _tolerated_outages(folders: JobFolders) -> Sequence[str]:
    """Return the parts (`source`, `sink`) whose outage does not prevent a run."""
    fs, roots = folders.roots()
    if not has_store(fs, roots):
        return ()
    if is_held(fs, roots.store, SystemClock()):  # another run is alive, and this one is refused
        return ("source", "sink")
    markers = read_markers(fs, roots.output)
    is_clean = markers[Marker.CLEAN] == markers[Marker.BEGAN]
    return () if not markers[Marker.BEGAN] else ("sink",) if is_clean else ("source", "sink")
