"""The commit step store by itself: two processes put, seal, commit, crash, restart and remove, against a model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.watermark import Watermark
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.stateful.profiles import effort, known_ids
from tests.stateful.test_commit_log import dies_before

URNS = ("a", "b")
JOB = "job"
processes, few_urns = st.integers(0, 1), st.sampled_from(URNS)


@dataclass
class Expected:
    """The expected state of a dataset: published names, the sealed sequence that is not done (or None), and the
    watermark.
    """

    published: set[str] = field(default_factory=set)
    sealed: tuple[str, ...] | None = None
    sealed_high: int | None = None
    watermark: int | None = None


@dataclass
class Unsealed:
    """The unsealed steps of a process for a dataset: names, and the watermark's move if there is one."""

    names: list[str] = field(default_factory=list)
    low: int | None = None
    high: int | None = None


class StepStoreMachine(RuleBasedStateMachine):
    """A state machine of the store. `unsealed` has each process's own steps; `newest` is the process that
    fenced last.
    """

    @initialize()
    def begin(self) -> None:
        self.ids, self.numbers = random.Random(1), itertools.count()
        machine = SimulatedPosix()
        for folder in ("/staging", "/output", "/stores"):
            machine.mkdir(folder)
        machine.syncfs("/")
        self.machine = machine
        self.expected = {urn: Expected() for urn in URNS}
        self.stores = [self.opened(), self.opened()]
        self.unsealed: list[dict[str, Unsealed]] = [{}, {}]
        self.open, self.may_seal = [False, False], [False, False]
        self.do(0, lambda store: store.create(JOB))
        self.fenced_by(0)

    def opened(self) -> LogCommitStepStore:
        context = StepContext(SimulatedFileSystem(self.machine), "/staging", "/output")
        return LogCommitStepStore(context.fs, "/stores", context, buckets=1)

    def do(self, process: int, act: Callable[[LogCommitStepStore], object]) -> object:
        with known_ids(self.ids):
            return act(self.stores[process])

    def touches(self, process: int) -> None:
        """Let a process fence the others by its first operation that may change anything."""
        if not self.open[process]:
            self.fenced_by(process)

    def fenced_by(self, process: int) -> None:
        self.open[process] = True
        self.may_seal = [other == process for other in range(2)]

    # -- events

    @rule(process=processes, crashes=st.booleans())
    def reopen(self, process: int, crashes: bool) -> None:
        """Replace a process by a new one, which does not know its unsealed steps."""
        self.stores[process], self.unsealed[process] = self.opened(), {}
        self.do(process, lambda store: store.create(JOB))
        self.fenced_by(process)

    @rule(
        process=processes,
        urn=few_urns,
        steps=st.integers(1, 2),
        moves=st.none() | st.integers(0, 3),
        good=st.booleans(),
    )
    def put(self, process: int, urn: str, steps: int, moves: int | None, good: bool) -> None:
        fs = SimulatedFileSystem(self.machine)
        context, expected = StepContext(fs, "/staging", "/output"), self.expected[urn]
        self.touches(process)
        unsealed = self.unsealed[process].setdefault(urn, Unsealed())
        for _ in range(steps):
            name = f"{next(self.numbers)}"
            writer = fs.create(f"/staging/{name}")
            writer.write(name.encode())
            writer.close_file(sync=True)
            self.machine.syncfs("/")
            step = FsRenameCommitStep(context, name, f"{urn}/{name}")
            if self.refused(process, partial(put_step, urn=urn, step=step)):
                assert expected.sealed is not None
                if not unsealed.names:
                    del self.unsealed[process][urn]
                return
            assert expected.sealed is None
            unsealed.names.append(name)
        if moves is not None and unsealed.high is None:
            at = (expected.watermark or 0) if good else 99
            low = None if expected.watermark is None and good else Watermark({"": at})
            step_up = HighWatermarkCommitStep(urn, low, Watermark({"": at + moves}))
            self.do(process, lambda store: store.put(JOB, urn, step_up))
            unsealed.low, unsealed.high = None if low is None else at, at + moves

    @rule(process=processes, urn=few_urns)
    def seal(self, process: int, urn: str) -> None:
        if urn not in self.unsealed[process]:
            return  # nothing to seal: see test_minimal_examples.py
        expected, unsealed = self.expected[urn], self.unsealed[process][urn]
        fits = unsealed.high is None or unsealed.low == expected.watermark
        possible = self.may_seal[process] and expected.sealed is None and fits
        if self.refused(process, lambda store: store.seal(JOB, urn)):
            assert not possible, "rejected without a reason"
            return
        assert possible, "sealed by a fenced process, over a pending sequence, or on another watermark"
        expected.sealed, expected.sealed_high = tuple(unsealed.names), unsealed.high
        del self.unsealed[process][urn]

    @rule(process=processes, urn=few_urns, nth=st.none() | st.integers(1, 30), power_loss=st.integers(0, 6))
    def commit(self, process: int, urn: str, nth: int | None, power_loss: int) -> None:
        """Commit the sealed sequence by any process that is not fenced. The process may die before any call."""
        self.machine.gate = dies_before(nth) if nth else None
        done = False
        if self.expected[urn].sealed is not None:
            self.touches(process)
        with suppress(Crashed, ConflictError):
            sequence = self.do(process, lambda store: store.get_commit_sequence(JOB, urn))
            assert (sequence is not None) == (self.expected[urn].sealed is not None)
            if sequence is not None:
                with known_ids(self.ids):
                    sequence.commit()  # type: ignore[attr-defined]
                    sequence.commit()  # type: ignore[attr-defined]
                done = True
        self.machine.gate = None
        if done:
            self.close(urn)
        if nth is not None:
            self.everybody_dies(power_loss)

    @rule(process=processes, urn=few_urns, nth=st.integers(1, 8), power_loss=st.integers(0, 6))
    def seal_and_die(self, process: int, urn: str, nth: int, power_loss: int) -> None:
        if urn not in self.unsealed[process]:
            return
        expected, unsealed = self.expected[urn], self.unsealed[process][urn]
        self.machine.gate = dies_before(nth)
        with suppress(Crashed, ConflictError):
            self.do(process, lambda store: store.seal(JOB, urn))
            expected.sealed, expected.sealed_high = tuple(unsealed.names), unsealed.high
        self.machine.gate = None
        self.everybody_dies(power_loss)
        if expected.sealed is None and self.stores[0].exists(JOB, urn):
            expected.sealed, expected.sealed_high = tuple(unsealed.names), unsealed.high

    @rule(process=processes, urn=few_urns)
    def remove_dataset(self, process: int, urn: str) -> None:
        self.touches(process)
        if self.refused(process, lambda store: store.remove(JOB, urn)):
            assert self.expected[urn].sealed is not None
        else:
            assert self.expected[urn].sealed is None
            self.unsealed[process].pop(urn, None)

    @precondition(lambda self: any(expected.sealed is not None for expected in self.expected.values()))
    @rule(process=processes)
    def remove_is_refused(self, process: int) -> None:
        self.touches(process)
        assert self.refused(process, lambda store: store.remove(JOB))

    # -- invariants

    @invariant()
    def everything_holds(self) -> None:
        if not hasattr(self, "stores"):
            return
        paths = [path for path, _ in self.machine.walk("/output")]
        reader = self.opened()
        for urn, expected in self.expected.items():
            there = {path.rpartition("/")[2] for path in paths if path.startswith(f"/output/{urn}/")}
            assert expected.published <= there <= expected.published | {*(expected.sealed or ())}
            assert reader.exists(JOB, urn) == (expected.sealed is not None)
            stored = reader.watermark(JOB, urn)
            assert (None if stored is None else stored.positions[""]) == expected.watermark

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            self.reopen(0, False)
            for urn in URNS:
                self.commit(0, urn, None, 0)
                assert self.expected[urn].sealed is None
            self.everything_holds()
            assert self.do(0, lambda store: store.remove(JOB))
            assert not self.stores[1].exists(JOB)

    # -- helpers

    def refused(self, process: int, act: Callable[[LogCommitStepStore], object]) -> bool:
        try:
            self.do(process, act)
        except ConflictError:
            return True
        return False

    def close(self, urn: str) -> None:
        expected = self.expected[urn]
        expected.published |= {*(expected.sealed or ())}
        if expected.sealed_high is not None:
            expected.watermark = expected.sealed_high
        expected.sealed = expected.sealed_high = None

    def everybody_dies(self, power_loss: int) -> None:
        """Kill both processes. Sequences that a dead process closed still count."""
        if power_loss:
            survivors = self.machine.after_power_loss(random.Random(power_loss), 3, 2)
            self.machine = list(itertools.islice(survivors, power_loss))[-1]
        else:
            self.machine = self.machine.after_kill()
        self.stores, self.unsealed = [self.opened(), self.opened()], [{}, {}]
        self.open = [False, False]
        self.do(0, lambda store: store.create(JOB))
        self.fenced_by(0)
        for urn, expected in self.expected.items():
            if expected.sealed is not None and not self.stores[0].exists(JOB, urn):
                self.close(urn)


def put_step(store: LogCommitStepStore, urn: str, step: CommitStep) -> bool:
    return store.put(JOB, urn, step)


TestStepStore = StepStoreMachine.TestCase
TestStepStore.settings = effort(15, steps=25)
