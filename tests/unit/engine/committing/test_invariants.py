"""Invariants I5, I8, I9 and I10 in whole runs. `test_write_ahead.py` tests I1, I3, I6 and I7;
`test_twins_and_zombies.py` tests I2 and I4.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.records.log_records import SetWatermark
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.planning.plan_partition import build_manifest, plan_partition
from distcommit.engine.planning.work_distribution import MAX_REPORTED_UNITS
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.reading.task_plan import ingest_tasks
from distcommit.steps.step_registry import load_steps
from distcommit.stores.state.run_plans import put_manifest
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import World
from tests.unit.engine.committing.situations import WORLD, check_recovery, killed_at
from tests.unit.engine.driver.machines import (
    OUTPUT,
    STAGING,
    Machine,
    OddSource,
    Once,
    audit,
    begin_ingest,
    dies,
    go,
    ingest_all,
    published,
    source,
    states,
)

# -- I5: watermarks move by compare-and-set


@pytest.mark.parametrize("job_level", [False, True])
def test_watermark_set_by_an_operator_during_a_run_is_kept_and_reported(job_level: bool) -> None:
    world, machine = World(job_level=job_level), Machine()
    plain = source(a=3, b=4)

    def by_hand(unit: WorkUnit) -> None:
        if unit.dataset_urn == "a":
            log = world.store(machine).bucket_log(0)
            run_alone(log.settle(Once(SetWatermark("a", Watermark({"0": 1}), "me"))))

    result = go(world, machine, OddSource(plain.datasets, extracting=by_hand))
    assert not result.succeeded
    assert result.totals.datasets_planned == 2
    assert states(world, machine)["a"].watermark == Watermark({"0": 1})
    assert not [path for path in published(machine) if "/a/" in path]
    if not job_level:
        assert (result.totals.datasets_published, result.totals.datasets_failed) == (1, 1)
        assert [(r.subject, r.text) for r in result.reasons.entries] == [
            ("a", "an operator changed its watermark while the run read it")
        ]
    assert go(world, machine, plain).succeeded
    assert world.watermarks(machine) == {"a": Watermark({"0": 3}), "b": Watermark({"0": 4})}
    audit_result = audit(world, machine)
    assert (audit_result.exact, audit_result.records) == (True, 2 + 4)


# -- I8: fail closed


@pytest.mark.parametrize("damage", ["gone", "other bytes staged", "other bytes published"])
def test_lost_step_quarantines_its_dataset_with_a_reason_and_moves_no_watermark(damage: str) -> None:
    machine, data = Machine(), source(a=3, b=2, c=1)
    settings, tasks = begin_ingest(WORLD, machine, data)
    machine.faults.append(dies("rename", OUTPUT + "/"))
    with pytest.raises(Crashed):
        ingest_all(replace(settings, min_interval_s=1), tasks)
    machine.restart()
    state = states(WORLD, machine)
    lost_urn = sorted(urn for urn in state if state[urn].sequence is not None)[0]
    sequence = state[lost_urn].sequence
    assert sequence is not None
    store = WORLD.store(machine)
    [step] = load_steps(sequence.steps, StepContext(store.fs, store.roots.staging, store.roots.output))
    path = getattr(step, "target" if damage == "other bytes published" else "source")
    if damage == "gone":
        machine.remove(path)
    else:
        machine.put(path, b"not what was sealed")
    result = go(WORLD, machine, data)
    assert (result.totals.datasets_quarantined, result.succeeded) == (1, False)
    after = states(WORLD, machine)
    assert (after[lost_urn].status.value, after[lost_urn].watermark) == ("quarantined", None)
    assert "expected" in after[lost_urn].reason
    assert ("no file at either path" if damage == "gone" else "other bytes (19 bytes") in after[lost_urn].reason
    assert {urn: s.watermark for urn, s in after.items() if urn != lost_urn} == {
        urn: Watermark(dict(data.datasets[urn].partitions)) for urn in data.datasets if urn != lost_urn
    }


def test_corrupt_log_record_stops_only_the_datasets_of_its_bucket() -> None:
    world, machine = World(buckets=3), Machine()
    data = source(a=1, b=1, c=1, d=1, e=1)
    assert go(world, machine, data).succeeded
    more = source(a=2, b=2, c=2, d=2, e=2)
    bucket = next(b for b in range(3) if world.store(machine).bucket_log(b).refresh().datasets)
    stuck = set(world.store(machine).bucket_log(bucket).refresh().datasets)
    newest = max(p for p in machine.paths(f"/job/store/log/bucket={bucket:05d}") if p.endswith(".seg"))
    whole = machine.paths("/job")[newest]
    machine.put(newest, whole[:-5])
    result = go(world, machine, more)
    assert not result.succeeded
    assert {r.kind for r in result.reasons.entries if r.subject == f"bucket {bucket}"} == {"LOG_SEGMENT_CORRUPT"}
    assert result.totals.datasets_published == 5 - len(stuck) > 0
    machine.put(newest, whole)
    check_recovery(machine, more, world)


def test_bucket_log_that_lost_its_segments_is_damaged_never_new() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(a=3)).succeeded
    files = published(machine)
    for path in machine.paths("/job/store/log/bucket=00000"):
        machine.remove(path)
    result = go(WORLD, machine, source(a=5))
    assert (result.succeeded, result.totals.datasets_planned) == (False, 0)
    assert {reason.kind for reason in result.reasons.entries} == {"LOG_SEGMENT_MISSING"}
    assert published(machine) == files


# -- I9: the driver counts only


@pytest.mark.parametrize("failing", [False, True])
def test_driver_reports_do_not_grow_with_the_number_of_datasets(failing: bool) -> None:
    sizes = []
    for number in (25, 1000):
        machine = Machine()
        fail = frozenset({"0"}) if failing else frozenset[str]()
        data = ModelSource(
            {f"dataset-{place:05d}": ModelDataset({"0": 100 if failing else 0}, fails=fail) for place in range(number)}
        )
        settings = replace(WORLD.begin(machine, data), min_interval_s=1)
        recover_partition(settings, 0)
        planned = plan_partition(settings, 0)
        manifest = build_manifest(settings, [planned])
        put_manifest(settings.store.fs, settings.store.roots.store, manifest)
        ingested = ingest_partition(settings, ingest_tasks(settings, manifest) - 1)
        record_ingest_ended(settings.store.fs, settings.store.roots.store, settings.run_id)
        drained = drain_partition(settings, 0)
        assert planned.report.counts.datasets_planned == number
        assert drained.counts.datasets_failed + drained.counts.datasets_published == number
        assert len([*drained.reasons]) + drained.reasons.omitted_count == (number if failing else 0)
        encoded = [msgspec.msgpack.encode(report) for report in (planned.report, ingested, drained)]
        sizes.append([len(data) for data in encoded])
        assert len(planned.largest) <= MAX_REPORTED_UNITS
    assert [few + 40 >= many for few, many in zip(*sizes, strict=True)] == [True] * 3, sizes


# -- I10: skipping keeps the watermark


def test_skipped_datasets_keep_their_watermarks_over_many_runs() -> None:
    machine = Machine()
    assert go(WORLD, machine, source(absent=2, problem=3, stuck=1, well=1)).succeeded
    killed_at(machine, "rename", OUTPUT + "/stuck/", source(stuck=4))
    [staged] = machine.paths(STAGING)
    machine.remove(staged)
    for number in range(2, 42):
        odd = OddSource(
            source(stuck=9, well=number).datasets, planning=lambda: iter([DatasetProblem("problem", "unreachable")])
        )
        result = go(WORLD, machine, odd)
        assert not result.succeeded
        assert {r.subject for r in result.reasons.entries} == {"problem", "stuck"}
    segments = [path for path in machine.paths("/job/store/log/bucket=00000") if path.endswith(".seg")]
    assert len(segments) < 2 * 40, "the run has written and truncated checkpoints"
    assert WORLD.watermarks(machine) == {
        "absent": Watermark({"0": 2}),
        "problem": Watermark({"0": 3}),
        "stuck": Watermark({"0": 1}),
        "well": Watermark({"0": 41}),
    }
