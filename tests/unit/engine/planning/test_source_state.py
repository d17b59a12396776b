"""State that a source receives while it plans (that of its own buckets, and that of others on demand), and the identity
that it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from distcommit.core.commit_groups import bucket_of
from distcommit.core.errors import ConfigurationError, FencedError, SourceError, SourceUnavailableError
from distcommit.core.interfaces.source import Extraction, Extractor, Planned, SourceState
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings, SourceFact
from distcommit.core.records.log_records import DatasetState
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.engine.driver.run import run
from distcommit.stores.state.recorded_fixed_settings import read_settings
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import World, launch_here
from tests.unit.engine.driver.machines import Machine, go, source

SPREAD = World(buckets=4, partitions=4)
PINNED = FixedSettings({"source.type": FixedSetting("model")})


@dataclass(frozen=True, slots=True)
class AskingSource(ModelSource):
    """A source that asks for one dataset in each partition of the plan, and reports a cluster identity."""

    asks: str = ""
    cluster: Callable[[], str] = lambda: "one"
    answers: list[DatasetState | None] = field(default_factory=list)

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        yield SourceFact("cluster", FixedSetting(self.cluster(), "use the other."))
        if self.asks:
            assert isinstance(states, SourceState)
            assert (self.asks in states) == owned(self.asks), "the mapping has only states of the caller's buckets"
            self.answers.append(states.anywhere(self.asks))
        yield from ModelSource.plan(self, owned, states)


def test_dataset_of_another_bucket_is_looked_up_and_an_unknown_one_is_absent() -> None:
    machine, data = Machine(), source(a=2, b=1)
    assert go(SPREAD, machine, data).succeeded
    asking = AskingSource(data.datasets, asks="a")
    assert go(SPREAD, machine, asking).succeeded
    assert [state.dataset_urn if state else None for state in asking.answers] == ["a"] * 4
    asking = AskingSource(data.datasets, asks="a")
    log = f"/job/store/log/bucket={bucket_of('a', 4):05d}"
    for path in machine.paths(log):
        machine.put(path, b"not ours")
    with pytest.raises(SourceUnavailableError, match=r"LOG_SEGMENT_CORRUPT: .* rebuild"):
        go(SPREAD, machine, asking)


@dataclass(frozen=True, slots=True)
class CarryingSource(ModelSource):
    """A source that fails to read a dataset the first time, and passes the recorded read failure to its extractor with
    the work units.
    """

    fails: str = ""
    patience: str = "the job's"
    seen: list[tuple[str, str]] = field(default_factory=list)

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        for planned in ModelSource.plan(self, owned, states):
            assert isinstance(planned, DatasetPlan)
            state = states.get(planned.dataset_urn)
            if state is None or state.read_failure is None:
                yield planned
                continue
            properties = {"patience": f"failed {state.read_failure.failed_runs} times: {state.read_failure.reason}"}
            units = tuple(replace(unit, properties={**unit.properties, **properties}) for unit in planned.work_units)
            yield replace(planned, work_units=units)

    def open(self) -> Extractor:
        return CarryingExtractor(self, ModelSource.open(self))


@dataclass
class CarryingExtractor(Extractor):
    source: CarryingSource
    inner: Extractor

    def extract(self, unit: WorkUnit) -> Extraction:
        self.source.seen.append((unit.dataset_urn, unit.properties.get("patience", self.source.patience)))
        if unit.dataset_urn == self.source.fails:
            raise SourceError("it is away")
        return self.inner.extract(unit)

    def close(self) -> None:
        self.inner.close()


def test_custom_source_sees_the_previous_read_failure_and_a_work_unit_property_takes_precedence() -> None:
    machine, data = Machine(), source(a=2, b=1)
    first = CarryingSource(data.datasets, fails="a")
    assert not go(SPREAD, machine, first).succeeded
    assert set(first.seen) == {("a", "the job's"), ("b", "the job's")}
    second = CarryingSource(source(a=2, b=2).datasets)
    assert go(SPREAD, machine, second).succeeded
    ((_, of_a),) = {seen_state for seen_state in second.seen if seen_state[0] == "a"}
    assert of_a == "failed 1 times: SOURCE_FAILED: it is away"
    assert {seen_state for seen_state in second.seen if seen_state[0] == "b"} == {("b", "the job's")}
    third = CarryingSource(source(a=3, b=2).datasets)
    assert go(SPREAD, machine, third).succeeded
    assert third.seen == [("a", "the job's")], "after a successful read no read failure remains"


def test_source_identity_is_recorded_and_another_one_is_rejected_before_the_plan_counts() -> None:
    machine, data = Machine(), source(a=2)
    first = SPREAD.begin(machine, AskingSource(data.datasets))
    assert run(launch_here, first, fixed=PINNED).succeeded
    assert read_settings(first.store).source_facts == {"source.cluster": "one"}
    more = source(a=4)
    other = SPREAD.begin(machine, AskingSource(more.datasets, cluster=lambda: "two"))
    with pytest.raises(ConfigurationError, match=r"source\.cluster: one; found source\.cluster: two.*use the other"):
        run(launch_here, other, fixed=PINNED)
    assert not [path for path in machine.paths("/job/store/plans") if other.run_id in path and "manifest" in path]
    assert read_settings(first.store).source_facts == {"source.cluster": "one"}
    again = SPREAD.begin(machine, AskingSource(more.datasets))
    assert run(launch_here, again, fixed=PINNED).succeeded
    assert SPREAD.violation(machine, more, {}) == ""


def test_executors_that_report_different_source_identities_are_reported() -> None:
    machine, clusters = Machine(), iter("abcd")
    settings = SPREAD.begin(machine, AskingSource(source(a=2).datasets, cluster=lambda: next(clusters)))
    with pytest.raises(ConfigurationError, match="executors found different sources"):
        run(launch_here, settings, fixed=PINNED)
    assert read_settings(settings.store).source_facts == {}


def test_fenced_run_records_no_source_identity() -> None:
    machine, data = Machine(), source(a=2)
    old = SPREAD.begin(machine, AskingSource(data.datasets))
    SPREAD.begin(machine, data)
    with pytest.raises(FencedError):
        run(launch_here, old, fixed=PINNED)
    assert read_settings(old.store).settings == {}
