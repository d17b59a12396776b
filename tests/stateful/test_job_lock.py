"""The job lock on a clock that only the test moves: never two live holders, and free once the lease has expired."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from distcommit.core.errors import LockHeldError
from distcommit.core.interfaces.clock import Clock
from distcommit.testing.fakes.faulty_calls import Operation
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.stepped_lock import SteppedLock
from tests.simulation.world import SimulatedClock, SimulatedFileSystem
from tests.stateful.profiles import effort

LEASE_S = 90.0
RUNS = 3
runs = st.integers(0, RUNS - 1)


class LockMachine(RuleBasedStateMachine):
    """A state machine of the lock. `renewed`: when each run that believes to hold it last renewed its lease. `last`:
    the run that took it last.
    """

    @initialize()
    def begin(self) -> None:
        self.machine, self.clock = SimulatedPosix(), SimulatedClock()
        self.machine.mkdir("/store")
        self.locks: dict[int, SteppedLock] = {}
        self.renewed: dict[int, float] = {}
        self.last: int | None = None

    def make(self, run: int) -> SteppedLock:
        clock: Clock = self.clock
        return SteppedLock(SimulatedFileSystem(self.machine), "/store", f"run-{run}", LEASE_S, clock)

    def live(self) -> list[int]:
        now = self.clock.monotonic_s()
        return [run for run, renewed in self.renewed.items() if now - renewed < LEASE_S]

    def take(self, run: int) -> None:
        if run in self.renewed:
            return
        free = not self.live()
        lock = self.make(run)
        try:
            lock.__enter__()
        except LockHeldError:
            assert self.live(), "rejected although the lock is free"
            return
        assert free or self.machine.gate is not None, "taken from a live holder"
        self.locks[run], self.renewed[run], self.last = lock, self.clock.monotonic_s(), run
        assert len(self.live()) <= 1, f"two live holders: {self.live()}"

    @rule(run=runs)
    def takes(self, run: int) -> None:
        self.take(run)

    @rule(run=runs, other=runs, nth=st.integers(1, 5), renewals=st.integers(0, 2))
    def two_take(self, run: int, other: int, nth: int, renewals: int) -> None:
        """Take the lock while another run takes it and renews its lease."""
        remaining = nth

        def gate(operation: Operation) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining == 0 and other != run:
                self.take(other)
                for _ in range(renewals):
                    self.renews(other)

        self.machine.gate = gate
        self.take(run)
        self.machine.gate = None

    @rule(run=runs)
    def renews_in_time(self, run: int) -> None:
        self.renews(run)

    def renews(self, run: int) -> None:
        if run in self.locks and run in self.live():
            self.locks[run].renew()
            self.renewed[run] = self.clock.monotonic_s()

    @rule(run=runs)
    def wakes_up_late(self, run: int) -> None:
        """Wake up after the lease expired. If another run has taken the lock since, even to release it, it is not taken
        back.
        """
        if run in self.locks and run not in self.live():
            self.locks[run].renew()
            if self.last == run:
                self.renewed[run] = self.clock.monotonic_s()
                for other_run in [other for other in self.renewed if other != run]:
                    del self.renewed[other_run], self.locks[other_run]

    @rule(run=runs)
    def releases(self, run: int) -> None:
        if run in self.locks:
            self.locks[run].__exit__(None, None, None)
            self.last = None if self.last == run else self.last
            del self.locks[run], self.renewed[run]

    @rule(seconds=st.sampled_from([1.0, 30.0, 89.0, LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def teardown(self) -> None:
        if hasattr(self, "clock"):
            self.clock.sleep(LEASE_S)
            with self.make(99):
                late = self.make(98)
                with pytest.raises(LockHeldError):
                    late.__enter__()


TestLock = LockMachine.TestCase
TestLock.settings = effort(60, steps=25)
