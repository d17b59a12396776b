"""One commit log with several writers: after any history every reader's fold equals the model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distcommit.core.errors import OutcomeUnknownError
from distcommit.core.records.log_records import Checkpoint, Record
from distcommit.core.support.io_batching import run_alone
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import segment_name, segment_number
from distcommit.protocol.record_validity import valid
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.segment_format import Segment, decode_segment, encode_segment
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.models.strategies import records_after
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.spec.product_log import LogModel
from tests.stateful.profiles import effort, known_ids

FOLDER = "/log"
WRITERS = 3
Decide = Callable[[Fold], Record | None]
writers = st.integers(0, WRITERS - 1)


class CommitLogMachine(RuleBasedStateMachine):
    """A state machine of one log. `history` has every record that was ever stored under a number, also of truncated
    segments.
    """

    @initialize()
    def begin(self) -> None:
        self.ids = random.Random(1)
        self.machine = SimulatedPosix()
        self.history: dict[int, Record] = {}
        self.acknowledged = 0
        self.restart(self.machine)
        with known_ids(self.ids):
            self.logs[0].create()
        self.machine.syncfs("/")
        self.look()

    def restart(self, machine: SimulatedPosix) -> None:
        self.machine = machine
        self.logs = [CommitLog(SimulatedFileSystem(machine), FOLDER, 0) for _ in range(WRITERS)]

    # -- events

    @rule(writer=writers, data=st.data())
    def writer_appends(self, writer: int, data: st.DataObject) -> None:
        record = data.draw(records_after(self.logs[writer].refresh()))
        self.settle(writer, once(record))

    @rule(
        writer=writers,
        other=writers,
        nth=st.sampled_from([4, 4, 1, 2, 3, 5]),
        checkpoints=st.sampled_from([2, 2, 0, 1]),
        data=st.data(),
    )
    def writer_is_overtaken(self, writer: int, other: int, nth: int, checkpoints: int, data: st.DataObject) -> None:
        """Let another writer append its own record, and possibly truncate the log, while one writer puts. The writer
        that loses the number decides again, and so does one that wins a truncated number.
        """
        fold = self.logs[writer].refresh()
        own_record, other_record = data.draw(records_after(fold)), data.draw(records_after(fold))
        remaining = nth

        def gate(operation: Operation) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining == 0 and other != writer:
                self.machine.gate = None
                run_alone(self.logs[other].settle(once(other_record)))
                self.look()
                for _ in range(checkpoints):
                    run_alone(self.logs[other].checkpoint(at_least=1))
                    self.look()
                self.machine.gate = gate

        self.machine.gate = gate
        self.settle(writer, once(own_record))
        self.machine.gate = None

    @rule(data=st.data())
    def foreign_record_is_put(self, data: st.DataObject) -> None:
        """Put a record of a writer with other rules. Folds ignore a record that is invalid at its position."""
        record = data.draw(records_after(self.logs[0].refresh()))
        number = self.logs[0].refresh().number + 1
        fs = SimulatedFileSystem(self.machine)
        with known_ids(self.ids):
            fs.put_if_absent(f"{FOLDER}/{segment_name(number)}", encode_segment(Segment(1, "0", record)))

    @precondition(lambda self: min(self.history) < min(self.present()))
    @rule(data=st.data())
    def zombie_puts_below(self, data: st.DataObject) -> None:
        """Put a record on a truncated number, as a writer that was paused for long. It must not count."""
        truncated = sorted(number for number in self.history if number < min(self.present()))
        number = data.draw(st.sampled_from(truncated))
        record = data.draw(records_after(self.logs[0].refresh()))
        fs = SimulatedFileSystem(self.machine)
        with known_ids(self.ids):
            fs.put_if_absent(f"{FOLDER}/{segment_name(number)}", encode_segment(Segment(1, "0", record)))

    @rule(writer=writers, at_least=st.integers(1, 6))
    def checkpoint(self, writer: int, at_least: int) -> None:
        with known_ids(self.ids):
            run_alone(self.logs[writer].checkpoint(at_least=at_least))
        self.look()

    @rule(writer=writers)
    def sweep(self, writer: int) -> None:
        self.logs[writer].sweep_temporary()

    @rule(nth=st.integers(1, 8), power_loss=st.integers(0, 9), checkpoints=st.booleans(), data=st.data())
    def crash(self, nth: int, power_loss: int, checkpoints: bool, data: st.DataObject) -> None:
        """Kill a writer. A power loss kills all, and unacknowledged records may be gone."""
        record = data.draw(records_after(self.logs[0].refresh()))
        self.machine.gate = dies_before(nth)
        with suppress(Crashed), known_ids(self.ids):
            if checkpoints:
                run_alone(self.logs[0].checkpoint(at_least=1))
            else:
                run_alone(self.logs[0].settle(once(record)))
        self.machine.gate = None
        if power_loss:
            survivors = self.machine.after_power_loss(random.Random(power_loss), 3, 2)
            self.restart(list(itertools.islice(survivors, power_loss))[-1])
        else:
            self.restart(self.machine.after_kill())
        newest = max(self.present())
        assert newest >= self.acknowledged, "an acknowledged record is gone"
        self.history = {number: record for number, record in self.history.items() if number <= newest}

    # -- invariants

    @invariant()
    def every_fold_equals_the_model(self) -> None:
        if not hasattr(self, "logs"):
            return
        self.look()
        model = LogModel()
        ignored = [number for number in sorted(self.history) if not model.append(self.history[number])]
        for log in (*self.logs, CommitLog(SimulatedFileSystem(self.machine), FOLDER, 0)):
            fold = log.refresh()
            assert not model.difference(fold), model.difference(fold)
            assert {number for number, _ in fold.ignored} <= set(ignored)
            assert fold.number == max(self.history)

    def settle(self, writer: int, decide: Decide) -> None:
        with known_ids(self.ids), suppress(OutcomeUnknownError):
            answer = run_alone(self.logs[writer].settle(decide))
            self.look()
            assert not self.model().difference(answer), f"wrong answer: {self.model().difference(answer)}"
            self.acknowledged = answer.number
        self.look()

    def model(self) -> LogModel:
        """Return the model after the whole history."""
        model = LogModel()
        for number in sorted(self.history):
            model.append(self.history[number])
        return model

    def present(self) -> list[int]:
        """Return the numbers that count: all from the second newest checkpoint on."""
        numbers = {n for e in self.machine.scandir(FOLDER) if (n := segment_number(e.name)) is not None}
        number = max(numbers)
        while number - 1 in numbers:
            number -= 1
        return [n for n in sorted(numbers) if n >= number]

    def look(self) -> None:
        """Record each stored segment, and check that segments that count never change."""
        for number in self.present():
            path = f"{FOLDER}/{segment_name(number)}"
            record = decode_segment(self.machine.read_file(path), path).record
            if number not in self.history:
                assert number == len(self.history) + 1, f"number {number} was skipped"
                self.history[number] = record
            elif self.history[number] != record:
                checkpoints = [n for n in self.present() if n > number and isinstance(self.history.get(n), Checkpoint)]
                assert len(checkpoints) > 1, f"segment {number} has changed"


def once(record: Record) -> Decide:
    """Request the record once, if it is valid."""
    asked = False

    def decide(fold: Fold) -> Record | None:
        nonlocal asked
        if asked or not valid(record, fold):
            return None
        asked = True
        return record

    return decide


def dies_before(nth: int) -> Callable[[Operation], None]:
    """Kill everything at the nth mutating call."""
    remaining = nth

    def gate(operation: Operation) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining <= 0:
            raise Crashed

    return gate


TestCommitLog = CommitLogMachine.TestCase
TestCommitLog.settings = effort(14, steps=50)
