"""Every state in which a dataset can be stuck: the remedy that `status`, the run and the errors name resolves it.

Afterwards everything is exact, or the missing records are known.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from distcommit.app.inspection.job_status import read_status
from distcommit.core.errors import ConflictError, DistcommitError, SinkUnavailableError, UnknownStepTypeError
from distcommit.core.interfaces.committer import RetryLater
from distcommit.steps import step_registry
from distcommit.stores.operator import operator_actions
from tests.unit.engine.committing.situations import WORLD, check_recovery, quarantined, sealed_but_not_published
from tests.unit.engine.committing.test_job_level import held
from tests.unit.engine.driver.machines import (
    BUCKET_LOG,
    NOTHING,
    OUTPUT,
    STAGING,
    Machine,
    Meeting,
    audit,
    dies_at,
    fails,
    go,
    source,
    states,
    statuses,
)
from tests.unit.engine.driver.test_custom_sinks import MemorySink, run_with

DATA = source(a=2, b=1)


def reason(machine: Machine, urn: str = "a") -> str:
    """Return the reason that `status` reports."""
    return next(row.reason for row in read_status(WORLD.store(machine)).datasets if row.dataset == urn)


def retry(machine: Machine) -> None:
    operator_actions.retry(WORLD.store(machine), "a", "person")


def abandon(machine: Machine) -> None:
    operator_actions.abandon(WORLD.store(machine), "a", "person")


def accept(machine: Machine) -> None:
    operator_actions.accept(WORLD.store(machine), "a", "person")


def stop(machine: Machine) -> None:
    operator_actions.quarantine(WORLD.store(machine), "a", "person")


def check_given_up(machine: Machine) -> None:
    """Check that the accepted, unpublished records are missing and nothing else is wrong."""
    go(WORLD, machine, source(a=3, b=1))
    audit_result = audit(WORLD, machine)
    assert (audit_result.gaps, audit_result.duplicates, audit_result.past_watermark, audit_result.pending) == (
        2,
        0,
        0,
        [],
    )


def test_datasets_that_fail_in_each_run_are_quarantined_and_retried_all_at_once() -> None:
    machine = Machine()
    sealed_but_not_published(machine, DATA)
    for _ in range(WORLD.max_attempts):
        machine.faults += [fails(errno.EACCES, "rename", f"{OUTPUT}/{urn}/") for urn in DATA.datasets]
        go(WORLD, machine, NOTHING)
        machine.restart()
    assert "Permission denied" in reason(machine)
    assert sorted(operator_actions.retry_all(WORLD.store(machine), "person").datasets) == ["a", "b"]
    check_recovery(machine, DATA)


@pytest.mark.parametrize("how", [operator_actions.Release.ABANDON, operator_actions.Release.ACCEPT])
def test_lost_sequence_is_abandoned_or_accepted(how: operator_actions.Release) -> None:
    machine = Machine()
    sealed_but_not_published(machine, DATA)
    machine.remove(next(path for path in machine.paths(STAGING) if path.endswith(".parquet")))
    go(WORLD, machine, NOTHING)
    (urn,) = [urn for urn, status in statuses(WORLD, machine).items() if status == "quarantined"]
    assert "release the dataset with retry, or accept or abandon it" in reason(machine, urn)
    operator_actions.release(WORLD.store(machine), urn, how, "person")
    if how is operator_actions.Release.ABANDON:
        check_recovery(machine, DATA)
    else:
        go(WORLD, machine, DATA)
        assert audit(WORLD, machine).gaps == DATA.datasets[urn].partitions["0"]


@pytest.mark.thorough
def test_abandon_whose_process_died_is_resumed_or_given_up() -> None:
    ends = set()
    for number in range(100):
        machine = Machine()
        quarantined(machine, DATA)
        machine.faults.append(dies_at(number))
        try:
            abandon(machine)
        except BaseException:  # noqa: BLE001 - the machine is dead
            machine.restart()
        else:
            break
        status = statuses(WORLD, machine)["a"]
        ends.add(status)
        if status == "revoking":
            with pytest.raises(ConflictError, match="release it with abandon, which resumes; or with accept"):
                retry(machine)
        if status != "idle":
            (abandon if number % 2 else accept)(machine)
        accepted = bool(states(WORLD, machine)["a"].accepted_epochs)
        if accepted:
            check_given_up(machine)
        else:
            check_recovery(machine, DATA)
    assert ends == {"quarantined", "revoking", "idle"}


@pytest.mark.parametrize("act", [abandon, accept])
def test_steps_that_no_program_knows_any_more_are_quarantined_by_an_operator(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[Machine], None]
) -> None:
    machine = Machine()
    sealed_but_not_published(machine, source(a=2))
    with monkeypatch.context() as patch:
        patch.delitem(step_registry._types, "fs-rename")
        for _ in range(WORLD.max_attempts + 1):
            go(WORLD, machine, NOTHING)
        assert statuses(WORLD, machine) == {"a": "pending"}
        assert "quarantine the dataset, then release it with accept" in reason(machine)
        with pytest.raises(ConflictError, match="quarantine it"):
            act(machine)
        stop(machine)
        if act is abandon:
            with pytest.raises(UnknownStepTypeError):
                act(machine)
        else:
            act(machine)
    if act is accept:
        check_given_up(machine)
    else:
        act(machine)
        check_recovery(machine, source(a=2))


def test_removed_sink_does_not_block_a_dataset_for_ever() -> None:
    machine = Machine()
    run_with(MemorySink(answers=lambda request: RetryLater("no")), machine, source(a=1))
    go(WORLD, machine, NOTHING)
    assert "run the job with that sink until nothing is pending" in reason(machine)
    stop(machine)
    with pytest.raises(SinkUnavailableError, match="the sink 'memory'"):
        abandon(machine)
    accept(machine)
    assert statuses(WORLD, machine) == {"a": "idle"}


def test_abandon_that_its_sink_can_never_complete_is_given_up() -> None:
    machine = Machine()
    run_with(MemorySink(answers=lambda request: RetryLater("no")), machine, source(a=1))
    stop(machine)

    def down() -> None:
        raise ConnectionError("gone for good")

    with pytest.raises(DistcommitError, match="abandon the dataset again"):
        operator_actions.abandon(WORLD.store(machine), "a", "person", MemorySink(aborting=down).committers)
    assert statuses(WORLD, machine) == {"a": "revoking"}
    accept(machine)
    assert statuses(WORLD, machine) == {"a": "idle"}


def test_held_sequence_cannot_be_quarantined_because_the_next_run_drops_it() -> None:
    machine = Machine()
    held(machine)
    with pytest.raises(ConflictError, match="run the job, or `distcommit recover`: the sequence is dropped"):
        operator_actions.quarantine(WORLD.store(machine), "a", "person")
    check_recovery(machine, DATA)


def test_datasets_of_a_corrupt_bucket_continue_once_its_file_is_restored() -> None:
    machine = Machine()
    sealed_but_not_published(machine, DATA)
    path = max(path for path in machine.paths("/job" + BUCKET_LOG.removesuffix("bucket=") + "bucket=00000"))
    whole = machine.paths("/job")[path]
    machine.put(path, whole[:-3])
    result = go(WORLD, machine, DATA)
    text = next(r.text for r in result.reasons.entries if r.subject == "bucket 0")
    assert "restore this file from a backup" in text
    assert path in text
    assert list(read_status(WORLD.store(machine)).unreadable) == ["bucket 0"]
    machine.put(path, whole)
    machine.syncfs("/")
    check_recovery(machine, DATA)


@pytest.mark.thorough
@pytest.mark.parametrize("act", [abandon, accept])
def test_release_of_a_sequence_that_a_run_has_finished_is_rejected_and_deletes_nothing(
    act: Callable[[Machine], None],
) -> None:
    rejected = 0
    for number in range(100):
        machine = Machine()
        quarantined(machine, DATA)

        def another(machine: Machine = machine) -> bool:
            if statuses(WORLD, machine)["a"] == "quarantined":
                retry(machine)
                go(WORLD, machine, NOTHING)
            return True

        meeting = Meeting(machine, number, another)
        machine.faults.append(meeting)
        try:
            act(machine)
        except ConflictError as error:
            assert "the dataset to be still quarantined" in str(error)  # noqa: PT017 - it may or may not come
            rejected += 1
            check_recovery(machine, DATA)
        if meeting.result is None:
            break
    assert rejected > 0
