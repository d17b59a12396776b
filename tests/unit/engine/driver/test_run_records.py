"""Run records: each run leaves one under its own epoch, whatever ends the run, and never at the cost of its commits."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from distcommit.app.inspection.job_status import read_status
from distcommit.core.errors import (
    ConflictError,
    CorruptError,
    FencedError,
    SourceUnavailableError,
)
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import MAX_RUN_REASONS
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import recover, run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.paths.store import BEGUN, RUNS, record_name, record_of
from distcommit.stores.history.retention import Retention
from distcommit.stores.history.run_records import (
    RunFacts,
    RunRecord,
    put_record,
    read_beginning,
    read_record,
    recorded_epochs,
)
from distcommit.stores.history.run_table import TableRow, read_run_table
from distcommit.stores.logs.fencing import begin_run
from tests.golden import samples
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, World
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import (
    NOTHING,
    STAGING,
    Machine,
    OddSource,
    dies,
    fails,
    go,
    launch,
    source,
    statuses,
    with_folders,
)

FOLDER = f"{ROOTS.store}/{RUNS}"
JOB = World(job_level=True)


def recorded(machine: SimulatedPosix, epoch: int) -> RunRecord:
    record = read_record(WORLD.store(machine).fs, ROOTS.store, epoch)
    assert record is not None
    return record


def test_foreign_objects_are_not_run_records(tmp_path: Path) -> None:
    (tmp_path / RUNS).mkdir()
    for name in (record_name(7), record_name(3), record_name(7, BEGUN), "README", ".tmp-0"):
        (tmp_path / RUNS / name).write_bytes(b"")
    assert recorded_epochs(LocalFileSystem(), str(tmp_path)) == [3, 7]


def test_successful_run_records_its_counts() -> None:
    machine = Machine()
    result = go(WORLD, machine, source(a=3, b=[2, 1]))
    record = recorded(machine, result.epoch)
    assert (record.job, record.run_id, record.epoch) == ("job", result.run_id, result.epoch)
    assert (record.command, record.requested_by, record.outcome) == ("run", "somebody", RunOutcome.SUCCEEDED)
    assert 0 < record.began_ms <= record.ended_ms
    assert [(phase.name, phase.seconds, phase.completed) for phase in record.phases] == [
        (name, seconds, True) for name, seconds in result.seconds.items()
    ]
    plan, ingest = record.phases[1].counts, record.phases[2].counts
    assert (plan.datasets_planned, plan.work_units, ingest.records_read) == (2, 3, 6)
    assert record.totals.datasets_published == result.totals.datasets_published == 2
    assert record.totals.records_published == 6
    assert not any((record.quarantined.entries, record.held.entries, record.reasons.entries, record.notes.entries))
    assert (record.error_kind, record.error) == ("", "")


def test_run_that_quarantines_a_dataset_records_its_name_and_reason() -> None:
    machine, data = with_folders(Machine(), "b"), source(b=[2, 1])
    settings = WORLD.begin(machine, data)
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        run(launch, settings)
    machine.restart()
    for path in machine.paths(STAGING):
        machine.remove(path)
    result = go(WORLD, machine, source(a=3, b=[2, 1]))
    record = recorded(machine, result.epoch)
    assert statuses(WORLD, machine) == {"a": "idle", "b": "quarantined"}
    assert record.outcome is RunOutcome.INCOMPLETE
    [quarantined] = record.quarantined.entries
    assert (quarantined.subject, record.quarantined.omitted_count, "is lost" in quarantined.text) == ("b", 0, True)
    assert {(reason.subject, reason.kind) for reason in record.reasons.entries} >= {("b", "skipped, quarantined")}
    again = recorded(machine, go(WORLD, machine, NOTHING).epoch)
    assert (again.quarantined.entries, again.totals.datasets_skipped) == ((), 1), "the record is of this run"


def test_run_that_is_held_back_records_its_sealed_sequences_and_the_reason() -> None:
    machine, data = Machine(), source(a=3, b=1)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    record = recorded(machine, go(JOB, machine, OddSource(data.datasets, extracting=extracting)).epoch)
    assert record.outcome is RunOutcome.HELD_BACK
    assert [held_reason.subject for held_reason in record.held.entries] == ["a"]
    assert [(held_reason.subject, held_reason.kind) for held_reason in record.reasons.entries] == [("b", "failed")]


def test_run_that_cannot_plan_all_datasets_records_how_many_it_held_back() -> None:
    machine = Machine()

    def planning() -> Iterator[object]:
        yield "no plan"

    record = recorded(machine, go(JOB, machine, OddSource(source(a=3, b=1).datasets, planning=planning)).epoch)
    assert (record.outcome, record.held.entries, record.held.omitted_count) == (RunOutcome.HELD_BACK, (), 2)


def test_failed_run_records_its_progress_and_the_reason() -> None:
    machine = Machine()

    def planning() -> Iterator[object]:
        raise ValueError("no route to the source")

    with pytest.raises(SourceUnavailableError):
        go(WORLD, machine, OddSource({}, planning=planning))
    epoch = WORLD.store(machine).job_log().refresh().fence_epoch
    record = recorded(machine, epoch)
    assert (record.outcome, record.error_kind) == (RunOutcome.FAILED, "SOURCE_UNAVAILABLE")
    assert "no route to the source" in record.error
    assert [(phase.name, phase.completed) for phase in record.phases] == [("recover", True), ("plan", False)]
    assert record.totals.buckets == 1


def test_run_that_continues_after_an_error_records_both() -> None:
    machine, world = Machine(), World(loses_ingest=True)
    result = world.run(machine, source(a=3))
    record = recorded(machine, result.epoch)
    assert (record.outcome, record.error) == (RunOutcome.SUCCEEDED, "ingest: aborted")
    assert record.totals.datasets_published == 1
    assert [phase.name for phase in record.phases] == ["recover", "plan", "ingest", "drain"]


@pytest.mark.parametrize("error", [RuntimeError("broken \udcff"), KeyboardInterrupt()])
def test_exception_that_ends_a_run_is_recorded_and_raised_again(error: BaseException) -> None:
    machine = Machine()
    settings = WORLD.begin(machine, source(a=3))
    with pytest.raises(type(error)), recorded_run(settings, "run \udcff", "some\udcffbody"):
        raise error
    record = recorded(machine, settings.epoch)
    assert (record.error_kind, record.requested_by) == (type(error).__name__, "some\\udcffbody")
    assert record.outcome is (RunOutcome.FAILED if str(error) else RunOutcome.INTERRUPTED)


def test_fenced_run_leaves_its_record_under_its_own_epoch() -> None:
    machine = Machine()
    old = WORLD.begin(machine, source(a=3))
    newer = go(WORLD, machine, source(a=3))
    before = machine.paths(FOLDER)
    with pytest.raises(FencedError), recorded_run(old, "run", "a zombie") as context:
        run(launch, old, observer=context)
    record = recorded(machine, old.epoch)
    assert (record.outcome, record.requested_by, record.epoch) == (RunOutcome.FENCED, "a zombie", old.epoch)
    assert recorded(machine, newer.epoch).outcome is RunOutcome.SUCCEEDED
    after = machine.paths(FOLDER)
    assert {path: after[path] for path in before} == before
    with pytest.raises(ConflictError, match="has this record already"):
        put_record(old.store, structs.replace(record, requested_by="another"))
    assert machine.paths(FOLDER) == after


@pytest.mark.parametrize("kind", ["create", "write", "fsync", "rename", "mkdir"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_run_whose_record_cannot_be_written_succeeds_with_a_warning(
    kind: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine, data = Machine(), source(a=3)
    machine.faults.append(fails(code, kind, FOLDER))
    with caplog.at_level(logging.WARNING):
        result = go(WORLD, machine, data)
    assert result.succeeded
    assert "the record of the run was not written" in caplog.text
    machine.restart()
    status = read_status(WORLD.store(machine))
    assert (status.last_run, status.unreadable) == (None, {})
    assert status.no_record == "it ended, and left none"
    assert go(WORLD, machine, source(a=4)).succeeded
    assert WORLD.violation(machine, source(a=4), {}) == "", "the temporary file of the put is swept"


def test_killed_run_leaves_no_record() -> None:
    machine, data = Machine(), source(a=3)
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/a"))
    with suppress(BaseException):
        go(WORLD, machine, data)
    machine.restart()
    status = read_status(WORLD.store(machine))
    assert (status.last_run, status.no_record) == (None, "it is under way, or it died")
    result = go(WORLD, machine, data)
    last = read_status(WORLD.store(machine)).last_run
    assert last is not None
    assert (last.epoch, last.totals.sequences_replayed) == (result.epoch, 1)


def test_unreadable_record_is_reported_and_skipped() -> None:
    machine, data = Machine(), source(a=3)
    epoch = go(WORLD, machine, data).epoch
    path = f"{FOLDER}/{record_name(epoch)}"
    machine.put(path, machine.paths(FOLDER)[path][:-9])
    with pytest.raises(CorruptError, match="the record of a run is corrupt"):
        read_record(WORLD.store(machine).fs, ROOTS.store, epoch)
    status = read_status(WORLD.store(machine))
    assert (status.last_run, status.unreadable) == (None, {})
    assert "the record of a run is corrupt" in status.no_record
    assert path in status.no_record
    assert go(WORLD, machine, source(a=4)).succeeded


def test_recovery_leaves_a_record_too() -> None:
    machine, data = Machine(), source(a=3)
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/a"))
    with suppress(BaseException):
        go(WORLD, machine, data)
    machine.restart()
    settings = WORLD.begin(machine, data)
    with recorded_run(settings, "recover", "somebody") as context:
        result = recover(launch, settings, context)
    record = recorded(machine, settings.epoch)
    assert (result.succeeded, record.outcome, record.command) == (True, RunOutcome.SUCCEEDED, "recover")
    assert [phase.name for phase in record.phases] == ["recover"]
    assert record.totals.sequences_replayed == 1


def test_record_names_a_limited_number_of_each_kind_and_counts_the_others() -> None:
    machine, number = Machine(), MAX_RUN_REASONS + 30
    datasets = source(**{f"d{place:03d}": 1 for place in range(number)}).datasets
    failing = {urn: replace(dataset, fails=frozenset({"0"})) for urn, dataset in datasets.items()}
    result = go(World(buckets=8, partitions=8), machine, OddSource(failing))
    record = read_record(World(buckets=8).store(machine).fs, ROOTS.store, result.epoch)
    assert record is not None
    assert record.totals.datasets_failed == number
    assert len(record.reasons.entries) == MAX_RUN_REASONS
    assert len(record.reasons.entries) + record.reasons.omitted_count == number


def test_records_of_old_runs_are_deleted_by_the_job_s_retention() -> None:
    machine, world = Machine(), replace(WORLD, kept=Retention(runs=4, tables=2))
    epochs = [go(world, machine, source(a=number)).epoch for number in range(1, 8)]
    stored_epochs = [record_of(path.rpartition("/")[2]) for path in machine.paths(FOLDER)]
    assert sorted(stored_epochs, key=str) == sorted(((e, what) for e in epochs[-5:] for what in ("", BEGUN)), key=str)
    for table in ("task_states", "run_tables"):
        below = f"{ROOTS.store}/{table}/"
        assert len({path.removeprefix(below).partition("/")[0] for path in machine.paths(below[:-1])}) == 2 + 1
    machine.put(f"{FOLDER}/.tmp-{record_name(99)}-{'0' * 32}", b"{")
    machine.put(f"{FOLDER}/notes.txt", b"somebody's")
    go(world, machine, source(a=8))
    remaining = {path.rpartition("/")[2] for path in machine.paths(FOLDER)}
    assert {name for name in remaining if record_of(name) is None} == {"notes.txt"}


def test_run_whose_clock_was_set_back_deletes_none_of_its_own_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run id sorts before those of earlier runs."""
    machine, world = Machine(), World(buckets=2, partitions=2, kept=Retention(tables=1))
    for number in range(1, 4):
        go(world, machine, source(a=number, g=number))
    monkeypatch.setattr("tests.simulation.world.new_run_id", lambda: f"19700101T000000-{'0' * 12}")
    result = go(world, machine, source(a=5, g=5))
    assert (result.succeeded, result.totals.datasets_published) == (True, 2)


def table_of(machine: SimulatedPosix, run_id: str) -> dict[str, TableRow]:
    """Return the outcome of each dataset."""
    outcomes: dict[str, TableRow] = {}
    for rows in read_run_table(WORLD.store(machine).fs, ROOTS.store, run_id):
        outcomes = {row.dataset: row for row in rows.outcomes} | outcomes
    return outcomes


def test_run_records_its_starter_and_versions_when_it_begins() -> None:
    machine = Machine()
    settings = WORLD.begin(machine, source(a=3))
    facts = RunFacts({"job": "x"}, {"python": "3"}, "host", 7, "/job.yaml", retained_runs=3, retained_tables=2)
    with recorded_run(settings, "run", "somebody", facts=facts):
        beginning = read_beginning(settings.store.fs, ROOTS.store, settings.epoch)
        assert read_record(settings.store.fs, ROOTS.store, settings.epoch) is None
    assert beginning is not None
    assert (beginning.epoch, beginning.run_id, beginning.requested_by, beginning.facts) == (
        settings.epoch,
        settings.run_id,
        "somebody",
        facts,
    )
    for after in machine.after_power_loss(random.Random(1), 5, 8):
        assert read_beginning(WORLD.store(after).fs, ROOTS.store, settings.epoch) == beginning


def test_dataset_table_of_a_run_has_the_outcome_of_each_dataset() -> None:
    machine = with_folders(Machine(), "c")
    machine.faults.append(dies("rename", "/output/c/", nth=2))
    with suppress(BaseException):
        run(launch, WORLD.begin(machine, source(c=[2, 1])))
    machine.restart()
    datasets = source(a=3, b=1, c=[2, 1]).datasets
    failing = {**datasets, "b": replace(datasets["b"], fails=frozenset({"0"}))}
    first = go(WORLD, machine, OddSource(failing))
    rows = table_of(machine, first.run_id)
    assert {urn: (row.outcome, row.counts.records_published) for urn, row in rows.items()} == {
        "a": ("published", 3),
        "b": ("failed", 0),
        "c": ("replayed", 3),
    }
    assert (rows["b"].kind, bool(rows["b"].reason), rows["a"].reason) == ("failed", True, "")
    assert rows["a"].counts.files_published == 1


def test_dataset_table_of_a_run_names_held_datasets_and_the_cause() -> None:
    machine, data = Machine(), source(a=3, b=1)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    result = go(JOB, machine, OddSource(data.datasets, extracting=extracting))
    assert {urn: row.outcome for urn, row in table_of(machine, result.run_id).items()} == {"a": "held", "b": "failed"}
    again = go(JOB, machine, data)
    assert {row.outcome for row in table_of(machine, again.run_id).values()} == {"published"}


def test_dataset_table_that_cannot_be_written_does_not_cost_the_record(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.faults.append(fails(errno.ENOSPC, "create", "/run_tables/"))
    assert go(WORLD, machine, source(a=3)).succeeded
    assert "rows of a task were not written" in caplog.text


def test_record_is_put_again_after_a_newer_run_swept_its_temporary_file() -> None:
    machine = Machine()
    store = WORLD.store(machine)
    machine.faults.append(fails(errno.ENOENT, "rename", FOLDER, times=1))
    put_record(store, samples.RUN_RECORD)
    assert recorded(machine, samples.RUN_RECORD.epoch) == samples.RUN_RECORD


def test_record_is_durable_after_its_put() -> None:
    machine = Machine()
    result = go(WORLD, machine, source(a=3))
    for after in machine.after_power_loss(random.Random(1), 5, 8):
        assert recorded(after, result.epoch).outcome is RunOutcome.SUCCEEDED


def test_epoch_taken_without_a_run_has_no_record() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    begin_run(WORLD.store(machine), "somebody else")
    assert read_status(WORLD.store(machine)).no_record == "it is under way, or it died"


@pytest.mark.parametrize(
    ("name", "epoch", "what"),
    [("0000000007.json", 7, ""), ("12345678901.json", 12345678901, ""), ("0000000007-begun.json", 7, BEGUN)],
)
def test_run_record_names_are_built_and_parsed(name: str, epoch: int, what: str) -> None:
    assert (record_name(epoch, what), record_of(name)) == (name, (epoch, what))


@pytest.mark.parametrize(
    "name",
    ["7.json", "0000000007", ".tmp-0000000007.json", "00000000x7.json", "\u0660.json", "0000000007-x.json"],
)
def test_other_names_are_not_records(name: str) -> None:
    assert record_of(name) is None
