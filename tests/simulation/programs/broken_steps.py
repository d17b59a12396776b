"""Programs for the crash explorer: commit steps in a job's log that fail, or that this program does not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import msgspec

from distcommit.core.errors import LostError, TransientError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.records.sealed_sequences import SealedSequence, StepBatch
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.recover import recover_partition
from distcommit.protocol import next_log_record
from distcommit.steps import step_registry
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.sink_step import SinkCommitStep
from distcommit.steps.step_registry import dump_steps, register
from distcommit.steps.watermark_step import HighWatermarkCommitStep
from distcommit.stores.operator import operator_actions
from tests.simulation.programs.custom_steps import NoticeCommitStep
from tests.simulation.programs.parts import SOURCE, Program, new_machine, put_file
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem, World

_WORLD = World(max_attempts=1)
BROKEN = f"{ROOTS.staging}.broken"


@register
class BrokenCommitStep(NoticeCommitStep):
    """A custom step that fails in one of many ways as long as a certain file exists."""

    type_name: ClassVar[str] = "testing-broken"

    def __init__(self, context: StepContext, name: str, way: str) -> None:
        super().__init__(context, name)
        self.way = way

    def verify(self) -> bool:
        self._fail("verify")
        return super().verify()

    def execute(self) -> None:
        self._fail("execute")
        super().execute()

    def to_row(self) -> list[Any]:
        return [self.name, self.way]

    def _fail(self, where: str) -> None:
        if self.way.startswith(where) and self.context.fs.status(BROKEN) is not None:
            raise _WAYS[self.way]


_WAYS: dict[str, Exception] = {
    "verify by the system": OSError("the device is gone"),
    "verify by us": TransientError("not now"),
    "execute by the system": OSError("the device is gone"),
    "execute by itself": KeyError("no such key"),
    "execute by loss": LostError("it is lost", expected="it", found="nothing"),
}


def _sealed(batches: dict[str, tuple[StepBatch, ...]]) -> SimulatedPosix:
    """Seal sequences of these steps, by dataset, by a run that is gone."""
    machine = new_machine()
    settings = _WORLD.begin(machine, SOURCE)
    recover_partition(settings, 0)
    epoch = settings.epoch
    sequences = tuple(SealedSequence(urn, epoch, None, None, steps) for urn, steps in batches.items())
    run_alone(
        settings.store.bucket_log(0, epoch).settle(partial(next_log_record.seal, epoch=epoch, sequences=sequences))
    )
    put_file(machine, BROKEN, b"")
    machine.syncfs("/")
    return machine


def _failing() -> SimulatedPosix:
    context = StepContext(SimulatedFileSystem(SimulatedPosix()), ROOTS.staging, ROOTS.output)
    return _sealed({way: dump_steps([BrokenCommitStep(context, f"note-{way}", way)]) for way in ("well", *_WAYS)})


def _rows(*rows: object) -> bytes:
    return msgspec.msgpack.encode(rows)


def _unknown() -> SimulatedPosix:
    """Return steps of a newer program, and steps that no program ever wrote."""
    back = ["back", [{"": 2}, ""], [{"": 1}, ""]]
    return _sealed(
        {
            "late type": (StepBatch("testing-late", 1, _rows(["note-late type"])),),
            "late version": (StepBatch(NoticeCommitStep.type_name, 2, _rows(["note-late version"])),),
            "corrupt": (StepBatch(NoticeCommitStep.type_name, 1, b"\xc1"),),
            "no commit": (StepBatch(SinkCommitStep.type_name, 1, _rows(["sink", "no commit", "1", []])),),
            "no rename": (StepBatch(FsRenameCommitStep.type_name, 1, _rows(["one", "two"])),),
            "goes back": (StepBatch(HighWatermarkCommitStep.type_name, 1, _rows(back)),),
            "unbound": dump_steps([HighWatermarkCommitStep("unbound", None, Watermark({"": 1}))]),
            "well": (StepBatch(NoticeCommitStep.type_name, 1, _rows(["note-well"])),),
        }
    )


def _replay(machine: SimulatedPosix) -> None:
    recover_partition(_WORLD.begin(machine, SOURCE), 0)


@contextmanager
def _newer_program() -> Iterator[None]:
    """Act as the program that wrote the newer steps."""
    step_registry._types["testing-late"] = NoticeCommitStep
    NoticeCommitStep.version = 2
    try:
        yield
    finally:
        del step_registry._types["testing-late"]
        NoticeCommitStep.version = 1


def _repair_and_replay(machine: SimulatedPosix) -> str:
    """Require that the run publishes what it can; then operators and a newer program finish the rest."""
    store = _WORLD.store(machine)
    store.fs.delete(BROKEN)
    _WORLD.run(machine, SOURCE)
    log = store.bucket_log(0)
    watermarks = _WORLD.watermarks(machine)
    if set(watermarks) != set(SOURCE.datasets):
        return f"the other datasets are at {watermarks}"
    with _newer_program():
        for _ in range(2):  # the steps of a newer program may be quarantined by it
            for state in log.refresh().datasets.values():
                if state.status is DatasetStatus.QUARANTINED:
                    can_be_mended = state.dataset_urn in _WAYS
                    (operator_actions.retry if can_be_mended else operator_actions.accept)(
                        store, state.dataset_urn, "person"
                    )
            _WORLD.run(machine, SOURCE)
    for state in log.refresh().datasets.values():
        note = f"{ROOTS.output}/note-{state.dataset_urn}"
        if state.status is not DatasetStatus.IDLE:
            return f"{state.dataset_urn} is {state.status}: {state.reason}"
        if state.dataset_urn not in SOURCE.datasets and not state.accepted_epochs and store.fs.status(note) is None:
            return f"no {note}"
    for entry in store.fs.list_folder(ROOTS.output):
        if not entry.is_folder:  # notes, and files of a note's step that was killed: the user's, not the job's
            store.fs.delete(f"{ROOTS.output}/{entry.name}")
    return _WORLD.violation(machine, SOURCE, watermarks)


BROKEN_STEPS = (
    Program("own-steps-fail", _failing, _replay, _repair_and_replay),
    Program("unknown-steps", _unknown, _replay, _repair_and_replay),
)
