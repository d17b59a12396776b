"""Requests of a run without work to each bucket's log: the fence, and little more."""

from __future__ import annotations

from collections import Counter

from distcommit.core.records.log_records import Checkpoint, Fence
from distcommit.testing.fakes.faulty_calls import Operation
from tests.simulation.world import World
from tests.unit.engine.driver.machines import BUCKET_LOG, Machine, go, source

JOB_LOG = "/store/log/job/"
_CHEAP_EVERY = 8


def _asked(world: World, machine: Machine, log: str = BUCKET_LOG) -> Counter[str]:
    """Return the requests of an idle run to the log, by kind."""
    asked: Counter[str] = Counter()

    def noting(operation: Operation) -> None:
        if log in operation.path:
            asked[operation.kind] += 1

    machine.faults.append(noting)
    assert go(world, machine, source(a=3)).succeeded
    machine.faults.remove(noting)
    return asked


def test_log_of_an_idle_bucket_is_listed_five_times_and_its_segments_stay_few() -> None:
    world, machine = World(), Machine()
    assert go(world, machine, source(a=3)).succeeded
    requests = [_asked(world, machine) for _ in range(3 * _CHEAP_EVERY)]
    # Recovery lists the log, checks that it has read everything, and lists once more after its fence. The plan lists
    # twice.
    assert max(asked["scandir"] for asked in requests) == 5 + 1  # the checkpoint is also read
    assert sorted(asked["scandir"] for asked in requests)[len(requests) // 2] == 5
    assert max(asked["read"] for asked in requests) <= 2 * (_CHEAP_EVERY + 2)
    stored = [segment for _, segment in world.store(machine).bucket_log(0).segments()]
    assert len(stored) <= 2 * _CHEAP_EVERY + 2
    records = [segment.record for segment in stored if not isinstance(segment, Exception)]
    assert {type(record) for record in records} == {Checkpoint, Fence}
    epochs = [record.epoch for record in records if isinstance(record, Fence)]
    assert epochs == sorted(set(epochs)), "each run has fenced the bucket"


def test_job_log_stays_short_because_each_look_reads_all_above_its_checkpoint() -> None:
    world, machine = World(), Machine()
    assert go(world, machine, source(a=3)).succeeded
    requests = [_asked(world, machine, JOB_LOG) for _ in range(2 * _CHEAP_EVERY)]
    a_run, looks = 3, 10  # its fence and two cuts; a checkpoint is due at its end
    assert max(asked["read"] for asked in requests) <= looks * (_CHEAP_EVERY + a_run)
    stored = [segment for _, segment in world.store(machine).job_log().segments()]
    assert len(stored) <= 2 * (_CHEAP_EVERY + a_run)
