"""Compactions that are published by half: no operator action, rebuild or deletion loses the only copy of a record."""

from __future__ import annotations

from contextlib import suppress

import pytest

from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.inspection.dry_runs.release_plan import plan_release
from distcommit.app.inspection.job_status import read_status
from distcommit.app.inspection.open_commit_steps import read_steps
from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import DatasetStatus
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.programs.compact import COMPACTED, SMALL_FILES, growing_source
from tests.simulation.world import ROOTS, SimulatedFileSystem
from tests.unit.engine.driver.machines import Fault, Machine, audit, dies, go, statuses

SOURCE = growing_source(3)
OUTPUT = ROOTS.output


def compacted_until(fault: Fault) -> Machine:
    """Compact, let the process die, and quarantine dataset a."""
    machine = Machine()
    for end in (1, 3):
        assert go(COMPACTED, machine, growing_source(end)).succeeded
    machine.faults.append(fault)
    with suppress(Crashed):
        COMPACTED.compact(machine, SOURCE, SMALL_FILES)
    machine.restart()
    operator_actions.quarantine(COMPACTED.store(machine), "a", "ann")
    return machine


def dies_after_renaming_into(part: str) -> Fault:
    is_renamed = False

    def fault(operation: Operation) -> None:
        nonlocal is_renamed
        if is_renamed:
            raise Crashed
        is_renamed = operation.kind == "rename" and part in operation.path

    return fault


def merged_file(machine: Machine) -> str:
    paths = sorted(machine.paths(f"{OUTPUT}/a"))
    newest = paths[-1].rpartition("/")[2].partition("-")[0]
    (path,) = [path for path in paths if f"/{newest}-" in path]
    return path


def predicted(machine: Machine, release: operator_actions.Release = operator_actions.Release.ACCEPT) -> str:
    """Return the predicted effect of a release of dataset a."""
    store = COMPACTED.store(machine)
    steps = read_steps(store, StepContext(store.fs, ROOTS.staging, ROOTS.output, {}, store.store_id), "a")
    (row,) = plan_release(read_status(store), steps, release, "a").rows
    return row.effect


def require_every_record(machine: Machine) -> None:
    """Abandon dataset a, and require each record after further runs, which delete superseded files."""
    operator_actions.abandon(COMPACTED.store(machine), "a", "ann")
    for _ in range(3):
        assert go(COMPACTED, machine, SOURCE).succeeded
    result = audit(COMPACTED, machine)
    assert (result.exact, result.records) == (True, 7), result


@pytest.mark.parametrize("part", ["/output/_rejected/a", "/output/a/"])
def test_accept_of_a_compaction_without_its_merged_file_is_refused(part: str) -> None:
    machine = compacted_until(dies("rename", part))
    assert predicted(machine).startswith("refused: it compacts files and is not published as a whole")
    with pytest.raises(ConflictError, match=r"its (tombstone|new file) is not published"):
        operator_actions.accept(COMPACTED.store(machine), "a", "ann")
    require_every_record(machine)


def abandoned_until_deletion(nth: int) -> Machine:
    """Compact, and let the process that abandons dataset a die before it deletes the tombstone (1) or the file (2)."""
    machine, deletions = compacted_until(dies_after_renaming_into("/output/a/")), 0

    def dies_at_a_deletion(operation: Operation) -> None:
        nonlocal deletions
        deletions += operation.kind == "unlink" and operation.path.startswith(f"{OUTPUT}/")
        if deletions == nth:
            raise Crashed

    machine.faults.append(dies_at_a_deletion)
    with suppress(Crashed):
        operator_actions.abandon(COMPACTED.store(machine), "a", "ann")
    machine.restart()
    return machine


@pytest.mark.parametrize("nth", [1, 2])
def test_accept_of_a_compaction_during_an_unfinished_abandon_is_refused(nth: int) -> None:
    machine = abandoned_until_deletion(nth)
    assert not [path for path in machine.paths(f"{OUTPUT}/_rejected/a") if nth == 2], "tombstones are undone first"
    assert merged_file(machine)
    assert statuses(COMPACTED, machine)["a"] == DatasetStatus.REVOKING
    assert predicted(machine).startswith("refused: it replaces files and is being abandoned")
    assert predicted(machine, operator_actions.Release.RETRY) == "refused: it is being abandoned (abandon)"
    with pytest.raises(ConflictError, match="the sequence replaces files, and is being abandoned"):
        operator_actions.accept(COMPACTED.store(machine), "a", "ann")
    require_every_record(machine)


def rebuild(machine: Machine) -> None:
    """Rebuild the store, and require that something was written."""
    store = COMPACTED.store(machine)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=True)
    done = rebuild_store(store, plan, "rebuild", "ann", accept_gaps=True)
    assert done.written, done


def lose_the_store(machine: Machine) -> None:
    owner = read_owner(COMPACTED.store(machine).fs, OUTPUT)
    assert owner is not None
    for path in machine.paths(ROOTS.store):
        machine.remove(path)
    open_store(SimulatedFileSystem(machine), ROOTS, "job", COMPACTED.buckets, create=True, lost_store_id=owner.store_id)


@pytest.mark.parametrize("lost", range(4))
def test_rebuild_sets_a_merged_file_without_its_tombstone_aside_although_an_old_file_is_missing(lost: int) -> None:
    machine = abandoned_until_deletion(2)
    merged = merged_file(machine)
    old = sorted(set(machine.paths(f"{OUTPUT}/a")) - {merged})
    machine.remove(old[lost])
    lose_the_store(machine)
    store = COMPACTED.store(machine)
    plan = plan_rebuild(store, stored_states(store), accept_gaps=False)
    assert plan.set_aside == [merged]
    rebuild(machine)
    for _ in range(3):
        assert go(COMPACTED, machine, SOURCE).succeeded
    result = audit(COMPACTED, machine)
    assert (result.duplicates, result.skipped) == (0, len(plan.problems)), "the run skips what the rebuild reports"
    assert result.records == 7 - len(plan.problems)
    assert len(plan.problems) == (lost in (0, 2)), "else the lost records are read again"


def test_rebuild_sets_a_tombstone_without_its_merged_file_aside_although_an_old_file_is_missing() -> None:
    machine = compacted_until(dies("rename", "/output/a/"))
    assert machine.paths(f"{OUTPUT}/_rejected/a"), "the tombstone is published"
    old = sorted(machine.paths(f"{OUTPUT}/a"))
    machine.remove(old[0])
    lose_the_store(machine)
    rebuild(machine)
    for _ in range(3):
        COMPACTED.run(machine, SOURCE)
    assert sorted(machine.paths(f"{OUTPUT}/a")) == old[1:]
    assert not machine.paths(f"{OUTPUT}/_rejected/a")
    result = audit(COMPACTED, machine)
    assert (result.duplicates, result.superseded_files) == (0, 0), result


def test_compacted_files_are_kept_while_their_merged_file_is_missing() -> None:
    machine = Machine()
    for end in (1, 3):
        assert go(COMPACTED, machine, growing_source(end)).succeeded
    old = sorted(machine.paths(f"{OUTPUT}/a"))
    assert COMPACTED.compact(machine, SOURCE, SMALL_FILES).succeeded
    machine.remove(merged_file(machine))
    for _ in range(3):
        notes = COMPACTED.run(machine, SOURCE).notes.entries
        assert [(note.subject, "MERGED_FILE_MISSING" in note.text) for note in notes] == [("a", True)], notes
    assert sorted(machine.paths(f"{OUTPUT}/a")) == old
    assert len(machine.paths(f"{OUTPUT}/b")) == 1, "other datasets are not affected"
    rebuild(machine)
    for _ in range(2):
        assert go(COMPACTED, machine, SOURCE).succeeded
    result = audit(COMPACTED, machine)
    assert (result.exact, result.records) == (True, 7), result


def test_compacted_files_are_kept_while_the_merged_files_of_a_chain_are_missing() -> None:
    machine, source = Machine(), growing_source(4)
    for end in (1, 3):
        assert go(COMPACTED, machine, growing_source(end)).succeeded
    old = set(machine.paths(f"{OUTPUT}/a"))
    assert COMPACTED.compact(machine, SOURCE, SMALL_FILES).succeeded
    merged = {merged_file(machine)}

    def deletes_nothing(operation: Operation) -> None:
        if operation.kind == "unlink" and operation.path.startswith(f"{OUTPUT}/a/"):
            raise PermissionError(operation.path)

    machine.faults.append(deletes_nothing)
    COMPACTED.run(machine, source)
    old |= set(machine.paths(f"{OUTPUT}/a")) - merged
    assert COMPACTED.compact(machine, source, SMALL_FILES).succeeded
    merged.add(merged_file(machine))
    machine.faults.clear()
    for path in merged:
        machine.remove(path)
    for _ in range(2):
        assert "MERGED_FILE_MISSING" in COMPACTED.run(machine, source).notes.entries[0].text
    assert set(machine.paths(f"{OUTPUT}/a")) == old
    rebuild(machine)
    for _ in range(2):
        assert go(COMPACTED, machine, source).succeeded
    assert audit(COMPACTED, machine).exact
