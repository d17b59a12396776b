"""The task state store and the plan: no row is lost once `append` has returned, and no reader sees a partial file."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from contextlib import suppress

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import structs

from distcommit.core.errors import CorruptError
from distcommit.core.watermark import as_offset
from distcommit.core.work_units import DatasetPlan, TaskOutcome, TaskState
from distcommit.protocol.paths.shared_names import work_unit_name
from distcommit.protocol.seal_decision import CommitPolicy, Ready, readiness
from distcommit.stores.state.run_plans import (
    MANIFEST_VERSION,
    Manifest,
    PlanReader,
    put_manifest,
    read_manifest,
    write_plans,
)
from distcommit.stores.state.task_states import (
    PastStates,
    TaskStateReader,
    TaskStateTables,
    TaskStateWriter,
    ingest_ended,
    prepare_run,
    record_ingest_ended,
)
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.models import strategies
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.stateful.profiles import effort, known_ids
from tests.stateful.test_commit_log import dies_before

ROOT, RUN = "/store", "run"
BUCKETS, PARTITIONS = 3, 2
"""The first partition has the first and the last bucket."""
rows = strategies.plans().flatmap(strategies.task_states)
buckets = st.integers(0, BUCKETS - 1)


class TaskStateMachine(RuleBasedStateMachine):
    """A state machine. `durable` rows were acknowledged; `doubtful` batches belong to dead writers and are present
    whole or not at all.
    """

    @initialize()
    def begin(self) -> None:
        self.ids = random.Random(1)
        machine = SimulatedPosix()
        fs = SimulatedFileSystem(machine)
        fs.make_folders(ROOT)
        for partition in range(PARTITIONS):
            prepare_run(fs, ROOT, RUN, partition, PARTITIONS)
        machine.syncfs("/")
        self.durable: list[list[TaskState]] = [[] for _ in range(BUCKETS)]
        self.doubtful: list[list[list[TaskState]]] = [[] for _ in range(BUCKETS)]
        self.plans: dict[int, list[DatasetPlan]] = {}
        self.published = self.begun = self.ended = False
        self.restart(machine)

    def restart(self, machine: SimulatedPosix) -> None:
        self.machine, self.fs = machine, SimulatedFileSystem(machine)
        with known_ids(self.ids):
            self.writers = [TaskStateWriter(self.fs, ROOT, RUN, PARTITIONS) for _ in range(2)]
        self.tables = [self.followed() for _ in range(2)]
        self.readers = [[self.reader_of(reader, bucket) for bucket in range(BUCKETS)] for reader in range(2)]
        self.polled: list[list[list[TaskState]]] = [[[] for _ in range(BUCKETS)] for _ in self.readers]

    def followed(self) -> TaskStateTables:
        return TaskStateTables(self.fs, ROOT, RUN, PARTITIONS, range(BUCKETS))

    def reader_of(self, reader: int, bucket: int) -> TaskStateReader:
        return TaskStateReader(self.tables[reader], bucket)

    @rule(writer=st.integers(0, 1), states=st.dictionaries(buckets, rows, min_size=1), known=st.booleans())
    def append(self, writer: int, states: dict[int, list[TaskState]], known: bool) -> None:
        put = {bucket: in_bucket(bucket, listed) for bucket, listed in states.items()}
        with known_ids(self.ids):
            names = self.writers[writer].append(put)
        for bucket, listed in put.items():
            name = names[bucket]
            assert isinstance(name, str)
            if known:
                self.readers[writer][bucket].add_states(name, listed)
            self.durable[bucket] += listed

    @rule(reader=st.integers(0, 1), bucket=buckets)
    def poll(self, reader: int, bucket: int) -> None:
        """Read the store: each row comes once, and all durable rows are present after a poll."""
        got = self.polled[reader][bucket]
        got += self.readers[reader][bucket].poll()
        self.is_complete(got, bucket)

    @rule(reader=st.integers(0, 1), bucket=buckets)
    def begin_again(self, reader: int, bucket: int) -> None:
        """Restart a reader for one bucket, beside readers of others: it receives all of that bucket."""
        self.readers[reader][bucket], self.polled[reader][bucket] = self.reader_of(reader, bucket), []

    @rule(plans=st.lists(strategies.plans().filter(lambda plan: plan.work_units), max_size=1), bucket=buckets)
    def plan(self, plans: list[DatasetPlan], bucket: int) -> None:
        if not self.begun and plans:
            self.plans[bucket] = [plan_in_bucket(bucket, plan) for plan in plans]

    @rule(nth=st.none() | st.integers(1, 25))
    def publish_plan(self, nth: int | None) -> None:
        if self.begun:
            return
        self.begun = True
        self.machine.gate = dies_before(nth) if nth else None
        with suppress(Crashed), known_ids(self.ids):
            files = dict[int, str]()
            for partition in range(PARTITIONS):
                own_plans = {bucket: plans for bucket, plans in self.plans.items() if bucket % PARTITIONS == partition}
                files |= write_plans(self.fs, ROOT, RUN, own_plans) if own_plans else {}
            put_manifest(self.fs, ROOT, Manifest(MANIFEST_VERSION, RUN, 1, files))
            self.published = True
        self.machine.gate = None

    @rule()
    def end(self) -> None:
        with known_ids(self.ids):
            record_ingest_ended(self.fs, ROOT, RUN)
        self.ended = True

    @rule(bucket=buckets, states=rows, nth=st.integers(1, 5), power_loss=st.integers(0, 9))
    def crash(self, bucket: int, states: list[TaskState], nth: int, power_loss: int) -> None:
        self.machine.gate = dies_before(nth)
        states = in_bucket(bucket, states)
        try:
            with known_ids(self.ids):
                self.writers[0].append({bucket: states})
            self.durable[bucket] += states
        except Crashed:
            self.doubtful[bucket].append(states)
        self.machine.gate = None
        if power_loss:
            survivors = self.machine.after_power_loss(random.Random(power_loss), 3, 2)
            self.restart(list(itertools.islice(survivors, power_loss))[-1])
        else:
            self.restart(self.machine.after_kill())

    @invariant()
    def everything_holds(self) -> None:
        if not hasattr(self, "fs"):
            return
        for bucket in range(BUCKETS):
            self.is_complete(TaskStateReader(self.followed(), bucket).poll(), bucket)
            self.is_complete(PastStates(self.fs, ROOT).of(RUN, bucket), bucket)
        assert not self.ended or ingest_ended(self.fs, ROOT, RUN)
        try:
            manifest = read_manifest(self.fs, ROOT, RUN)
        except (FileNotFoundError, CorruptError):
            assert not self.published
            return
        reader = PlanReader(self.fs, ROOT, manifest)
        for bucket in range(BUCKETS):
            assert reader.of(bucket) == self.plans.get(bucket, [])

    def is_complete(self, got: list[TaskState], bucket: int) -> None:
        remaining = Counter(map(key, got))
        remaining.subtract(map(key, self.durable[bucket]))
        assert min(remaining.values(), default=0) >= 0, "an acknowledged row is lost"
        for batch in self.doubtful[bucket]:
            if all(remaining[key(state)] > 0 for state in batch):
                remaining.subtract(map(key, batch))
        assert not any(remaining.values()), "a partial file, or duplicate rows"


def in_bucket(bucket: int, states: list[TaskState]) -> list[TaskState]:
    return [structs.replace(state, work_unit_id=unit_in_bucket(bucket, state.work_unit_id)) for state in states]


def plan_in_bucket(bucket: int, plan: DatasetPlan) -> DatasetPlan:
    urn = f"{bucket}-{plan.dataset_urn}"
    units = [
        structs.replace(unit, dataset_urn=urn, work_unit_id=unit_in_bucket(bucket, unit.work_unit_id))
        for unit in plan.work_units
    ]
    return structs.replace(plan, dataset_urn=urn, work_units=tuple(units))


def unit_in_bucket(bucket: int, number: str) -> str:
    return work_unit_name(bucket, int(number))


def key(state: TaskState) -> bytes:
    """Return a key that is equal for equal rows, whatever the order of their partitions."""
    return msgspec.json.encode(state, order="sorted")


TestTaskStates = TaskStateMachine.TestCase
TestTaskStates.settings = effort(12, steps=20)


@effort(100)
@given(data=st.data(), policy=st.sampled_from(CommitPolicy), missing=st.sets(st.integers(0, 9)))
def test_winners_are_one_per_work_unit_and_gap_free(
    data: st.DataObject, policy: CommitPolicy, missing: set[int]
) -> None:
    plan = data.draw(strategies.plans())
    states = data.draw(strategies.task_states(plan))

    def staged(state: TaskState) -> bool:
        return int(state.attempt) % 10 not in missing

    answer = readiness(plan, states, policy=policy, ingest_ended=True, staged=staged)
    if not isinstance(answer, Ready):
        return
    assert len({state.work_unit_id for state in answer.winners}) == len(answer.winners)
    assert all(staged(state) and state in states for state in answer.winners)
    succeeded = {state.work_unit_id for state in states if state.outcome is TaskOutcome.SUCCEEDED and staged(state)}
    for state in answer.winners:
        whole = state.outcome is TaskOutcome.SUCCEEDED
        is_prefix = state.outcome is TaskOutcome.PARTIAL and policy is CommitPolicy.PARTIAL
        assert whole or (is_prefix and state.work_unit_id not in succeeded)
    if policy is CommitPolicy.FULL:
        assert succeeded == {unit.work_unit_id for unit in plan.work_units}
    for partition, high in answer.high.positions.items():
        at = {**plan.start.positions, **(plan.planned_low.positions if plan.planned_low else {})}[partition]
        ranges = [
            (as_offset(state.low.positions[partition]), as_offset(state.actual_high.positions[partition]))
            for state in answer.winners
            if partition in state.low.positions
        ]
        for low, reached in sorted(ranges):
            assert low == at, "a gap, or a record read twice"
            at = reached
        assert at == high
