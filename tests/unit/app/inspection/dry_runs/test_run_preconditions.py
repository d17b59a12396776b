"""Checks before a run: they raise the run's own refusal and write nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from distcommit.app.inspection.dry_runs.replay_plan import Replay, plan_replay
from distcommit.app.inspection.dry_runs.run_preconditions import require_runnable, unrecoverable_buckets
from distcommit.app.inspection.job_status import read_status
from distcommit.app.inspection.open_commit_steps import read_steps
from distcommit.core.errors import ConfigurationError, CorruptError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.engine.driver.run import recover, run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.protocol.paths.shared_names import OWNER, OWNERSHIP_FOLDER
from distcommit.stores.folders.folder_ownership import Owner
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.stores.state.job_store import JobStore
from tests.simulation.programs.parts import replace_files
from tests.simulation.world import ROOTS, World
from tests.unit.engine.driver.machines import NOTHING, OUTPUT, Machine, dies, go, launch, source, with_folders

WORLD = World(buckets=2)


def contents(machine: Machine, root: str) -> dict[str, bytes]:
    return {path: data for _, path, data in machine.files() if data is not None and path.startswith(f"{root}/")}


def older(root: str) -> Callable[[Machine], None]:
    """Restore one of the job's folders from a copy that is one run older."""

    def put_back(machine: Machine) -> None:
        go(WORLD, machine, source(a=1))
        copy = contents(machine, root)
        go(WORLD, machine, source(a=2))
        replace_files(machine, root, copy)

    return put_back


def another_staging(machine: Machine) -> None:
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/a"))
    with suppress(BaseException):
        go(WORLD, machine, source(a=3))
    machine.restart()
    replace_files(machine, ROOTS.staging, {})


def of_another(job: str) -> Callable[[Machine], None]:
    def put(machine: Machine) -> None:
        go(WORLD, machine, source(a=1))
        owner = Owner(1, "other-store", job, "/elsewhere/store")
        machine.put(f"{ROOTS.output}/{OWNERSHIP_FOLDER}/{OWNER}", encode_document(owner))

    return put


def no_job_log(machine: Machine) -> None:
    go(WORLD, machine, source(a=1))
    path = max(path for path in machine.paths(ROOTS.store) if "/log/job/" in path)
    machine.remove(path)
    machine.put(path, b"torn")


@pytest.mark.parametrize(
    ("breaks", "kind"),
    [
        (older(ROOTS.store), StaleStoreError),
        (older(ROOTS.output), StaleStoreError),
        (another_staging, StaleStoreError),
        (of_another("job"), StaleStoreError),
        (of_another("somebody-else-s"), ConfigurationError),
        (no_job_log, CorruptError),
    ],
)
def test_check_before_a_run_raises_the_refusal_of_the_run_and_writes_nothing(
    breaks: Callable[[Machine], None], kind: type[DistcommitError]
) -> None:
    machine = Machine()
    breaks(machine)
    before, store = contents(machine, "/job"), WORLD.store(machine)
    with pytest.raises(kind) as checked:
        require_runnable(store)
    assert contents(machine, "/job") == before
    with pytest.raises(kind) as refused:
        WORLD.begin(machine, NOTHING)
    assert (str(checked.value), checked.value.exit_code) == (str(refused.value), refused.value.exit_code)


def test_unclaimed_folders_pass_the_check_and_stay_unclaimed() -> None:
    machine = Machine()
    store = WORLD.store(machine)
    before = contents(machine, "/job")
    require_runnable(store)
    assert contents(machine, "/job") == before


def context_of(store: JobStore) -> StepContext:
    return StepContext(store.fs, ROOTS.staging, ROOTS.output, {}, store.store_id)


def test_replay_plan_reports_an_unrecoverable_bucket_in_the_words_of_recover() -> None:
    machine = with_folders(Machine(), "a", "b")
    data = source(a=[2, 1], b=[2, 1])
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        go(WORLD, machine, data)
    machine.restart()
    store = WORLD.store(machine)
    bucket = store.bucket_of("b")
    path = max(path for path in machine.paths(ROOTS.store) if f"bucket={bucket:05d}/" in path and path.endswith(".seg"))
    segment = machine.paths(ROOTS.store)[path]
    plan = plan_replay(
        read_status(store), read_steps(store, context_of(store)), unrecoverable_buckets(store, context_of(store))
    )
    assert plan.succeeds
    machine.remove(path)
    machine.put(path, b"torn" + segment)
    unrecoverable = unrecoverable_buckets(store, context_of(store))
    plan = plan_replay(read_status(store), read_steps(store, context_of(store)), unrecoverable)
    assert not plan.succeeds
    settings = WORLD.begin(machine, NOTHING)
    with recorded_run(settings, "recover", "ann") as recorder:
        result = recover(launch, settings, recorder)
    assert not result.succeeded
    assert plan.unreadable == {reason.subject: f"{reason.kind}: {reason.text}" for reason in result.reasons.entries}


def test_log_that_lost_published_segments_is_reported_as_unrecoverable() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1, b=1))
    store = WORLD.store(machine)
    copy = contents(machine, ROOTS.store)
    machine.faults.append(dies("put", "/log/job/", nth=3))
    newer_data = source(a=2, b=2)
    with suppress(BaseException):
        run(launch, WORLD.begin(machine, newer_data))
    machine.restart()
    bucket = f"/log/bucket={store.bucket_of('b'):05d}/"
    for path in contents(machine, ROOTS.store):
        if bucket in path and path not in copy:
            machine.remove(path)
    unrecoverable = unrecoverable_buckets(store, context_of(store))
    assert "a bucket's log has lost its newest segments" in "".join(unrecoverable.values())


def test_output_without_the_files_of_a_killed_run_is_refused_in_the_words_of_the_run() -> None:
    machine = Machine()
    WORLD.store(machine)
    run(launch, WORLD.begin(machine, source(a=1)))  # this run does not mark its end
    for path in machine.paths(OUTPUT):
        if "/a/" in path:
            machine.remove(path)
    store = WORLD.store(machine)
    with pytest.raises(StaleStoreError, match="the output is older than its store") as checked:
        unrecoverable_buckets(store, context_of(store))
    with pytest.raises(StaleStoreError) as refused:
        recover(launch, WORLD.begin(machine, NOTHING))
    assert str(checked.value) in str(refused.value)


def test_replay_plan_leaves_sequences_of_an_unrecoverable_bucket() -> None:
    machine = with_folders(Machine(), "a", "b")
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        go(WORLD, machine, source(b=[2, 1]))
    machine.restart()
    store = WORLD.store(machine)
    inputs = read_status(store), read_steps(store, context_of(store))
    assert [row.outcome for row in plan_replay(*inputs).rows] == [Replay.CLOSES]
    (row,) = plan_replay(*inputs, {f"bucket {store.bucket_of('b')}": "it has lost its tail"}).rows
    assert (row.outcome, row.steps_to_execute) == (Replay.LEAVES, 0)
