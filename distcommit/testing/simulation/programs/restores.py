"""Programs for the crash explorer: one part of a job, the output or a bucket's log, put back to what it was before the
run that crashed, or emptied."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from distcommit.app.by_hand.rebuild import known_states, plan_rebuild, rebuild_store
from distcommit.app.output.audit import audit_store
from distcommit.model.errors import LostError, LostTailError, StaleStoreError
from distcommit.protocol.paths import bucket_name
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.simulation.programs.parts import Program, files_below, new_machine, replace_files
from distcommit.testing.simulation.simulated_posix import SimulatedPosix
from distcommit.testing.simulation.world import ROOTS, World

WORLD = World(buckets=2)
BEFORE = ModelSource({"a": ModelDataset({"0": 2}), "g": ModelDataset({"0": 1})})
THEN = ModelSource({"a": ModelDataset({"0": 4}, units=2), "g": ModelDataset({"0": 2})})
AFTER = ModelSource({"a": ModelDataset({"0": 5}), "g": ModelDataset({"0": 3})})
LOG_OF_A = f"{ROOTS.store}/log/{bucket_name(1)}"


@cache
def _before() -> SimulatedPosix:
    machine = new_machine()
    WORLD.run(machine, BEFORE)
    machine.syncfs("/")
    return machine


def run_after_a_restore(machine: SimulatedPosix) -> str:
    """One more run on folders of which a part was put back. It is refused, or names the bucket that lost its tail and
    publishes nothing twice, which a rebuild mends, or quarantines what it can't prove, or nothing was lost. Else the
    answer says what is wrong."""
    try:
        result = WORLD.run(machine, AFTER)
    except StaleStoreError:
        return ""
    if result.succeeded:
        return WORLD.violation(machine, AFTER, {})
    kinds = {reason.kind for reason in result.totals.reasons}
    if kinds == {LostError.__name__, "skipped, quarantined"}:  # what was sealed, and published where it is no more
        return ""
    if kinds != {LostTailError.__name__, "not fenced"}:
        return f"the run did not succeed: {result.totals.reasons}"
    store = WORLD.store(machine)
    found = plan_rebuild(store, known_states(store), accept_gaps=False)
    if not rebuild_store(store, found, "rebuild", "person", accept_gaps=False).written:
        return f"a bucket that has lost its tail can't be rebuilt: {found}"
    WORLD.run(machine, AFTER)
    return WORLD.violation(machine, AFTER, {})


def _put_back(root: str, machine: SimulatedPosix) -> str:
    replace_files(machine, root, files_below(_before(), root))
    return run_after_a_restore(machine)


def _empty_output(machine: SimulatedPosix) -> str:
    replace_files(machine, ROOTS.output, {})
    try:
        WORLD.run(machine, AFTER)
    except StaleStoreError:
        return ""
    return "a run begins on an output that was emptied"


def _delete_what_was_published(machine: SimulatedPosix) -> str:
    """People take away what runs that ended have published: nobody is told, and nothing is read again."""
    for path in files_below(_before(), ROOTS.output):
        if path.endswith(".parquet"):
            machine.unlink(path)
    result = WORLD.run(machine, AFTER)
    audit = audit_store(WORLD.store(machine), AFTER.provenance, deep=False)
    if not result.succeeded or audit.records != 5 or audit.duplicates:
        return f"after files were deleted: {result.totals.reasons}, {audit}"
    return ""


def _act(machine: SimulatedPosix) -> None:
    WORLD.run(machine, THEN)


def _program(name: str, recover: Callable[[SimulatedPosix], str]) -> Program:
    return Program(name, lambda: _before().after_kill(), _act, recover)


RESTORES = (
    _program("bucket-log-restored", partial(_put_back, LOG_OF_A)),
    _program("output-restored", partial(_put_back, ROOTS.output)),
    _program("output-emptied", _empty_output),
    _program("published-files-deleted", _delete_what_was_published),
)
