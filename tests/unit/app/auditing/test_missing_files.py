"""For a source without offsets, the audit reports each missing published file except those that were deleted on
purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.records.log_records import Intent
from distcommit.core.support.io_batching import run_alone
from distcommit.engine.committing import recover
from distcommit.engine.driver.run import run
from distcommit.pipeline.maintenance.reprocess_source import ReprocessSource
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.output import published_epoch
from distcommit.protocol.paths.store import SEGMENT_SUFFIX
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.logs.segment_format import Segment, decode_segment, encode_segment
from distcommit.stores.operator.operator_actions import accept, set_watermark
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset
from tests.models.rejecting_flows import TurningAway
from tests.simulation.programs.parts import put_file
from tests.simulation.world import ROOTS, World
from tests.unit.app.admin.test_expire import Rejecting, aged, retain_and_delete
from tests.unit.app.auditing.test_counts_without_offsets import WithoutOffsets
from tests.unit.app.reading.test_snapshot_reader import Place
from tests.unit.engine.driver.machines import OUTPUT, Machine

TURNED_AWAY = World(flow=TurningAway(frozenset({"a/0/1", "a/0/4"})))
NEVER = World()


@pytest.fixture(autouse=True)
def _logs_go_back_to_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recover, "checkpoint_every", lambda fold: 1000)


def data(end: int) -> WithoutOffsets:
    return WithoutOffsets({"a": ModelDataset({"0": end}, units=2), "b": ModelDataset({"0": end})})


def audit(world: World, machine: Machine) -> AuditResult:
    return audit_store(world.store(machine), None, deep=False)


def files(machine: Machine) -> list[str]:
    return sorted(path for path in machine.paths(OUTPUT) if path.endswith(".parquet"))


def newest(paths: list[str]) -> list[str]:
    last = max(published_epoch(path.rpartition("/")[2]) for path in paths)
    return [path for path in paths if published_epoch(path.rpartition("/")[2]) == last]


@contextmanager
def without(machine: Machine, *paths: str) -> Iterator[None]:
    """Delete files for the duration of the block, and then put them back."""
    contents = {path: machine.read_file(path) for path in paths}
    for path in paths:
        machine.unlink(path)
    yield
    for path, content in contents.items():
        put_file(machine, path, content)


def ran(world: World, machine: Machine, *ends: int) -> None:
    for end in ends:
        assert world.run(machine, data(end)).succeeded
    assert audit(world, machine).exact


def missed(world: World, machine: Machine) -> list[str]:
    """Return the names of the files that the audit reports as missing."""
    result = audit(world, machine)
    assert result.exact is not bool(result.altered)
    return [problem.partition(": the file is missing")[0] for problem in result.altered]


@pytest.mark.parametrize("world", [NEVER, TURNED_AWAY])
def test_missing_file_of_any_run_is_reported_by_name(world: World) -> None:
    machine = Machine()
    ran(world, machine, 3, 5, 8)
    published = files(machine)
    assert len(published) > 8
    for path in published:
        with without(machine, path):
            assert missed(world, machine) == [path.removeprefix(f"{OUTPUT}/")]
            assert "restore it from a backup" in audit(world, machine).altered[0]
    assert audit(world, machine).exact
    with without(machine, *published):
        assert missed(world, machine) == [path.removeprefix(f"{OUTPUT}/") for path in published]


def test_missing_file_below_a_checkpoint_is_reported_by_the_file_count_of_the_last_sequence() -> None:
    machine = Machine()
    ran(NEVER, machine, 3, 5)
    for _ in range(2):
        run_alone(NEVER.store(machine).bucket_log(0).checkpoint(at_least=1))
        ran(NEVER, machine, 5)
    of_a = [path for path in files(machine) if "/a/" in path]
    last = newest(of_a)
    assert (len(of_a), len(last)) == (4, 2)
    for paths, remaining in ((last[:1], 1), (last, 0)):
        with without(machine, *paths):
            (problem,) = audit(NEVER, machine).altered
            assert problem.startswith("a: files of epoch ")
            assert f"found {remaining}; restore the missing files" in problem
    with without(machine, *(path for path in of_a if path not in last)):
        assert audit(NEVER, machine).exact, "files of older sequences are no longer recorded"


def test_reprocessed_error_files_are_not_reported_as_missing_and_data_files_are(tmp_path: Path) -> None:
    place = Rejecting(tmp_path, kept=2)
    place.run(3, ["a"])
    place.run(5, ["a"])
    settings = place.begin({"a": 5})
    errors = ReprocessSource(place.fs, place.roots.output, TaskFlow.straight(settings.flow.source, FileSink()), "a")
    result = run(place.launch, replace(settings, flow=errors.flow.with_source(errors)))
    assert result.totals.records_published == 2
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    for _ in range(3):
        place.run(5, ["a"])
    assert not list(Path(place.roots.output, "_rejected").rglob("*.*")), (
        "reprocessed error files and their tombstone must be deleted"
    )
    assert_each_is_missed(place, 3)


def test_replaced_files_are_not_reported_as_missing_and_their_replacements_are(tmp_path: Path) -> None:
    place = Place(tmp_path, publish="replace", kept=2)
    for end in (3, 5, 6, 8, 9):
        place.run(end, ["a", "b"])
    assert_each_is_missed(place, 4, replaced=2)


def assert_each_is_missed(place: Place, count: int, *, replaced: int = 0) -> None:
    """Require that each of `count` files is reported as missing, except replaced files that are not yet deleted."""
    paths = list(Path(place.roots.output).rglob("*.parquet"))
    missed = list[list[str]]()
    assert len(paths) == count
    assert audit_store(place.store(), None, deep=False).exact
    for path in paths:
        content = path.read_bytes()
        path.unlink()
        missed.append(audit_store(place.store(), None, deep=False).altered)
        path.write_bytes(content)
        below = path.relative_to(place.roots.output)
        assert missed[-1] == [] or missed[-1][0].startswith(f"{below}: the file is missing")
    assert sorted(map(len, missed)) == [0] * replaced + [1] * (count - replaced)


def test_expired_files_are_not_reported_as_missing_and_remaining_files_are(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.run(3, ["a", "b"])
    aged(place)
    place.run(5, ["a", "b"])
    retain_and_delete(place)
    place.run(6, ["a", "b"])
    assert_each_is_missed(place, 4)


def test_files_missing_from_an_accepted_sequence_are_not_reported_and_earlier_files_are() -> None:
    machine = Machine()
    ran(NEVER, machine, 3)
    before = files(machine)

    def dies(operation: Operation) -> None:
        if operation.kind.startswith("rename") and operation.path.startswith(f"{OUTPUT}/a/"):
            raise Crashed

    machine.faults.append(dies)
    with suppress(Crashed):
        NEVER.run(machine, data(5))
    machine.restart()
    machine.remove(next(path for path in machine.paths(ROOTS.staging) if path.endswith(".parquet")))
    tries_once = World(max_attempts=1)
    assert not tries_once.run(machine, data(5)).succeeded
    assert audit(NEVER, machine).pending == ["a (quarantined)"]
    accept(NEVER.store(machine), "a", "ann")
    ran(NEVER, machine, 5)
    for path in before:
        with without(machine, path):
            assert missed(NEVER, machine) == [path.removeprefix(f"{OUTPUT}/")]


def test_files_from_before_a_watermark_reset_may_be_missing_once_their_records_are_read_again() -> None:
    machine = Machine()
    ran(NEVER, machine, 3, 5)
    for path in files(machine):
        if "/a/" in path:
            machine.unlink(path)
    set_watermark(NEVER.store(machine), "a", None, "ann")
    assert not audit(NEVER, machine).exact, "the records must first be read again"
    ran(NEVER, machine, 6)
    for path in files(machine):
        with without(machine, path):
            assert missed(NEVER, machine) == [path.removeprefix(f"{OUTPUT}/")]


def rewrite_segments(machine: Machine, changed: Callable[[Segment], bytes | None]) -> int:
    """Replace segments of the bucket log where `changed` returns other bytes, and return their number."""
    count = 0
    for path in machine.paths(NEVER.store(machine).bucket_log(0).folder):
        data = changed(decode_segment(machine.read_file(path), path)) if path.endswith(SEGMENT_SUFFIX) else None
        if data is not None:
            machine.remove(path)
            machine.put(path, data)
            count += 1
    return count


def of_a_newer_version(segment: Segment) -> bytes | None:
    record = segment.record
    if not isinstance(record, Intent) or not any(sequence.steps for sequence in record.sequences):
        return None
    newer = tuple(
        structs.replace(sequence, steps=tuple(structs.replace(s, version=s.version + 1) for s in sequence.steps))
        for sequence in record.sequences
    )
    return encode_segment(replace(segment, record=structs.replace(record, sequences=newer)))


def test_files_whose_steps_are_of_a_newer_version_are_named_as_not_compared() -> None:
    machine = Machine()
    ran(NEVER, machine, 3, 5)
    epochs = sorted({published_epoch(path.rpartition("/")[2]) for path in files(machine)})
    assert audit(NEVER, machine).unproven_files == []
    assert rewrite_segments(machine, of_a_newer_version) == 2 * len(epochs) == 4
    reason = "whose commit steps have an unknown version"
    expected = [f"{urn}: files of epoch {epoch}, {reason}" for urn in "ab" for epoch in epochs]
    result = audit(NEVER, machine)
    assert (result.exact, result.unreadable, result.unproven_files) == (True, [], expected)


def test_damaged_segment_before_the_newest_checkpoint_is_named_as_not_compared() -> None:
    machine = Machine()
    ran(NEVER, machine, 3, 5)
    run_alone(NEVER.store(machine).bucket_log(0).checkpoint(at_least=1))
    assert audit(NEVER, machine).unproven_files == []
    assert rewrite_segments(machine, lambda segment: b"x" if isinstance(segment.record, Intent) else None) == 4
    result = audit(NEVER, machine)
    assert (result.exact, result.unproven_files_count) == (True, 4)
    assert all(text.startswith("bucket 0: files published before segment") for text in result.unproven_files), result
