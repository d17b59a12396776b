"""Runs, operator actions and damage in any order, over incarnations of the source: the audit after each of them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from distcommit.app.by_hand.watermarks import set_watermark
from distcommit.app.output.audit import audit_store
from distcommit.model.errors import ConfigurationError
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.models.turning_away import TurningAway
from distcommit.testing.simulation.world import World
from tests.spec.set_model import Act, SetModel
from tests.unit.app.rebuilding import lose_the_store, rebuild
from tests.unit.engine.machines import Machine, audit, go, published, states

WORLD, MOST = World(), 6
PLACES = st.integers(0, MOST)
ACTS = st.one_of(
    st.builds(Act, st.just("run"), PLACES),
    st.builds(Act, st.just("set"), PLACES),
    st.just(Act("forget")),
    st.just(Act("recreate")),
)


def counting(end: int, incarnation: int, holes: frozenset[int] = frozenset()) -> ModelSource:
    return ModelSource({"a": ModelDataset({"0": end}, incarnation=f"id {incarnation}", holes={"0": holes})})


class Job:
    """A job and its model, with how often each record of each incarnation is published."""

    def __init__(self) -> None:
        self.machine, self.model = Machine(), SetModel()
        self.published = Counter[tuple[int, int]]()
        self.do(Act("run", 0))

    def do(self, act: Act) -> None:
        before = self.model.watermark
        if act.kind == "set" and before is not None and self.model.there != self.model.incarnation:
            return self._refused(act)
        if not self.model.do(act):
            assert not go(WORLD, self.machine, counting(act.at, self.model.there)).succeeded
            return None
        match act.kind:
            case "run":
                source = counting(max(act.at, before or 0), self.model.there)
                assert go(WORLD, self.machine, source).succeeded
                self.published.update((self.model.there, at) for at in range(before or 0, act.at))
            case "set":
                self._set(act.at)
            case "forget":
                self._set(None)
        return None

    def _refused(self, act: Act) -> None:
        try:
            self._set(act.at)
        except ConfigurationError:
            return
        raise AssertionError("positions of a recreated source were set beside those of the one before")

    def _set(self, at: int | None) -> None:
        wanted = None if at is None else {"0": at}
        set_watermark(WORLD.store(self.machine), counting(MOST, self.model.there), "a", wanted, "op", new=False)

    def is_exact(self) -> bool:
        """Whether each record that is published is owed or was skipped, and is there once."""
        of_now = {at for incarnation, at in self.published if incarnation == self.model.incarnation}
        return of_now <= self.model.owed | self.model.passed and all(count == 1 for count in self.published.values())


@settings(deadline=None, max_examples=60)
@given(acts=st.lists(ACTS, min_size=2, max_size=6), place=st.integers(0, 5))
def test_the_audit_is_right_after_each_action_and_misses_each_file(acts: list[Act], place: int) -> None:
    job = Job()
    for act in acts:
        job.do(act)
        found = audit(WORLD, job.machine)
        assert (found.gaps, found.altered, found.unknown_files, found.not_compared) == (0, [], [], []), found
        assert found.exact is job.is_exact(), found
    files = sorted(published(job.machine))
    if files and job.is_exact() and not job.model.passed:
        job.machine.remove(files[place % len(files)])
        assert not audit(WORLD, job.machine).exact


def test_error_files_reprocess_holes_and_rebuild_of_two_incarnations() -> None:
    """In either incarnation record 3 is rejected and 1 is a hole; what is reprocessed is that of both."""
    rejecting, machine, holes = World(flow=TurningAway(frozenset({"a/0/3"}))), Machine(), frozenset({1})
    first, second = counting(5, 1, holes), counting(6, 2, holes)
    assert go(rejecting, machine, first).succeeded
    set_watermark(WORLD.store(machine), second, "a", None, "op", new=False)
    assert go(rejecting, machine, second).succeeded
    store = WORLD.store(machine)
    found = audit_store(store, ModelSource.provenance, deep=True)
    assert (found.exact, found.records, found.rejected, found.holes) == (True, 3 + 4, 2, 2)
    for path in sorted(path for path in machine.paths("/job/output") if path.endswith(".parquet")):
        kept = machine.read_file(path)
        machine.remove(path)
        assert not audit_store(store, ModelSource.provenance, deep=True).exact, path
        machine.put(path, kept)
    assert WORLD.reprocess(machine, second, "a").succeeded
    found = audit_store(store, ModelSource.provenance, deep=True)
    assert (found.exact, found.records, found.rejected) == (True, 9, 0)
    assert {each.watermark.incarnation for each in states(WORLD, machine)["a"].earlier} == {"id 1"}
    lose_the_store(machine, 1)
    assert rebuild(WORLD, machine).written
    rebuilt = audit_store(WORLD.store(machine), ModelSource.provenance, deep=True)
    assert (rebuilt.exact, rebuilt.records, rebuilt.gaps) == (True, 9, 0)
    assert rebuilt.not_compared == ["a: records of incarnation id 1"]
