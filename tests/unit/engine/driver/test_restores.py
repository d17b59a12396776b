"""Restoring store, output or bucket logs from copies of different ages: the job is rejected, the loss is reported, or
nothing was lost.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from distcommit.app.admin.rebuild_store import accept_store
from distcommit.app.auditing.audit import audit_store
from distcommit.app.inspection.dry_runs.sweep_plan import show_sweeps
from distcommit.app.inspection.job_status import read_status
from distcommit.core.errors import FencedError, LostTailError, StaleStoreError
from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.core.records.job_log_records import Cut, CutPhase
from distcommit.core.records.log_records import Checkpoint, Done, Fence, Intent
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.run import RunResult, recover, run
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.protocol import next_log_record
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.stores.history.retention import DEFAULT_RETENTION, Retention
from distcommit.stores.logs.fencing import require_newest
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.operator.operator_actions import retry_all, set_watermark
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import files_below, new_machine, planned, replace_files
from tests.simulation.programs.restores import AFTER, BEFORE, LOG_OF_A, THEN, WORLD, run_after_a_restore
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, launch_here

Files = dict[str, bytes]


class Moments:
    """A run that dies before its operation of that number, with the contents of a folder before each earlier
    operation.
    """

    def __init__(self, machine: SimulatedPosix, dies_at: int, root: str) -> None:
        self.found: list[Files] = []

        def gate(operation: Operation) -> None:
            files = files_below(machine, root)
            if not self.found or files != self.found[-1]:
                self.found.append(files)
            self.seen += 1
            if self.seen > dies_at:
                raise Crashed

        self.seen, machine.gate = 0, gate
        with suppress(Crashed):
            WORLD.run(machine, THEN)
        machine.gate = None


def before() -> SimulatedPosix:
    machine = new_machine()
    assert WORLD.run(machine, BEFORE).succeeded
    return machine


def operations() -> int:
    return Moments(before(), 1_000_000, "/nowhere").seen


def killed(when: Callable[[SimulatedPosix, Operation], bool]) -> SimulatedPosix:
    """Kill the second run before the first operation that matches."""
    machine = before()

    def gate(operation: Operation) -> None:
        if when(machine, operation):
            raise Crashed

    machine.gate = gate
    with pytest.raises(Crashed):
        WORLD.run(machine, THEN)
    machine.gate = None
    return machine.after_kill()


def segments(machine: SimulatedPosix, folder: str = LOG_OF_A) -> list[str]:
    return sorted(path for path in files_below(machine, folder) if path.endswith(".seg"))


def record_of(machine: SimulatedPosix, path: str) -> object:
    return decode_segment(files_below(machine, path.rpartition("/")[0])[path], path).record


def has(machine: SimulatedPosix, record: type, epoch: int) -> bool:
    log_records = [record_of(machine, path) for path in segments(machine)]
    return any(
        isinstance(log_record, record) and getattr(log_record, "epoch", 0) == epoch for log_record in log_records
    )


def cut_back_before(machine: SimulatedPosix, record: type) -> Files:
    """Remove the newest segments of a log, from the last record of that kind on, and return them."""
    paths = segments(machine)
    first = max(place for place, path in enumerate(paths) if isinstance(record_of(machine, path), record))
    removed = {path: files_below(machine, LOG_OF_A)[path] for path in paths[first:]}
    for path in removed:
        machine.unlink(path)
    return removed


def kinds(result: RunResult) -> set[str]:
    return {reason.kind for reason in result.reasons.entries}


@pytest.mark.thorough
@pytest.mark.parametrize("root", [LOG_OF_A, ROOTS.output, f"{ROOTS.store}/log/job", f"{ROOTS.store}/task_states"])
def test_part_restored_to_any_moment_is_rejected_or_reported_or_lost_nothing(root: str) -> None:
    rng, last = random.Random(1), operations()
    for dies_at in (last + 1, *rng.sample(range(last // 3, last), 7)):
        lived = before()
        moments = Moments(lived, dies_at, root).found
        for files in rng.sample(moments, min(2, len(moments))):
            machine = lived.after_kill()
            replace_files(machine, root, files)
            assert run_after_a_restore(machine) == "", (dies_at, len(moments))


def test_emptied_or_relocated_output_is_rejected() -> None:
    machine = before()
    elsewhere = replace(WORLD.store(machine), roots=replace(ROOTS, output="/job/elsewhere"))
    with pytest.raises(StaleStoreError, match="an unclaimed output"):
        require_newest(elsewhere)
    assert not files_below(machine, "/job/elsewhere")
    replace_files(machine, ROOTS.output, {})
    with pytest.raises(StaleStoreError, match="rebuild --keep-watermarks"):
        WORLD.run(machine, THEN)
    assert accept_store(WORLD.store(machine), "kept", "person").written
    assert WORLD.run(machine, THEN).succeeded


def test_output_moved_with_its_markers_is_accepted() -> None:
    machine = before()
    machine.mkdir("/job/elsewhere")
    machine.mkdir(f"/job/elsewhere/{OWNERSHIP_FOLDER}")
    for path, data in files_below(machine, f"{ROOTS.output}/{OWNERSHIP_FOLDER}").items():
        replace_files(machine, "/nowhere", {path.replace(ROOTS.output, "/job/elsewhere"): data})
    require_newest(replace(WORLD.store(machine), roots=replace(ROOTS, output="/job/elsewhere")))


def test_output_of_the_previous_run_is_rejected() -> None:
    machine = before()
    output = files_below(machine, ROOTS.output)
    WORLD.run(machine, THEN)
    replace_files(machine, ROOTS.output, output)
    with pytest.raises(StaleStoreError, match="runs up to epoch 5 in the store, up to 2 in the output"):
        WORLD.run(machine, AFTER)


def test_bucket_that_lost_its_newest_segments_is_left_alone_until_they_are_restored() -> None:
    machine = before()
    WORLD.run(machine, THEN)
    removed = cut_back_before(machine, Done)
    remaining = segments(machine)
    for _ in range(2):
        result = WORLD.run(machine, AFTER)
        assert kinds(result) == {LostTailError.id, "not fenced"}
        assert not result.succeeded
        assert result.totals.datasets_published <= 1  # that of the other bucket
        assert segments(machine) == remaining
    assert "lost its newest segments" in read_status(WORLD.store(machine)).unreadable["bucket 1"]
    with pytest.raises(LostTailError):
        set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "person")
    assert "bucket 1" in retry_all(WORLD.store(machine), "person").unreadable
    assert not audit_store(WORLD.store(machine), AFTER.provenance, deep=False).duplicates
    replace_files(machine, "/nowhere", removed)
    assert WORLD.run(machine, AFTER).succeeded
    assert WORLD.violation(machine, AFTER, {}) == ""


def test_different_segment_in_place_of_the_newest_one_is_reported() -> None:
    machine = before()
    *_, newest = segments(machine)
    set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "person")
    files = files_below(machine, LOG_OF_A)
    files[segments(machine)[-1]] = files[newest]
    replace_files(machine, LOG_OF_A, files)
    assert LostTailError.id in kinds(WORLD.run(machine, THEN))


def test_log_continued_by_an_older_program_after_losing_its_tail_is_reported() -> None:
    machine = before()
    files = files_below(machine, LOG_OF_A)
    set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "person")
    replace_files(machine, LOG_OF_A, files)
    for position in (0, 1):
        log = WORLD.store(machine).bucket_log(1)
        dataset_state = log.refresh().state_of("a")
        run_alone(
            log.settle(
                partial(
                    next_log_record.set_watermark,
                    before=dataset_state,
                    watermark=Watermark({"0": position}),
                    user="another",
                )
            )
        )
    assert LostTailError.id in kinds(WORLD.run(machine, THEN))


def test_lost_operator_record_is_reported() -> None:
    machine = before()
    log = files_below(machine, LOG_OF_A)
    set_watermark(WORLD.store(machine), "a", Watermark({"0": 1}), "person")
    replace_files(machine, LOG_OF_A, log)
    assert LostTailError.id in kinds(WORLD.run(machine, THEN))


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_lost_commit_of_a_dead_run_is_reported_by_every_later_run(partitions: int) -> None:
    """The last head of the bucket log is that of the dead run's beginning, which the log still contains. The number of
    partitions of later runs makes no difference.
    """
    later = replace(WORLD, partitions=partitions)
    machine = killed(lambda machine, operation: operation.kind == "rename" and has(machine, Done, 5))
    cut_back_before(machine, Intent)
    other = machine.after_kill()
    for records in range(3, 15):  # more runs than the retention of task states
        shown = show_sweeps(WORLD.store(machine), DEFAULT_RETENTION, 2).files
        before_it = files_below(machine, ROOTS.store)
        result = later.run(machine, ModelSource({"a": ModelDataset({"0": 5}), "g": ModelDataset({"0": records})}))
        assert LostTailError.id in kinds(result)
        assert result.totals.datasets_published == 1
        assert len(machine.scandir(f"{ROOTS.store}/plans")) <= DEFAULT_RETENTION.tables + 1, (
            "older plans are not needed"
        )
        deleted = before_it.keys() - files_below(machine, ROOTS.store).keys()
        assert {*shown} <= deleted
        others = {path.rpartition("/")[0].rpartition("/log/")[2] for path in deleted - {*shown}}
        assert others <= {"bucket=00000", "job"}, "segments are deleted only below the run's own checkpoint"
        task_state_folders = len(machine.scandir(f"{ROOTS.store}/task_states"))
        assert task_state_folders <= DEFAULT_RETENTION.tables + 3, "nor the reports of runs that leave the bucket alone"
    assert run_after_a_restore(other) == ""


def test_run_paused_since_its_recovery_deletes_nothing_that_newer_runs_need() -> None:
    """The paused run does not know what newer runs could not recover."""
    machine, world, slept = before(), replace(WORLD, kept=Retention(tables=1)), list[str]()

    def looks(records: int) -> set[str]:
        return kinds(world.run(machine, ModelSource({"a": ModelDataset({"0": 5}), "g": ModelDataset({"0": records})})))

    def newer_runs() -> None:
        dying = world.begin(machine, THEN)

        def gate(operation: Operation) -> None:
            if operation.kind == "rename" and has(machine, Done, dying.epoch):
                raise Crashed

        machine.gate = gate
        with pytest.raises(Crashed):
            run(launch_here, dying)
        machine.gate = None
        cut_back_before(machine, Intent)
        for records in (3, 4, 5):
            assert LostTailError.id in looks(records)

    class Sleeps(SimulatedFileSystem):
        def list_folder(self, path: str) -> list[FolderEntry]:
            if path == f"{ROOTS.store}/plans" and not slept:
                slept.append(path)
                newer_runs()
            return super().list_folder(path)

    settings = world.begin(machine, THEN)
    with pytest.raises(FencedError):
        recover(launch_here, replace(settings, store=replace(settings.store, fs=Sleeps(machine))))
    assert slept
    assert LostTailError.id in looks(6)


def test_bucket_without_a_head_in_any_cut_is_checked_by_every_run() -> None:
    """The first run fenced the bucket but could not report the position of its log."""
    machine = new_machine()
    settings = replace(WORLD, kept=Retention(tables=1)).begin(machine, BEFORE)
    failed: list[str] = []

    class Fails(SimulatedFileSystem):
        def list_folder(self, path: str) -> list[FolderEntry]:
            entries = super().list_folder(path)
            if path == LOG_OF_A and not failed and has(machine, Fence, settings.epoch):
                failed.append(path)
                raise OSError(errno.EIO, "unreadable", path)
            return entries

    def gate(operation: Operation) -> None:
        if operation.kind == "rename" and has(machine, Done, settings.epoch):
            raise Crashed

    machine.gate = gate
    with pytest.raises(Crashed):
        run(launch_here, replace(settings, store=replace(settings.store, fs=Fails(machine))))
    machine.gate = None
    assert failed
    cut_back_before(machine, Intent)
    for _ in range(3):
        assert LostTailError.id in kinds(WORLD.run(machine, THEN))


def test_staging_emptied_after_a_run_died_raises_no_alarm() -> None:
    machine = killed(lambda _, operation: operation.kind == "rename" and operation.path.startswith(f"{ROOTS.output}/a"))
    cut_back_before(machine, Intent)
    for path in files_below(machine, ROOTS.staging):
        if OWNERSHIP_FOLDER not in path:
            machine.unlink(path)
    assert WORLD.run(machine, AFTER).succeeded
    assert WORLD.violation(machine, AFTER, {}) == ""


def test_file_of_a_dead_run_must_exist_and_file_of_an_ended_run_need_not() -> None:
    machine = killed(lambda machine, operation: operation.kind == "rename" and has(machine, Done, 5))
    published = [path for path in files_below(machine, ROOTS.output) if "/a/" in path and path.endswith(".parquet")]
    of_ended, of_died = min(published), max(published)
    machine.unlink(of_ended)
    other = machine.after_kill()
    other.unlink(of_died)
    for _ in range(2):
        with pytest.raises(StaleStoreError, match="the output is older than its store"):
            WORLD.run(other, AFTER)
    assert accept_store(WORLD.store(other), "kept", "person").written
    assert WORLD.run(other, AFTER).succeeded
    assert WORLD.run(machine, AFTER).succeeded


def test_restored_log_is_not_carried_over_by_rebucketing() -> None:
    machine = before()
    WORLD.run(machine, THEN)
    cut_back_before(machine, Done)
    other = killed(lambda machine, operation: operation.kind == "rename" and has(machine, Done, 5))
    other.unlink(max(p for p in files_below(other, ROOTS.output) if "/a/" in p and p.endswith(".parquet")))
    for restored, refused in ((machine, LostTailError), (other, StaleStoreError)):
        store = files_below(restored, ROOTS.store)
        with pytest.raises(refused):
            rebucket(WORLD.store(restored), Move(3), "moves", lambda _: None)
        assert files_below(restored, ROOTS.store) == store


def test_bucket_that_loses_its_tail_after_a_rebucket_is_reported_by_its_new_head() -> None:
    machine = before()
    resized = replace(WORLD, resized=True)
    after = rebucket(WORLD.store(machine), Move(3), "moves", lambda _: None).store
    folder = after.bucket_log(after.bucket_of("a")).folder
    files = files_below(machine, folder)
    set_watermark(after, "a", Watermark({"0": 1}), "person")
    replace_files(machine, folder, files)
    assert LostTailError.id in kinds(resized.run(machine, AFTER))


def test_operator_actions_during_and_after_a_run_raise_no_alarm() -> None:
    machine = before()
    acted: list[str] = []

    def gate(operation: Operation) -> None:
        if operation.kind == "rename" and operation.path.startswith(f"{ROOTS.output}/a") and not acted:
            acted.append(operation.path)
            set_watermark(WORLD.store(machine), "g", Watermark({"0": 0}), "person")

    machine.gate = gate
    WORLD.run(machine, THEN)
    machine.gate = None
    assert acted
    set_watermark(WORLD.store(machine), "h", Watermark({"0": 1}), "person")
    assert kinds(WORLD.run(machine, AFTER)) == set()


def test_run_that_publishes_during_an_inspection_is_not_a_lost_tail() -> None:
    machine = before()
    settings = planned(machine, WORLD, THEN)
    ran: list[str] = []

    class Publishes(SimulatedFileSystem):
        def list_folder(self, path: str) -> list[FolderEntry]:
            if "/task_states/" in path and not ran:
                ran.append(path)
                ingest_partition(settings, 0)
            return super().list_folder(path)

    store = replace(WORLD.store(machine), fs=Publishes(machine))
    set_watermark(store, "h", Watermark({"0": 1}), "person")
    assert ran
    assert store.bucket_log(0).refresh().state_of("g").done_epoch == settings.epoch


def test_end_of_a_run_is_a_cut_and_does_not_always_checkpoint_the_job_log() -> None:
    machine = new_machine()
    for _ in range(25):
        WORLD.run(machine, BEFORE)
    log_records = [record_of(machine, path) for path in segments(machine, f"{ROOTS.store}/log/job")]
    assert 8 < len(log_records) < 24
    assert sum(isinstance(record, Checkpoint) for record in log_records) == 2
    cuts = [record.phase for record in log_records if isinstance(record, Cut)]
    assert cuts[-2:] == [CutPhase.BEGAN, CutPhase.ENDED]
    fold = WORLD.store(machine).job_log().refresh()
    assert fold.has_ended
    assert {head.is_complete for head in fold.heads.values()} == {True}
