"""The whole job under any history: published records equal the model after every step and in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.models import strategies
from tests.models.histories import Crash, Event, Grow, Lose, Overtaken, Released, Restore, Run, Set, Zombie
from tests.models.job_model import Release
from tests.stateful.job_under_test import JobUnderTest
from tests.stateful.profiles import effort

few_urns = st.sampled_from(strategies.FEW_URNS)


class JobMachine(RuleBasedStateMachine):
    """A state machine of runs, crashes, zombies and operators in any order."""

    @initialize(buckets=st.integers(1, 2), records=st.integers(1, 6))
    def begin(self, buckets: int, records: int) -> None:
        self.job = JobUnderTest(buckets)
        self.job.apply(Grow("a", "0", records))

    def datasets(self, *statuses: str) -> list[str]:
        return [urn for urn, dataset in sorted(self.job.model.datasets.items()) if dataset.status in statuses]

    @rule(urn=few_urns, partition=st.sampled_from(strategies.PARTITIONS), records=st.integers(0, 5))
    def source_grows(self, urn: str, partition: str, records: int) -> None:
        self.job.apply(Grow(urn, partition, records))

    @rule(run=strategies.runs(disturbed=False))
    def run_undisturbed(self, run: Run) -> None:
        self.job.apply(run)

    @rule(run=strategies.runs())
    def run_under_trouble(self, run: Run) -> None:
        self.job.apply(run)

    @rule(crash=strategies.crashes(), units=st.integers(1, 2), job_level=st.booleans())
    def run_dies(self, crash: Crash, units: int, job_level: bool) -> None:
        self.job.apply(Run(crash=crash, units=units, job_level=job_level))

    @rule(first=strategies.runs(disturbed=False), nth=st.integers(1, 220), second=strategies.runs(disturbed=False))
    def run_is_overtaken(self, first: Run, nth: int, second: Run) -> None:
        self.job.apply(Overtaken(first, nth, second))

    @rule(back=st.integers(1, 3), short=st.integers(0, 2), drains=st.booleans())
    def zombie_comes(self, back: int, short: int, drains: bool) -> None:
        self.job.apply(Zombie(back, short, drains))

    @precondition(lambda self: self.datasets("pending", "quarantined"))
    @rule(data=st.data())
    def staged_file_is_lost(self, data: st.DataObject) -> None:
        self.job.apply(Lose(data.draw(st.sampled_from(self.datasets("pending", "quarantined")))))

    @precondition(lambda self: self.job.stolen)
    @rule()
    def lost_files_are_restored(self) -> None:
        self.job.apply(Restore())

    @precondition(lambda self: self.datasets("quarantined", "revoking"))
    @rule(data=st.data(), how=st.sampled_from(["retry", "accept", "abandon"]), dies=st.just(0) | st.integers(1, 12))
    def person_releases(self, data: st.DataObject, how: Release, dies: int) -> None:
        self.job.apply(Released(data.draw(st.sampled_from(self.datasets("quarantined", "revoking"))), how, dies))

    @rule(urn=few_urns, tenths=st.none() | st.integers(0, 10))
    def person_sets_watermark(self, urn: str, tenths: int | None) -> None:
        self.job.apply(Set(urn, tenths))

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "job"):
            self.job.check()

    def teardown(self) -> None:
        if hasattr(self, "job"):
            self.job.finish()


TestJob = JobMachine.TestCase
TestJob.settings = effort(30, steps=16)


@effort(60)
@given(strategies.job_histories(20))
def test_every_job_history_ends_with_exact_output(history: list[Event]) -> None:
    job = JobUnderTest()
    for event in history:
        job.apply(event)
    job.finish()
