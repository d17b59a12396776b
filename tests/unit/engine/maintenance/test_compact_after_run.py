"""Compaction by the policy of the job file: what it reads, which datasets it looks at, and when it does nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distcommit import Job
from distcommit.app.admin import compact
from distcommit.app.admin.compact import CompactResult, compact_after_run, find_compactable
from distcommit.app.admin.compaction_turn import MOST_BYTES, CompactionTurn
from distcommit.core.errors import DistcommitError, LockHeldError
from distcommit.core.records.deferred_records import deferred
from distcommit.core.records.freshness_targets import BEHIND
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_reasons import Reasons
from distcommit.engine.driver.run import RunResult
from distcommit.pipeline.maintenance import compaction_source, published_files
from distcommit.pipeline.maintenance.compaction_source import CompactionSource
from distcommit.pipeline.maintenance.published_files import LiveFile
from distcommit.sinks.files.footer import Footer, look_into, read_published_footer
from distcommit.stores.folders.tombstones import read_tombstone
from tests.simulation.programs.compact import SMALL_FILES
from tests.unit.app.serving.test_service import write
from tests.unit.engine.maintenance.test_compact import NAMES, Files, grown

BUCKETS = 64


@pytest.fixture
def place(tmp_path: Path) -> Files:
    return grown(Files(tmp_path))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files of which something is read, in order."""
    paths: list[str] = []

    def note(function: Any) -> Any:
        def noted(fs: Any, path: str) -> Any:
            paths.append(path)
            return function(fs, path)

        return noted

    monkeypatch.setattr(published_files, "read_tombstone", note(read_tombstone))
    monkeypatch.setattr(published_files, "read_published_footer", note(read_published_footer))
    monkeypatch.setattr(compaction_source, "look_into", note(look_into))
    return paths


def groups(place: Files, **policy: Any) -> list[list[LiveFile]]:
    flow, store = place.begin({}).flow, place.store()
    source = CompactionSource(place.fs, place.roots.output, flow, replace(SMALL_FILES, **policy))
    state = store.bucket_log(store.bucket_of("a")).refresh().state_of("a")
    return source.groups(state)


@pytest.mark.parametrize("policy", [{"min_files": 4}, {"closed_before_ms": 0}, {"target_file_bytes": 2}])
def test_dataset_without_enough_small_files_costs_no_read(
    place: Files, read: list[str], policy: Mapping[str, Any]
) -> None:
    assert groups(place, **policy) == []
    assert read == []


def test_only_live_small_files_of_folders_that_have_enough_are_read(place: Files, read: list[str]) -> None:
    assert place.compact().succeeded
    read.clear()
    assert groups(place, min_files=4) == []
    assert all(path.endswith(".tombstone") for path in read), "superseded files do not count"
    for end in (10, 11, 12):
        place.run(end, NAMES)
    read.clear()
    (group,) = groups(place, min_files=4)
    live = {f"{place.roots.output}/{file.path}" for file in group}
    assert {path for path in read if not path.endswith(".tombstone")} == live
    assert len(live) == 4


def test_files_of_one_attempt_that_may_share_input_records_stay(place: Files) -> None:
    source = CompactionSource(place.fs, place.roots.output, place.begin({}).flow, SMALL_FILES)
    footer = Footer(
        dataset_urn="a",
        epoch=1,
        run_id="r",
        work_unit_id="w",
        attempt="a",
        records=1,
        content_sum="1",
        makes_several=True,
    )
    file = LiveFile("a/0000000001-w-a-0001.parquet", footer, 1, 1)
    assert source._key(file, Counter({("0000000001-w-a", "main"): 1})) == 0
    assert source._key(file, Counter({("0000000001-w-a", "main"): 2})) is None


def test_each_dataset_is_looked_at_within_a_few_runs() -> None:
    names = [f"topic{number:04d}" for number in range(47)]  # of 3,000 in 64 buckets
    policy, looks = replace(SMALL_FILES, min_files=8), Counter[str]()
    for epoch in range(1, 161, 2):
        chosen = CompactionTurn(policy, epoch).some_of([DatasetState(name) for name in names], BUCKETS)
        looks.update(state.dataset_urn for state in chosen)
    assert looks.keys() == set(names)
    assert sum(looks.values()) < 80 * len(names) / 4, "a run looks at a part of many datasets"
    few = [DatasetState("a")]
    assert CompactionTurn(policy, 1).some_of(few, BUCKETS) == few
    assert {CompactionTurn(policy, epoch).buckets(4)[0] for epoch in range(20)} == {0, 1, 2, 3}


def test_turn_ends_at_its_limit_of_bytes(place: Files) -> None:
    for taken, chosen in ((0, NAMES), (MOST_BYTES - 1, NAMES[:1])):
        turn = CompactionTurn(SMALL_FILES, 4)
        turn._bytes = taken
        find_compactable(place.store(), place.begin({}).flow, SMALL_FILES, dry_run=False, turn=turn)
        assert len(turn.chosen) == len(chosen)


@pytest.fixture
def compacted(monkeypatch: pytest.MonkeyPatch) -> list[CompactionTurn]:
    turns: list[CompactionTurn] = []

    def note(*_: Any, turn: CompactionTurn) -> CompactResult:
        turns.append(turn)
        return CompactResult(dry_run=False)

    monkeypatch.setattr(compact, "compact_job", note)
    return turns


def after(folder: Path, *, succeeded: bool = True, notes: Reasons | None = None, **settings: Any) -> bool:
    """Return whether a compaction after such a run did something."""
    totals = RunCounts(deferred=settings.pop("deferred")) if "deferred" in settings else RunCounts()
    result = RunResult("run", 7, succeeded, True, {}, totals, [], notes=notes or Reasons())
    folders = Job.from_file(write(folder, "job", **settings))._folders
    return compact_after_run(folders, None, result, "me") is not None  # type: ignore[arg-type]


def test_policy_of_the_job_file_is_applied_after_a_run_that_left_nothing(
    tmp_path: Path, compacted: list[CompactionTurn]
) -> None:
    policy: dict[str, Any] = {"compact": {"min_files": 3, "target_file_bytes": 1 << 21, "after": "1h"}}
    assert after(tmp_path, **policy)
    (turn,) = compacted
    assert (turn.policy.min_files, turn.policy.target_file_bytes, turn.policy.rewrites_large) == (3, 1 << 21, False)
    assert turn.policy.most_bytes == MOST_BYTES
    assert not after(tmp_path), "a job without the section"
    assert not after(tmp_path, succeeded=False, **policy)
    assert not after(tmp_path, deferred=deferred("a", "a limit", 5, is_minimum=False), **policy)
    assert not after(tmp_path, notes=Reasons.of("a", BEHIND, "100 s behind"), **policy)
    assert len(compacted) == 1


@pytest.mark.parametrize("error", [LockHeldError("another run"), DistcommitError("no Spark"), OSError("no storage")])
def test_failed_compaction_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> CompactResult:
        raise error

    monkeypatch.setattr(compact, "compact_job", fail)
    assert not after(tmp_path, compact={})
