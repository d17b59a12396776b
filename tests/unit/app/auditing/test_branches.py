"""Branches in the output: the audit of each branch, and rebuilds from outputs with missing files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.auditing.offsets.branch_coverage import Coverage
from distcommit.app.auditing.offsets.read_progress import Continuation, EpochFiles
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.core.records.log_records import DatasetState, DatasetStatus, OpenSequence
from distcommit.core.records.previous_run import PreviousRun
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.sinks.files.footer import FileKind, Footer
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.sinks.files.sink import AccessSettings, FileSink
from tests.models.model_flow import model_flow, records_of
from tests.simulation.world import ROOTS, World
from tests.unit.app.admin.rebuild_store.rebuilding import lose_the_store, remove_clean_mark
from tests.unit.app.admin.rebuild_store.rebuilding import rebuild as rebuilt
from tests.unit.engine.driver.machines import Machine, source

WORLD = World(flow=model_flow, buckets=2)
FIRST, SECOND = source(a=[8], b=3), source(a=[14], b=6)
rebuild = partial(rebuilt, WORLD)


def after(*sources: object) -> Machine:
    machine = Machine()
    for data in sources:
        WORLD.run(machine, data)  # type: ignore[arg-type]
    return machine


def audit(machine: Machine, *, deep: bool = True) -> AuditResult:
    return audit_store(WORLD.store(machine), FIRST.provenance, deep=deep)


def files(machine: Machine, folder: str) -> list[str]:
    """Return the files directly in a folder, ordered by epoch."""
    root = f"{ROOTS.output}/{folder}"
    return sorted(path for path in machine.paths(root) if path.rpartition("/")[0] == root)


def test_audit_counts_the_outcome_of_each_record_in_each_branch() -> None:
    result = audit(after(FIRST))
    rows = {(row.dataset, row.branch): row for row in result.partitions}
    remaining, right = rows["a", "left"], rows["a", "right"]
    # By offset: 0 kept, 1 rejected, 2 doubled, 3 filtered, 4 kept (and rejected on the right), 5 to 7 as 1 to 3.
    assert (remaining.published, remaining.rejected, remaining.filtered, remaining.gaps) == (4, 2, 2, 0)
    assert (right.published, right.rejected, right.filtered, right.gaps) == (3, 3, 2, 0)
    assert result.exact
    assert result.records + result.rejected_records == sum(map(records_of, range(8))) + sum(map(records_of, range(3)))


@pytest.mark.parametrize(
    ("folder", "gaps"),
    [
        ("a/left", {"left": 4}),
        ("a/right", {"right": 3}),
        ("_rejected/a/right", {"right": 1}),
        ("_rejected/a", {"left": 2, "right": 2}),
    ],
)
def test_audit_reports_a_missing_file_as_a_gap_of_its_branch(folder: str, gaps: dict[str, int]) -> None:
    machine = after(FIRST)
    for path in files(machine, folder):
        machine.unlink(path)
    result = audit(machine)
    rows = {row.branch: row.gaps for row in result.partitions if row.dataset == "a" and row.gaps}
    assert not result.exact
    assert {name: rows.get(name, 0) >= count for name, count in gaps.items()} == dict.fromkeys(gaps, True)


def test_audit_reports_a_duplicated_file_although_its_flow_multiplies_records() -> None:
    machine = after(FIRST, SECOND)
    (first, _) = files(machine, "a/left")
    machine.put(first.replace("-0001.", "-0002."), machine.read_file(first))
    result = audit(machine)
    assert (result.exact, result.duplicates, result.gaps) == (False, 4, 0)


@pytest.mark.parametrize("clean", [True, False])
def test_lost_store_is_rebuilt_from_all_branches(clean: bool) -> None:
    machine = after(FIRST, SECOND)
    if not clean:
        remove_clean_mark(machine)
    lose_the_store(machine)
    result = rebuild(machine)
    assert result.written
    assert not result.problems_count
    WORLD.run(machine, SECOND)
    assert WORLD.violation(machine, SECOND, {}) == ""


@pytest.mark.parametrize("folder", ["a/left", "a/right", "_rejected/a/right", "_rejected/a"])
def test_epoch_with_missing_files_in_one_branch_is_set_aside_by_a_rebuild(folder: str) -> None:
    """A run that dies while it publishes leaves such an epoch. The next run reads its records again in all branches."""
    machine = after(FIRST, SECOND)
    remove_clean_mark(machine)
    lose_the_store(machine)
    machine.unlink(files(machine, folder)[-1])
    result = rebuild(machine)
    assert result.set_aside_count > 0
    WORLD.run(machine, SECOND)
    assert audit(machine).exact


def test_files_of_one_branch_alone_do_not_complete_an_epoch() -> None:
    """No offset is covered in all branches then."""
    named = OffsetSets()
    named.add_range("0", 0, 1)
    nothing = EpochFiles(1, "", OffsetSets(), ("a/left/1.parquet",), named=named)
    assert not Continuation(DatasetState("a")).joins(nothing)


def test_rebuild_keeps_the_work_units_of_the_newest_run_that_the_store_knows() -> None:
    done, sealed = PreviousRun(6, ()), PreviousRun(7, ())
    sequence = SealedSequence("a", 7, None, Watermark({"0": 3}), (), run=sealed)
    before = DatasetState("a", OpenSequence(DatasetStatus.PENDING, sequence), done_epoch=6, previous_run=done)
    covered = OffsetSets()
    covered.add_range("0", 0, 3)
    after = Continuation(before)
    assert after.state_after(before, 0, {}).previous_run == done
    after.move(EpochFiles(7, "", covered, ("a/1.parquet",)))
    assert after.state_after(before, 0, {}).previous_run == sealed


def footer(
    attempt: str, number: int = 2, *, several: bool = True, kind: FileKind = "data", branch: str = "left"
) -> Footer:
    return Footer(
        dataset_urn="a",
        epoch=3,
        run_id="run",
        work_unit_id="w",
        attempt=attempt,
        records=1,
        kind=kind,
        branch=branch,
        branches=("left", "right"),
        makes_several=several,
        number=number,
    )


def offsets(*ranges: tuple[int, int]) -> OffsetSets:
    sets = OffsetSets()
    for low, high in ranges:
        sets.add_range("0", low, high)
    return sets


@pytest.mark.parametrize(
    ("second", "twice"),
    [
        (footer("one"), 0),  # several files of one attempt may share an input record,
        (footer("two"), 2),  # files of two attempts must not,
        (footer("one", 1), 2),  # nor may one file contain it twice
        (footer("one", several=False), 2),
        (footer("one", branch="right"), 0),
        (footer("one", kind="rejected"), 2),
        (footer("one", kind="rejected", branch=""), 2),
        (footer("one", kind="rejected", branch="right"), 0),
    ],
)
def test_input_record_is_a_duplicate_in_a_branch_if_two_attempts_contain_it(second: Footer, twice: int) -> None:
    first = footer("one", 1)
    for order in ((first, second), (second, first)):
        coverage = Coverage()
        for part, sets in zip(order, (offsets((0, 5)), offsets((3, 8))), strict=True):
            coverage.add(part, sets)
        assert coverage.branches()["left"].duplicates.count() == twice


def test_records_read_before_a_branch_existed_are_not_owed_to_it() -> None:
    coverage = Coverage()
    coverage.add(msgspec.structs.replace(footer("one"), branches=("left",)), offsets((0, 5)))
    coverage.add(footer("two"), offsets((5, 8)))
    right = coverage.branches()["right"]
    assert list(right.not_owed.offsets("0")) == [0, 1, 2, 3, 4]
    assert list(coverage.covered().offsets("0")) == [0, 1, 2, 3, 4]


def test_error_files_have_the_access_settings_of_the_data_files() -> None:
    tree = {
        "job": "j",
        "source": {"type": "kafka", "brokers": "b:1", "topics": ["t"]},
        "sink": {"access": {"mode": "0640"}},
        "paths": {name: f"/{name}" for name in ("store", "staging", "output")},
    }
    flow = parse_config(tree, Path("/job.yaml")).task_flow()
    assert flow.sink_of("errors/hourly") == FileSink(access=AccessSettings(mode="0640"))
