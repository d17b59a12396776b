"""What is wrong is told in a line, with a command that a shell takes as it is printed."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from distcommit.app.inspection.problems.commands import command_for
from distcommit.app.inspection.problems.detect import find_problems
from distcommit.app.inspection.problems.environment_checks import EnvironmentFindings, check_environment
from distcommit.app.inspection.problems.kinds import Problem
from distcommit.app.inspection.runs import RunStatus, read_runs
from distcommit.app.inspection.status import read_status
from distcommit.app.inspection.steps import read_steps
from distcommit.app.job import Job
from distcommit.app.job_file.config import JobConfig, load_config, parse_config
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.running.cancel import cancel_runs
from distcommit.app.stored_job import StoredJob
from distcommit.core.errors import NEW_FIELDS, TURNED_AWAY, ConfigurationError, RecordError, printable
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.interfaces.steps import StepContext
from distcommit.core.work import WorkUnit
from distcommit.engine.driver.guarded_observer import recorded_run
from distcommit.engine.driver.run import run
from distcommit.protocol.paths.store import RUNS, record_name
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_lock import JobLock, LockRecord
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.jobs.large_store import make_large_store
from tests.simulation.programs.parts import half_done, replace_files
from tests.simulation.world import ROOTS, World
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import (
    STAGING,
    Machine,
    OddSource,
    QuickClock,
    dies,
    fails,
    go,
    launch,
    source,
    with_folders,
)

JOB = World(job_level=True)
NOTHING = EnvironmentFindings()
TREE = {
    "job": "job",
    "source": {"type": "kafka", "brokers": "b:1", "topics": ["x"]},
    "paths": {"store": "s", "staging": "t", "output": "o"},
}


def folders(overrides: tuple[str, ...] = (), name: str = "job.yaml") -> JobFolders:
    path = Path("/jobs") / name
    return JobFolders(parse_config(TREE, path), path, overrides)


def troubles(
    machine: Machine, *, whole_job: bool = False, around: EnvironmentFindings = NOTHING, clock: QuickClock | None = None
) -> list[Problem]:
    store = WORLD.store(machine)
    status = read_status(store, whole_job=whole_job)
    return find_problems(status, read_runs(store, clock or QuickClock()), command_for(folders()), around)


def around(job: JobFolders, store: JobStore) -> EnvironmentFindings:
    return check_environment(job, store, read_status(store), read_runs(store, QuickClock()), 1)


def lacking(machine: Machine) -> EnvironmentFindings:
    """What quarantined datasets lack now."""
    store = WORLD.store(machine)
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    found = {each.dataset: step for each in read_steps(store, context).sequences for step in each.steps}
    return EnvironmentFindings(lacking={urn: step for urn, step in found.items() if step.state == "LOST"})


def quarantined(world: World = WORLD) -> tuple[Machine, ModelSource]:
    machine, data = with_folders(Machine(), "b"), source(b=[2, 1])
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        run(launch, world.begin(machine, data))
    machine.restart()
    for path in machine.paths(STAGING):
        machine.remove(path)
    return machine, data


def test_a_job_that_is_well_has_none() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    assert troubles(machine) == []


def test_a_quarantined_dataset_is_told_with_its_release_and_gone_after_it() -> None:
    machine, data = quarantined()
    go(WORLD, machine, data)
    first, *others = troubles(machine)
    assert first.what.startswith("b is quarantined: ")
    assert (first.command, first.datasets) == ("distcommit dataset release /jobs/job.yaml b retry", 1)
    assert [trouble.command.split()[1:3] for trouble in others] == [["dataset", "release"]], "no run helps before"
    operator_actions.accept(WORLD.store(machine), "b", "ann")
    go(WORLD, machine, data)
    assert troubles(machine) == []


def test_what_a_run_that_died_has_sealed_is_told_with_its_recovery() -> None:
    machine, data = Machine(), source(a=3)
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/a"))
    with suppress(BaseException):
        go(WORLD, machine, data)
    machine.restart()
    pending, failed = troubles(machine)
    assert "a is sealed and not closed" in pending.what
    assert pending.command == "distcommit recover /jobs/job.yaml"
    assert "the last run failed: it died" in failed.what
    go(WORLD, machine, data)
    assert troubles(machine) == []


def test_what_could_not_be_read_is_told_with_its_reason() -> None:
    machine, data = Machine(), source(a=3, b=1)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.ENOENT, "a page is gone")

    go(WORLD, machine, OddSource(data.datasets, extracting=extracting))
    unread, failed = troubles(machine)
    assert ("b could not be read" in unread.what, "a page is gone" in unread.what) == (True, True)
    assert unread.command == "distcommit run /jobs/job.yaml"
    assert "b: failed" in failed.what


def test_a_job_that_publishes_all_or_nothing_tells_the_cause_by_dataset_and_what_the_next_run_does() -> None:
    machine, data = Machine(), source(a=3, b=1)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    go(JOB, machine, OddSource(data.datasets, extracting=extracting))
    found = troubles(machine, whole_job=True)
    assert any("published nothing, because of b: failed" in trouble.what for trouble in found)
    held = next(trouble for trouble in found if "held back" in trouble.what)
    assert "a is held back with their run, which was not decided" in held.what
    assert not any("the next run publishes nothing" in trouble.what for trouble in found)
    result = go(JOB, machine, data)
    assert (result.succeeded, result.totals.sequences_dropped) == (True, 1), "as it was told"
    assert troubles(machine, whole_job=True) == []


def test_a_quarantined_dataset_is_told_to_hold_the_next_run_of_such_a_job_and_it_does() -> None:
    machine, data = quarantined(WORLD)
    go(WORLD, machine, data)
    found = troubles(machine, whole_job=True)
    assert any("the next run publishes nothing" in trouble.what for trouble in found)
    assert go(JOB, machine, source(a=3, b=[2, 1])).decided is False


def test_a_log_that_can_not_be_read_is_told_to_hold_the_next_run_of_such_a_job_and_it_does() -> None:
    machine = Machine()
    go(JOB, machine, source(a=1))
    assert not any("publishes nothing" in trouble.what for trouble in troubles(machine, whole_job=True))
    path = max(path for path in machine.paths(ROOTS.store) if "bucket=00000" in path and path.endswith(".seg"))
    machine.remove(path)
    machine.put(path, b"torn")
    assert not any("publishes nothing" in trouble.what for trouble in troubles(machine))
    (told,) = (each for each in troubles(machine, whole_job=True) if "publishes nothing" in each.what)
    assert told.what.endswith("and the log of bucket 0 can't be read")
    assert told.command == "distcommit store rebuild /jobs/job.yaml"
    assert go(JOB, machine, source(a=2, c=1)).decided is False


def test_while_a_run_lives_what_it_has_sealed_is_no_trouble() -> None:
    machine = Machine()
    machine.faults.append(fails(errno.ENOSPC, "rename", "/output/a"))
    go(WORLD, machine, source(a=3))
    store = WORLD.store(machine)
    assert any("sealed and not closed" in trouble.what for trouble in troubles(machine))
    clock = QuickClock()
    with JobLock(store.fs, store.roots.store, "living", 30, clock):
        told = find_problems(read_status(store), read_runs(store, clock), command_for(folders()))
    assert not any("sealed and not closed" in trouble.what for trouble in told)


@pytest.mark.parametrize(
    "word", ["plain", "two words", "it's", "$(touch x)", "a\x1b[31m", "a\nb", "größe", "x\u202e'\\", "`id`"]
)
def test_a_command_means_to_a_shell_what_it_was_made_of_and_controls_no_terminal(word: str) -> None:
    command = command_for(folders(("job=x y",), f"{word}.yaml"))("dataset release", word, "retry")
    assert printable(command) == command
    shown = subprocess.run(
        ["bash", "-c", command.replace("distcommit", "printf '%s\\0'", 1)], capture_output=True, check=True
    )
    words = shown.stdout.decode().split("\0")[:-1]
    assert words == ["dataset", "release", "--set", "job=x y", f"/jobs/{word}.yaml", word, "retry"]


def test_a_name_that_looks_like_an_option_is_none() -> None:
    command = command_for(folders())("dataset release", "--all-mine", "retry", named=True)
    assert command == "distcommit dataset release /jobs/job.yaml -- --all-mine retry"


def test_a_lost_file_is_told_with_what_undoes_its_sequence_and_foreign_bytes_with_what_is_to_be_moved() -> None:
    machine, data = quarantined()
    go(WORLD, machine, data)
    around = lacking(machine)
    first, *_ = troubles(machine, around=around)
    assert "b is quarantined, because a sealed file is missing: fs-rename " in first.what
    assert first.command == "distcommit dataset release /jobs/job.yaml b abandon"
    (step,) = around.lacking.values()
    foreign = EnvironmentFindings(lacking={"b": msgspec.structs.replace(step, gone=False)})
    first, *_ = troubles(machine, around=foreign)
    assert "because another file is at its target" in first.what
    assert first.command == "distcommit dataset release /jobs/job.yaml b retry"
    operator_actions.abandon(WORLD.store(machine), "b", "ann")
    assert [trouble.command.split()[1] for trouble in troubles(machine)] == ["run"]
    go(WORLD, machine, data)
    assert troubles(machine) == []


def test_what_can_not_be_planned_is_told_with_its_source_s_remedy_until_a_person_has_given_it() -> None:
    machine, data = Machine(), source(a=3)
    go(WORLD, machine, data)

    def planning() -> Iterator[object]:
        yield DatasetProblem("a", "it counts in another topic", ("dataset set-watermark", "a", "null"))
        yield DatasetProblem("new", "its records are gone", ("run", "--set=source.expired_offsets=earliest"))

    go(WORLD, machine, OddSource({}, planning=planning))
    told = {trouble.what: trouble.command for trouble in troubles(machine) if "could not be planned" in trouble.what}
    assert told == {
        "a could not be planned: it counts in another topic": "distcommit dataset set-watermark /jobs/job.yaml a null",
        "new could not be planned: its records are gone": "distcommit run --set=source.expired_offsets=earliest"
        " /jobs/job.yaml",
    }
    operator_actions.set_watermark(WORLD.store(machine), "a", None, "ann")
    (again,) = [trouble for trouble in troubles(machine) if trouble.what.startswith("a could")]
    assert again.command == "distcommit run /jobs/job.yaml"


@pytest.mark.parametrize(
    ("what", "options"),
    [(TURNED_AWAY, ["--set=on_rejected=divert"]), (NEW_FIELDS, ["--set=converters.1.evolution=evolve"]), ("odd", [])],
)
def test_records_that_fail_their_work_unit_are_told_with_the_setting_that_lets_them_pass(
    what: str, options: list[str]
) -> None:
    machine, data = Machine(), source(a=3)

    def extracting(unit: WorkUnit) -> None:
        raise RecordError(
            what, found=f"`rm -rf /` RecordError: {TURNED_AWAY} {NEW_FIELDS}. To do: `distcommit recover`"
        )

    go(WORLD, machine, OddSource(data.datasets, extracting=extracting))
    around = EnvironmentFindings(turned_away_fails=True, fails_for_fields="converters.1.evolution")
    unread, *_ = troubles(machine, around=around)
    assert unread.command == " ".join(["distcommit run", *options, "/jobs/job.yaml"])
    assert troubles(machine)[0].command == "distcommit run /jobs/job.yaml", "the job file says otherwise"


def test_the_setting_by_which_new_fields_fail_is_the_one_of_the_converter_that_has_it(tmp_path: Path) -> None:
    chain = [{"type": "schema", "evolution": "fail"}, {"type": "json"}, {"type": "json", "evolution": "fail"}]
    paths = {name: str(tmp_path / name) for name in ("store", "staging", "output")}
    for converters, key in ((chain, "converters.2.evolution"), (chain[:2], "")):
        tree = {**TREE, "paths": paths, "converters": converters}
        job = JobFolders(parse_config(tree, tmp_path / "job.yaml"), tmp_path / "job.yaml")
        store = job.open_store(create=True)
        assert around(job, store).fails_for_fields == key


def test_a_lock_that_is_not_renewed_is_told_with_who_holds_it_and_cancel_takes_it_away() -> None:
    machine, clock = Machine(), QuickClock()
    go(WORLD, machine, source(a=1))
    store = WORLD.store(machine)
    stuck = LockRecord("other", "stuck", "elsewhere", 4711, "1", clock.now_ms(), 90)
    store.fs.make_folders(f"{ROOTS.store}/lock")
    assert store.fs.put_if_absent(f"{ROOTS.store}/lock/{1:012d}.json", msgspec.json.encode(stuck))
    clock.sleep(40)
    assert troubles(machine, clock=clock) == [], "it has 90 s, and renews after 30"
    clock.sleep(10)
    (told,) = troubles(machine, clock=clock)
    assert "a run without an epoch holds the job lock: process 4711 on elsewhere" in told.what
    assert "has not renewed its lease for 50 s, although renewal is due after 30 s" in told.what
    assert told.command == "distcommit cancel /jobs/job.yaml"
    assert cancel_runs(store, "ann", clock, 0).ended
    assert troubles(machine, clock=clock) == []
    assert read_runs(store, clock).runs[0].status is RunStatus.COMMITTED
    with JobLock(store.fs, store.roots.store, "next", 90, clock):
        assert not cancel_runs(store, "ann", clock, 0).ended, "one that renews keeps it"


def test_a_run_whose_clock_is_wrong_is_told_until_the_next_one() -> None:
    machine = Machine()
    store = WORLD.store(machine)

    def ran(seconds: float) -> None:
        settings = replace(WORLD.begin(machine, source(a=1)), clock=QuickClock(seconds))
        with recorded_run(settings, "run", "ann") as told:
            run(launch, settings, observer=told)

    def told(now_s: float) -> list[str]:
        runs = read_runs(store, QuickClock(now_s))
        found = find_problems(
            read_status(store), runs, command_for(folders()), EnvironmentFindings(now_ms=int(now_s * 1000))
        )
        return [trouble.what for trouble in found]

    ran(10_000)
    assert told(10_000) == []
    ran(6_400)
    assert "began 3,600 s before that of epoch" in told(10_010)[0]
    ran(10_020)
    assert told(10_030) == []
    ran(17_250)
    assert "later than the time of this machine" in told(10_050)[0]
    ran(10_060)
    assert told(10_070) == [], "that it was wrong is over"


def test_a_run_that_could_not_go_on_before_it_left_a_record_is_told() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    WORLD.begin(machine, source(a=2))
    (told,) = troubles(machine)
    assert "began and has left no record" in told.what
    assert told.command == "distcommit run /jobs/job.yaml"
    go(WORLD, machine, source(a=2))
    assert troubles(machine) == []


@pytest.mark.parametrize("shared", [False, True])
def test_a_run_that_died_before_it_had_an_epoch_is_told_until_another_one_begins(shared: bool) -> None:
    machine, clock = Machine(), QuickClock()
    go(WORLD, machine, source(a=1))
    store = WORLD.store(machine)
    early = "20980101T000000-000000000001"
    with JobLock(store.fs, ROOTS.store, early, 30, clock, shared=shared):
        newest = max(path for path in machine.paths(ROOTS.store) if "/lock/" in path)
        held = machine.paths(ROOTS.store)[newest]
        assert troubles(machine, clock=clock) == []
    assert troubles(machine, clock=clock) == [], "it has ended"
    machine.put(newest, held)  # as if it had not said so
    for path in machine.paths(ROOTS.store):
        if "/lock/" in path and path != newest:
            machine.remove(path)
    clock.seconds += 31
    (told,) = troubles(machine, clock=clock)
    assert told.what.startswith("the last run failed: it died before it had an epoch (process ")
    assert told.command == "distcommit run /jobs/job.yaml"
    row, *others = read_runs(store, clock).runs
    assert (row.run_id, row.epoch, row.status, len(others)) == (early, 0, RunStatus.FAILED, 1)
    settings = replace(WORLD.begin(machine, source(a=1)), run_id="20980101T000001-000000000001")
    with recorded_run(settings, "run", "ann"):
        pass
    assert early not in {row.run_id for row in read_runs(store, clock).runs}


def test_a_log_that_is_damaged_is_told_with_what_mends_it() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    path = max(path for path in machine.paths(ROOTS.store) if "bucket=00000" in path and path.endswith(".seg"))
    machine.remove(path)
    machine.put(path, b"torn")
    first, *_ = troubles(machine)
    assert first.what.startswith("bucket 0 can't be read: a log segment is corrupt")
    assert first.command == "distcommit store rebuild /jobs/job.yaml"


def test_folders_that_can_not_be_written_are_told(tmp_path: Path) -> None:
    tree = {**TREE, "paths": {name: str(tmp_path / name) for name in ("store", "staging", "output")}}
    job = JobFolders(parse_config(tree, tmp_path / "job.yaml"), tmp_path / "job.yaml")
    store = job.open_store(create=True)
    assert around(job, store).closed == ()
    shutil.rmtree(tmp_path / "output")
    (closed,) = around(job, store).closed
    assert closed.startswith("paths.output cannot be inspected")
    told, *_ = find_problems(
        read_status(store), read_runs(store, QuickClock()), command_for(job), EnvironmentFindings(closed=(closed,))
    )
    assert told.command == f"distcommit run {tmp_path}/job.yaml"


def test_an_output_that_is_another_one_is_told_and_not_that_a_run_would_mend_it(tmp_path: Path) -> None:
    job_file = make_large_store(tmp_path / "job", 8)
    assert "the output" not in " ".join(each.what for each in StoredJob.from_file(job_file).status().troubles)
    for make in (lambda path: None, Path.mkdir):
        make(tmp_path / "job" / "elsewhere")
        first = StoredJob.from_file(job_file, ["paths.output=elsewhere"]).status().troubles[0]
        assert first.what.startswith("the output is older than the store, or is another folder: an unclaimed output")
        assert first.command.startswith(
            "distcommit store rebuild --set paths.output=elsewhere --keep-watermarks --dry-run"
        )
        before = sorted((tmp_path / "job").rglob("*"))
        shown = Job.from_file(job_file, ["paths.output=elsewhere"]).rebuild(keep_watermarks=True, dry_run=True)
        assert (shown.written, shown.epoch > 0, shown.problems) == (False, True, [])
        assert sorted((tmp_path / "job").rglob("*")) == before


def test_a_staging_folder_that_is_another_one_is_told_and_not_that_a_run_would_mend_it() -> None:
    machine, world = Machine(), World(buckets=2)
    half_done(machine, world)
    store = world.store(machine)

    def told() -> list[Problem]:
        status, job = read_status(store), folders()
        return find_problems(status, read_runs(store, QuickClock()), command_for(job), around(job, store))

    assert any("sealed and not closed" in trouble.what for trouble in told())
    replace_files(machine, ROOTS.staging, {})
    found = told()
    (elsewhere,) = (trouble for trouble in found if trouble.what.startswith("pending commits were staged in another"))
    assert elsewhere.command.startswith("distcommit store rebuild --keep-watermarks --dry-run")
    assert not any(trouble.mend or "sealed and not closed" in trouble.what for trouble in found)


def test_a_run_of_which_the_record_is_damaged_is_not_said_to_have_died() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=1)).epoch
    machine.put(f"{ROOTS.store}/{RUNS}/{record_name(epoch)}", b"{}")
    (told,) = troubles(machine)
    assert told.what.startswith(f"the record of the run of epoch {epoch} can't be read: ")
    assert told.command == "distcommit store repair /jobs/job.yaml"


def test_an_override_may_go_into_one_of_a_list(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps({**TREE, "converters": [{"type": "json", "evolution": "fail"}]}))
    config = load_config(file, ["converters.0.evolution=evolve"])
    assert config.task_flow().branches
    assert look_like(config) == ["evolve"]
    for wrong in ("converters.1.evolution=evolve", "converters.x=1", "converters.evolution=evolve"):
        with pytest.raises(ConfigurationError, match="not a section"):
            load_config(file, [wrong])


def look_like(config: JobConfig) -> list[str]:
    return [str(getattr(converter, "evolution", "")) for converter in config.converters]


def test_records_lost_at_the_source_are_a_problem_until_a_run_loses_none() -> None:
    machine, found = Machine(), list[list[str]]()
    for end, expired in ((3, {}), (9, {"0": 7}), (9, {"0": 7})):
        settings = WORLD.begin(machine, ModelSource({"a": ModelDataset({"0": end}, expired=expired)}))
        with recorded_run(settings, "run", "ann") as told:
            run(launch, settings, observer=told)
        found.append([each.command for each in troubles(machine) if "skipped 4 positions" in each.what])
    assert found == [[], ["distcommit run /jobs/job.yaml"], []], "the next run that loses nothing ends it"
