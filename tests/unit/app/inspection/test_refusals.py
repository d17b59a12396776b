"""What a run refuses is told before it is asked to begin, in the same words, and nothing is written for that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from distcommit.app.inspection.refusals import require_runnable, unrecoverable_buckets
from distcommit.app.inspection.replay_plan import Replay, plan_replay
from distcommit.app.inspection.status import read_status
from distcommit.app.inspection.steps import read_steps
from distcommit.core.errors import ConfigurationError, CorruptError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.steps import StepContext
from distcommit.engine.driver.guarded_observer import recorded_run
from distcommit.engine.driver.run import recover, run
from distcommit.protocol.paths.parts import OWNER, OWNERSHIP_FOLDER
from distcommit.stores.folders.ownership import Owner
from distcommit.stores.state.documents import encode_document
from distcommit.stores.state.job_store import JobStore
from tests.simulation.programs.parts import replace_files
from tests.simulation.world import ROOTS, World
from tests.unit.engine.driver.machines import NOTHING, OUTPUT, Machine, dies, go, launch, source, with_folders

WORLD = World(buckets=2)


def contents(machine: Machine, root: str) -> dict[str, bytes]:
    return {path: data for _, path, data in machine.files() if data is not None and path.startswith(f"{root}/")}


def older(root: str) -> Callable[[Machine], None]:
    """One of the job's folders is put back from a copy that is a run older."""

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
def test_what_keeps_a_run_from_beginning_is_told_as_it_would_and_nothing_is_written(
    breaks: Callable[[Machine], None], kind: type[DistcommitError]
) -> None:
    machine = Machine()
    breaks(machine)
    before, store = contents(machine, "/job"), WORLD.store(machine)
    with pytest.raises(kind) as told:
        require_runnable(store)
    assert contents(machine, "/job") == before
    with pytest.raises(kind) as refused:
        WORLD.begin(machine, NOTHING)
    assert (str(told.value), told.value.exit_code) == (str(refused.value), refused.value.exit_code)


def test_folders_that_are_nobody_s_yet_are_no_refusal_and_stay_so() -> None:
    machine = Machine()
    store = WORLD.store(machine)
    before = contents(machine, "/job")
    require_runnable(store)
    assert contents(machine, "/job") == before


def context_of(store: JobStore) -> StepContext:
    return StepContext(store.fs, ROOTS.staging, ROOTS.output, {}, store.store_id)


def test_a_bucket_that_could_not_be_recovered_is_told_as_recover_tells_it_and_so_is_the_exit_code() -> None:
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
    assert plan.goes_through
    machine.remove(path)
    machine.put(path, b"torn" + segment)
    left = unrecoverable_buckets(store, context_of(store))
    plan = plan_replay(read_status(store), read_steps(store, context_of(store)), left)
    assert not plan.goes_through
    settings = WORLD.begin(machine, NOTHING)
    with recorded_run(settings, "recover", "ann") as told:
        result = recover(launch, settings, told)
    assert not result.succeeded
    assert plan.unreadable == {reason.subject: reason.text for reason in result.totals.reasons}


def test_a_log_that_has_lost_what_it_had_published_is_told_before_and_its_sequences_are_left() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1, b=1))
    store = WORLD.store(machine)
    copy = contents(machine, ROOTS.store)
    machine.faults.append(dies("put", "/log/job/", nth=3))
    go_on = source(a=2, b=2)
    with suppress(BaseException):
        run(launch, WORLD.begin(machine, go_on))
    machine.restart()
    bucket = f"/log/bucket={store.bucket_of('b'):05d}/"
    for path in contents(machine, ROOTS.store):
        if bucket in path and path not in copy:
            machine.remove(path)
    left = unrecoverable_buckets(store, context_of(store))
    assert "a bucket's log has lost its newest segments" in "".join(left.values())


def test_an_output_that_lacks_what_a_run_has_published_that_died_is_told_with_the_run_s_own_words() -> None:
    machine = Machine()
    WORLD.store(machine)
    run(launch, WORLD.begin(machine, source(a=1)))  # it has not marked its end
    for path in machine.paths(OUTPUT):
        if "/a/" in path:
            machine.remove(path)
    store = WORLD.store(machine)
    with pytest.raises(StaleStoreError, match="the output is older than its store") as told:
        unrecoverable_buckets(store, context_of(store))
    with pytest.raises(StaleStoreError) as refused:
        recover(launch, WORLD.begin(machine, NOTHING))
    assert str(told.value) in str(refused.value)


def test_what_is_in_a_bucket_that_is_left_alone_is_not_said_to_be_closed() -> None:
    machine = with_folders(Machine(), "a", "b")
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        go(WORLD, machine, source(b=[2, 1]))
    machine.restart()
    store = WORLD.store(machine)
    known = read_status(store), read_steps(store, context_of(store))
    assert [row.does for row in plan_replay(*known).rows] == [Replay.CLOSES]
    (row,) = plan_replay(*known, {f"bucket {store.bucket_of('b')}": "it has lost its tail"}).rows
    assert (row.does, row.executes) == (Replay.LEAVES, 0)
