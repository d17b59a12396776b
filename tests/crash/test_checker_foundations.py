"""The checkers' own foundations: symbolic links like the kernel's, histories that can be replayed, and a monitored
lock.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import eq
from pathlib import Path

import pytest

from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import (
    Checkpoint,
    DatasetState,
    DatasetStatus,
    Done,
    Fence,
    Rebuilt,
    Record,
    SetWatermark,
)
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.fs.local_disk.posix_calls import PosixCalls, RealPosixCalls
from distcommit.protocol.paths.store import segment_name
from distcommit.stores.logs.fencing import fence_bucket
from distcommit.stores.logs.segment_format import Segment, encode_segment
from distcommit.stores.operator.operator_actions import set_watermark
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.faulty_calls import Operation
from distcommit.testing.fakes.model_source import ModelSource
from tests.checkers.coverage_of_checkers import PACKAGES, coverage_of_checkers
from tests.simulation import explore, fault_histories, fault_orders
from tests.simulation.casts import CASTS
from tests.simulation.casts.branches import by_offset, misplaced
from tests.simulation.casts.parts import SOURCE, WORLD, Scene
from tests.simulation.fault_chains import NEXT, Chains, Subject
from tests.simulation.interleave import TROUBLES, Turns, play
from tests.simulation.log_watch import log_violation
from tests.simulation.programs.parts import Meddling, new_machine
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.simulated_posix import SimulatedPosix


def links_of(calls: PosixCalls, root: str) -> list[object]:
    """Return the observed properties of two symbolic links: one to a folder, one to a missing path."""
    folder, link = f"{root}/folder", f"{root}/link"
    calls.mkdir(f"{link}/inner")
    observations: list[object] = [
        sorted((entry.name, entry.is_folder) for entry in calls.scandir(place)) for place in (root, folder, link)
    ]
    observations += [calls.lstat(path).is_folder for path in (folder, link, f"{link}/inner")]
    observations += [
        calls.realpath(f"{root}/{name}").removeprefix(root) for name in ("link/inner/new", "lost/x", "none")
    ]
    for refused in (calls.rmdir, calls.read_file, calls.mkdir):
        try:
            refused(link)
        except OSError as error:
            observations.append(error.errno)
    calls.rename_noreplace(link, f"{root}/moved")
    calls.unlink(f"{root}/moved")
    observations.append(sorted(entry.name for entry in calls.scandir(root)))
    return observations


def test_simulated_symbolic_links_equal_those_of_the_kernel(tmp_path: Path) -> None:
    real, root = RealPosixCalls(), str(tmp_path.resolve())
    machine = SimulatedPosix()
    for number in range(2, len(Path(root).parts) + 1):
        machine.mkdir("/".join(["", *Path(root).parts[1:number]]))
    for name, target in (("link", "folder"), ("lost", "nothing")):
        (tmp_path / name).symlink_to(f"{root}/{target}")
        machine.symlink(f"{root}/{target}", f"{root}/{name}")
    for calls in (real, machine):
        calls.mkdir(f"{root}/folder")
    assert links_of(machine, root) == links_of(real, root)


@pytest.mark.parametrize(
    "fault",
    ["EIO@9", "ENOSPC@30+", "EACCES@12 lost", "EIO@31/2", "slow@20", "ahead@4", "back@33", "cut@3", "altered@1+"],
)
def test_fault_is_replayed_from_its_printed_form(fault: str) -> None:
    history = f"second-run:{fault}"
    assert history in set(fault_orders.histories(["second-run"])) or "/" in fault
    assert fault_histories.replay(history) == ""


@pytest.mark.parametrize("program", fault_histories.OPERATORS)
def test_operator_commands_survive_a_fault_at_any_operation(program: str) -> None:
    possible = [*fault_orders.histories([program])]
    assert {f"{program}:EIO@{number}{how}" for number in range(12) for how in ("", "+", " lost")} <= {*possible}
    for history in possible[:: len(possible) // 12]:
        assert fault_histories.replay(history) == "", history


def test_answer_revoked_by_a_power_loss_is_a_violation() -> None:
    machine, survivor = fault_histories.OPERATORS["set-back"].find(), []

    def gate(operation: Operation) -> None:
        if operation.kind == "fsync_folder" and "/log/bucket=" in operation.path:
            survivor.append(machine.after_kill())

    machine.gate = gate
    fault_histories.OPERATORS["set-back"].act(machine)
    assert fault_histories.lost_answer(machine) == ""
    assert "reverts a confirmed effect" in fault_histories.lost_answer(survivor[-1])


@pytest.mark.parametrize("name", ["second-run", "one-commit", "at-least-once", "abandon", "set-back", "refusals"])
def test_chain_of_faults_is_replayed_from_its_printed_form(name: str) -> None:
    chains = [*islice(fault_histories.CHAINS.of(name, random.Random(1)), 8)]
    assert all(NEXT in chain for chain in chains)
    assert chains == [*islice(fault_histories.CHAINS.of(name, random.Random(1)), 8)]
    for chain in chains:
        assert fault_histories.replay(chain) == "", chain


def test_chain_has_the_effects_of_all_its_faults() -> None:
    audits: list[list[str]] = []

    def violation(machine: SimulatedPosix) -> str:
        audits.append(sorted(path for path, _ in machine.walk("/") if path != "/job"))
        return "seen"

    def makes(*names: str) -> Callable[[PosixCalls], None]:
        def act(calls: PosixCalls) -> None:
            for name in names:
                calls.mkdir(f"/job/{name}")

        return act

    chains = Chains({"folders": Subject(new_machine, makes("a", "b"), {"": makes("c", "d")}, violation)})
    for history, remaining in {
        "folders:kill@1": ["a"],
        "folders:kill@2": ["a", "b"],
        "folders:kill@1 > EIO@1": ["a", "c"],
        "folders:kill@1 > EIO@1 lost": ["a", "c", "d"],
        "folders:kill@1 > ENOSPC@0+": ["a"],
        "folders:kill@0 > kill@1 > kill@0": ["c"],
    }.items():
        assert chains.play(history) == "seen"
        assert audits.pop() == [f"/job/{name}" for name in remaining], history
    assert chains.play("folders:power@2.0") == "seen"
    assert audits.pop() == [], "the history has no sync"
    for wrong in (
        "folders:kill",
        "folders:run kill@1",
        "folders:kill@1 > somebody EIO@1",
        "folders:ENONE@1",
        "no:kill@1",
    ):
        assert "no history" in chains.play(wrong)


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize(
    "name",
    ["drains-of-two", "zombie-of-whole-job", "people-confirm", "rebuild-two", "reprocess-twins", "replace-late-twin"],
)
def test_play_with_any_fault_among_its_actors_ends_without_a_violation(name: str, trouble: str) -> None:
    assert play(name, 3, trouble)[1] == ""


def test_slow_call_takes_effect_after_all_others_have_ended() -> None:
    order: list[str] = []
    turns = Turns(("one", "two"), random.Random(1), 0.0, ("one", 1))

    def act(name: str) -> None:
        for number in range(3):
            turns.take(name, "x")
            order.append(f"{name}{number}")
        turns.end(name)

    threads = [threading.Thread(target=act, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    turns.conduct()
    for thread in threads:
        thread.join()
    assert order.index("one1") > order.index("two2")


def foreign(store: JobStore, bucket: int, record: Record, epoch: int) -> None:
    """Return a record of a writer that ignores the rules."""
    log = store.bucket_log(bucket)
    segment = Segment(epoch, "f" * 32, record)
    store.fs.put_if_absent(f"{log.folder}/{segment_name(log.refresh().number + 1)}", encode_segment(segment))


@pytest.mark.parametrize(
    ("record", "epoch", "wrong"),
    [
        (Fence(1, "old"), 0, "not valid at its place"),
        (SetWatermark("a", None, "person"), 7, "was written by epoch 7"),
        (Done(2, (SequenceName("a", 2),)), 2, "not valid at its place"),
        (Checkpoint(9, "no such run", (), (), 0), 0, "fence and decisions are"),
    ],
)
def test_records_that_break_the_rules_of_the_log_are_a_violation(record: Record, epoch: int, wrong: str) -> None:
    machine = new_machine()
    WORLD.run(machine, SOURCE)
    store = WORLD.store(machine)
    assert log_violation(store) == ""
    foreign(store, 0, record, epoch)
    assert wrong in log_violation(store)


def test_rebuild_that_undoes_a_later_operator_record_is_a_violation() -> None:
    machine = new_machine()
    WORLD.run(machine, SOURCE)
    store, watermark = WORLD.store(machine), Watermark({"0": 1, "1": 0})
    run_alone(fence_bucket(store.bucket_log(0, 9), 9, "rebuild"))
    set_watermark(store, "a", watermark, "person")
    run_alone(
        store.bucket_log(0, 9).settle(
            lambda fold: (
                Rebuilt(9, (DatasetState("a", closed_epoch=9, origin={"0": 0}),), "another")
                if fold.state_of("a").watermark == watermark
                else None
            )
        )
    )
    assert "undoes an operator action" in log_violation(store)


def test_invalid_history_is_rejected() -> None:
    assert "no history" in fault_histories.replay("no-such:EIO@1")
    assert "no history" in fault_histories.replay("second-run:EIO")
    assert "no history" in fault_histories.replay("abandon:slow@1"), "operators take no lock"


@pytest.mark.parametrize("role", ["owner", "zombie", "run", "second"])
def test_actor_without_interference_commits_everything(role: str) -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    name = {"owner": "twins", "zombie": "zombie", "run": "person-sets", "second": "second-attempts"}[role]
    cast = CASTS[name]
    cast.stage(machine)[role](cast.open(machine), Scene())
    assert cast.world.watermarks(machine).keys() == cast.source.datasets.keys()


def test_operator_scenario_stages_a_quarantined_dataset() -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    CASTS["person-abandons"].stage(machine)
    assert WORLD.store(machine).bucket_log(0).refresh().state_of("a").status is DatasetStatus.QUARANTINED


@pytest.mark.parametrize("listing", range(6))
def test_watermark_set_too_late_is_not_a_violation(listing: int) -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    parts = CASTS["person-sets"].stage(machine)
    remaining = [listing]

    def fits(name: str, arguments: tuple[object, ...]) -> bool:
        remaining[0] -= name == "scandir" and "/bucket=" in str(arguments[0])
        return remaining[0] < 0

    calls = Meddling(machine, fits, lambda: parts["run"](WORLD.store(machine), Scene())).as_calls()
    with suppress(ConflictError):
        parts["person"](WORLD.store(calls), Scene())
    before = WORLD.watermarks(machine)
    WORLD.run(machine, SOURCE)
    assert CASTS["person-sets"].violation(CASTS["person-sets"], machine, before) == ""


def test_record_in_the_wrong_branch_is_a_violation() -> None:
    cast, machine, fewer = CASTS["forks"], new_machine(), ModelSource({"b": CASTS["forks"].source.datasets["b"]})
    cast.world.run(machine, cast.source)
    store = cast.world.store(machine)
    assert misplaced(store, cast.source, by_offset) == ""
    wrong = misplaced(store, cast.source, lambda *_: ("right",))
    assert wrong == "a/0/0 is in ['left', 'right'], expected in one of [['right']]"
    assert misplaced(store, fewer, by_offset).startswith("no reader has read {'a/")


def test_two_runs_with_a_live_lease_are_a_violation() -> None:
    scene = Scene()
    scene.holds("one", scene.clock.monotonic_s())
    scene.clock.jump(1000)
    with pytest.raises(AssertionError, match="two has the lock, and so have"):
        scene.holds("two", scene.clock.monotonic_s())
    scene.clock.sleep(1000)
    scene.holds("two", scene.clock.monotonic_s())


@pytest.mark.long
@pytest.mark.slow
def test_coverage_of_the_checkers_is_measured() -> None:
    coverage = coverage_of_checkers(6, 1)
    assert set(coverage.percent) == set(PACKAGES)
    assert 60 < coverage.whole < 100
    assert all(file.partition("/")[0] in PACKAGES for file in coverage.left)


@pytest.mark.parametrize("name", ["first-run", "second-run-two"])
def test_each_state_of_a_crashed_run_is_yielded_exactly_once(name: str) -> None:
    scenario = SCENARIOS[name]
    begun, visited = scenario.machine(), set[str]()
    crashes = [*explore.crashed_runs(scenario, begun, scenario.disturbed, random.Random(1))]
    power_losses = [crash for crash, _, _ in crashes if crash.state]
    for crash in power_losses[:: max(1, len(power_losses) // 25)]:
        alone = explore.crashed_runs(
            scenario, scenario.machine(), scenario.disturbed, random.Random(1), partial(eq, crash.operation)
        )
        [again] = [machine for at, machine, _ in alone if at == crash]
        [first] = [machine for at, machine, _ in crashes if at == crash]
        assert explore.canonical(again) == explore.canonical(first), "the same history replays to the same image"
    end = max(crash.operation for crash, _, _ in crashes)
    for operation in range(end + 1):  # a single operation knows no earlier state
        by_itself = explore.crashed_runs(
            scenario, scenario.machine(), scenario.disturbed, random.Random(1), partial(eq, operation)
        )
        visited.update(str(explore.canonical(machine)) for at, machine, _ in by_itself if at.operation == operation)
    assert visited == {str(explore.canonical(machine)) for _, machine, _ in crashes}
    assert len(crashes) < 5 * len(visited)
