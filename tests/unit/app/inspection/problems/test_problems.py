"""Each problem is reported in one line, with a command that a shell accepts as printed."""

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

from distcommit.app.inspection.job_status import read_status
from distcommit.app.inspection.open_commit_steps import read_steps
from distcommit.app.inspection.problems.environment_checks import EnvironmentFindings, check_environment
from distcommit.app.inspection.problems.problem_detection import find_problems
from distcommit.app.inspection.problems.problem_kind import Problem
from distcommit.app.inspection.problems.recommended_commands import command_for
from distcommit.app.inspection.recorded_runs import RunStatus, read_runs
from distcommit.app.inspection.rejected_records import MostlyRejected
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import load_config, parse_config
from distcommit.app.jobs.job import Job
from distcommit.app.jobs.stored_job import StoredJob
from distcommit.app.running.cancel import cancel_runs
from distcommit.core.errors import NEW_FIELDS, RECORD_REJECTED, ConfigurationError, RecordError, printable
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import run
from distcommit.engine.driver.run_recorder import recorded_run
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


def problems_of(
    machine: Machine,
    *,
    whole_job: bool = False,
    findings: EnvironmentFindings = NOTHING,
    clock: QuickClock | None = None,
) -> list[Problem]:
    store = WORLD.store(machine)
    status = read_status(store, whole_job=whole_job)
    return find_problems(status, read_runs(store, clock or QuickClock()), command_for(folders()), findings)


def environment_of(job: JobFolders, store: JobStore) -> EnvironmentFindings:
    return check_environment(job, store, read_status(store), read_runs(store, QuickClock()), 1)


def lacking(machine: Machine) -> EnvironmentFindings:
    """Return the steps that quarantined datasets have lost."""
    store = WORLD.store(machine)
    context = StepContext(store.fs, store.roots.staging, store.roots.output)
    steps = {sequence.dataset: step for sequence in read_steps(store, context).sequences for step in sequence.steps}
    return EnvironmentFindings(lost_steps={urn: step for urn, step in steps.items() if step.state == "LOST"})


def quarantined(world: World = WORLD) -> tuple[Machine, ModelSource]:
    machine, data = with_folders(Machine(), "b"), source(b=[2, 1])
    machine.faults.append(dies("rename", "/output/b/", nth=2))
    with suppress(BaseException):
        run(launch, world.begin(machine, data))
    machine.restart()
    for path in machine.paths(STAGING):
        machine.remove(path)
    return machine, data


def test_job_without_problems_reports_none() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    assert problems_of(machine) == []


def test_quarantined_dataset_is_reported_with_its_release_command_until_it_is_released() -> None:
    machine, data = quarantined()
    go(WORLD, machine, data)
    first, *others = problems_of(machine)
    assert first.finding.startswith("b is quarantined: ")
    assert (first.command, first.datasets) == ("distcommit dataset release /jobs/job.yaml b retry", 1)
    assert [problem.command.split()[1:3] for problem in others] == [["dataset", "release"]], (
        "the failed run must print the release command too"
    )
    operator_actions.accept(WORLD.store(machine), "b", "ann")
    go(WORLD, machine, data)
    assert problems_of(machine) == []


def test_sealed_sequence_of_a_killed_run_is_reported_with_the_recover_command() -> None:
    machine, data = Machine(), source(a=3)
    WORLD.store(machine)
    machine.faults.append(dies("rename", "/output/a"))
    with suppress(BaseException):
        go(WORLD, machine, data)
    machine.restart()
    pending, failed = problems_of(machine)
    assert "a is sealed and not closed" in pending.finding
    assert pending.command == "distcommit recover /jobs/job.yaml"
    assert "the last run failed: it died" in failed.finding
    go(WORLD, machine, data)
    assert problems_of(machine) == []


def test_read_failure_is_reported_with_its_reason() -> None:
    machine, data = Machine(), source(a=3, b=1)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.ENOENT, "a page is gone")

    go(WORLD, machine, OddSource(data.datasets, extracting=extracting))
    unread, failed = problems_of(machine)
    assert ("b could not be read" in unread.finding, "a page is gone" in unread.finding) == (True, True)
    assert unread.command == "distcommit run /jobs/job.yaml"
    assert "b: failed" in failed.finding


def test_job_scope_run_reports_the_failed_dataset_and_the_held_datasets() -> None:
    machine, data = Machine(), source(a=3, b=1)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    go(JOB, machine, OddSource(data.datasets, extracting=extracting))
    problems = problems_of(machine, whole_job=True)
    assert any("published nothing, because of b: failed" in problem.finding for problem in problems)
    held_problem = next(problem for problem in problems if "held back" in problem.finding)
    assert "a is held back with their run, which was not decided" in held_problem.finding
    assert not any("the next run publishes nothing" in problem.finding for problem in problems)
    result = go(JOB, machine, data)
    assert (result.succeeded, result.totals.sequences_dropped) == (True, 1), "the next run must drop the held sequence"
    assert problems_of(machine, whole_job=True) == []


def test_quarantined_dataset_is_reported_to_block_the_next_job_scope_run_and_does() -> None:
    machine, data = quarantined(WORLD)
    go(WORLD, machine, data)
    problems = problems_of(machine, whole_job=True)
    assert any("the next run publishes nothing" in problem.finding for problem in problems)
    assert go(JOB, machine, source(a=3, b=[2, 1])).decided is False


def test_unreadable_log_is_reported_to_block_the_next_job_scope_run_and_does() -> None:
    machine = Machine()
    go(JOB, machine, source(a=1))
    assert not any("publishes nothing" in problem.finding for problem in problems_of(machine, whole_job=True))
    path = max(path for path in machine.paths(ROOTS.store) if "bucket=00000" in path and path.endswith(".seg"))
    machine.remove(path)
    machine.put(path, b"torn")
    assert not any("publishes nothing" in problem.finding for problem in problems_of(machine))
    (blocking,) = (
        problem for problem in problems_of(machine, whole_job=True) if "publishes nothing" in problem.finding
    )
    assert blocking.finding.endswith("and the log of bucket 0 can't be read")
    assert blocking.command == "distcommit store rebuild /jobs/job.yaml"
    assert go(JOB, machine, source(a=2, c=1)).decided is False


def test_sealed_sequence_is_not_a_problem_while_a_run_is_live() -> None:
    machine = Machine()
    machine.faults.append(fails(errno.ENOSPC, "rename", "/output/a"))
    go(WORLD, machine, source(a=3))
    store = WORLD.store(machine)
    assert any("sealed and not closed" in problem.finding for problem in problems_of(machine))
    clock = QuickClock()
    with JobLock(store.fs, store.roots.store, "living", 30, clock):
        problems = find_problems(read_status(store), read_runs(store, clock), command_for(folders()))
    assert not any("sealed and not closed" in problem.finding for problem in problems)


@pytest.mark.parametrize(
    "word", ["plain", "two words", "it's", "$(touch x)", "a\x1b[31m", "a\nb", "größe", "x\u202e'\\", "`id`"]
)
def test_printed_command_is_parsed_by_a_shell_into_the_same_words_without_control_characters(word: str) -> None:
    command = command_for(folders(("job=x y",), f"{word}.yaml"))("dataset release", word, "retry")
    assert printable(command) == command
    shown = subprocess.run(
        ["bash", "-c", command.replace("distcommit", "printf '%s\\0'", 1)], capture_output=True, check=True
    )
    words = shown.stdout.decode().split("\0")[:-1]
    assert words == ["dataset", "release", "--set", "job=x y", f"/jobs/{word}.yaml", word, "retry"]


def test_dataset_name_that_looks_like_an_option_follows_a_double_dash() -> None:
    command = command_for(folders())("dataset release", "--all-mine", "retry", named=True)
    assert command == "distcommit dataset release /jobs/job.yaml -- --all-mine retry"


def test_lost_file_is_reported_with_abandon_and_a_foreign_file_with_retry() -> None:
    machine, data = quarantined()
    go(WORLD, machine, data)
    findings = lacking(machine)
    first, *_ = problems_of(machine, findings=findings)
    assert "b is quarantined, because a sealed file is missing: fs-rename " in first.finding
    assert first.command == "distcommit dataset release /jobs/job.yaml b abandon"
    (step,) = findings.lost_steps.values()
    foreign = EnvironmentFindings(lost_steps={"b": msgspec.structs.replace(step, target_missing=False)})
    first, *_ = problems_of(machine, findings=foreign)
    assert "because another file is at its target" in first.finding
    assert first.command == "distcommit dataset release /jobs/job.yaml b retry"
    operator_actions.abandon(WORLD.store(machine), "b", "ann")
    assert [problem.command.split()[1] for problem in problems_of(machine)] == ["run"]
    go(WORLD, machine, data)
    assert problems_of(machine) == []


def test_dataset_that_cannot_be_planned_is_reported_with_the_remedy_of_its_source_until_it_is_applied() -> None:
    machine, data = Machine(), source(a=3)
    go(WORLD, machine, data)

    def planning() -> Iterator[object]:
        yield DatasetProblem("a", "it counts in another topic", ("dataset set-watermark", "a", "null"))
        yield DatasetProblem("new", "its records are gone", ("run", "--set=source.expired_offsets=earliest"))

    go(WORLD, machine, OddSource({}, planning=planning))
    commands = {
        problem.finding: problem.command
        for problem in problems_of(machine)
        if "could not be planned" in problem.finding
    }
    assert commands == {
        "a could not be planned: it counts in another topic": "distcommit dataset set-watermark /jobs/job.yaml a null",
        "new could not be planned: its records are gone": "distcommit run --set=source.expired_offsets=earliest"
        " /jobs/job.yaml",
    }
    operator_actions.set_watermark(WORLD.store(machine), "a", None, "ann")
    (again,) = [problem for problem in problems_of(machine) if problem.finding.startswith("a could")]
    assert again.command == "distcommit run /jobs/job.yaml"


def test_foreign_position_is_reported_with_the_command_of_the_error_catalogue_and_a_missing_topic_with_run() -> None:
    machine, data = Machine(), source(a=3)
    go(WORLD, machine, data)
    errors = {"a": "STORED_POSITION_FOREIGN: of another column", "new": "SOURCE_TOPIC_MISSING: no such topic"}

    def planning() -> Iterator[object]:
        yield from (DatasetProblem(urn, text) for urn, text in errors.items())

    go(WORLD, machine, OddSource({}, planning=planning))
    commands = {p.command for p in problems_of(machine) if "could not be planned" in p.finding}
    assert commands == {
        "distcommit dataset set-watermark /jobs/job.yaml a null",
        "distcommit run /jobs/job.yaml",
    }


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (RECORD_REJECTED, ["--set=on_rejected=divert"]),
        (NEW_FIELDS, ["--set=converters.1.evolution=evolve"]),
        ("odd", []),
    ],
)
def test_records_that_fail_their_work_unit_are_reported_with_the_setting_that_accepts_them(
    text: str, options: list[str]
) -> None:
    machine, data = Machine(), source(a=3)

    def extracting(unit: WorkUnit) -> None:
        raise RecordError(
            text, found=f"`rm -rf /` RecordError: {RECORD_REJECTED} {NEW_FIELDS}. To do: `distcommit recover`"
        )

    go(WORLD, machine, OddSource(data.datasets, extracting=extracting))
    findings = EnvironmentFindings(rejection_fails=True, fails_for_fields="converters.1.evolution")
    unread, *_ = problems_of(machine, findings=findings)
    assert unread.command == " ".join(["distcommit run", *options, "/jobs/job.yaml"])
    assert problems_of(machine)[0].command == "distcommit run /jobs/job.yaml", (
        "the default job file needs no other setting"
    )


def test_datasets_that_rejected_most_records_are_one_problem() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    rejected = [MostlyRejected("a", 2, 20, 11), MostlyRejected("b", 3, 1_029, 1_027)]
    (problem,) = problems_of(machine, findings=EnvironmentFindings(mostly_rejected=rejected))
    assert problem.finding == (
        "b: 1,027 of 1,029 records of its newest commit were rejected; 1 more datasets rejected most of theirs"
    )
    assert (problem.severity, problem.datasets, problem.command) == ("warning", 2, "distcommit runs /jobs/job.yaml 3")


def test_setting_that_rejects_new_fields_is_the_one_of_the_inferring_converter(tmp_path: Path) -> None:
    chain = [{"type": "schema", "evolution": "fail"}, {"type": "json"}, {"type": "json", "evolution": "fail"}]
    paths = {name: str(tmp_path / name) for name in ("store", "staging", "output")}
    for converters, key in ((chain, "converters.2.evolution"), (chain[:2], "")):
        tree = {**TREE, "paths": paths, "converters": converters}
        job = JobFolders(parse_config(tree, tmp_path / "job.yaml"), tmp_path / "job.yaml")
        store = job.open_store(create=True)
        assert environment_of(job, store).fails_for_fields == key


def test_lock_without_renewal_is_reported_with_its_holder_until_cancel_releases_it() -> None:
    machine, clock = Machine(), QuickClock()
    go(WORLD, machine, source(a=1))
    store = WORLD.store(machine)
    stuck = LockRecord("other", "stuck", "elsewhere", 4711, "1", clock.now_ms(), 90)
    store.fs.make_folders(f"{ROOTS.store}/lock")
    assert store.fs.put_if_absent(f"{ROOTS.store}/lock/{1:012d}.json", msgspec.json.encode(stuck))
    clock.sleep(40)
    assert problems_of(machine, clock=clock) == [], "a lease of 90 s is renewed after 30 s, and 40 s is not late enough"
    clock.sleep(10)
    (problem,) = problems_of(machine, clock=clock)
    assert "a run without an epoch holds the job lock: process 4711 on elsewhere" in problem.finding
    assert "has not renewed its lease for 50 s, although renewal is due after 30 s" in problem.finding
    assert problem.command == "distcommit cancel /jobs/job.yaml"
    assert cancel_runs(store, "ann", clock, 0).ended
    assert problems_of(machine, clock=clock) == []
    assert read_runs(store, clock).runs[0].status is RunStatus.COMMITTED
    with JobLock(store.fs, store.roots.store, "next", 90, clock):
        assert not cancel_runs(store, "ann", clock, 0).ended, "cancel must not release a renewed lock"


def test_run_with_a_wrong_clock_is_reported_until_the_next_run() -> None:
    machine = Machine()
    store = WORLD.store(machine)

    def ran(seconds: float) -> None:
        settings = replace(WORLD.begin(machine, source(a=1)), clock=QuickClock(seconds))
        with recorded_run(settings, "run", "ann") as recorder:
            run(launch, settings, observer=recorder)

    def reported(now_s: float) -> list[str]:
        runs = read_runs(store, QuickClock(now_s))
        problems = find_problems(
            read_status(store), runs, command_for(folders()), EnvironmentFindings(now_ms=int(now_s * 1000))
        )
        return [problem.finding for problem in problems]

    ran(10_000)
    assert reported(10_000) == []
    ran(6_400)
    assert "began 3,600 s before that of epoch" in reported(10_010)[0]
    ran(10_020)
    assert reported(10_030) == []
    ran(17_250)
    assert "later than the time of this machine" in reported(10_050)[0]
    ran(10_060)
    assert reported(10_070) == [], "a run with a correct clock must end the problem"


def test_run_that_stopped_before_it_left_a_record_is_reported() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    WORLD.begin(machine, source(a=2))
    (problem,) = problems_of(machine)
    assert "began and has left no record" in problem.finding
    assert problem.command == "distcommit run /jobs/job.yaml"
    go(WORLD, machine, source(a=2))
    assert problems_of(machine) == []


@pytest.mark.parametrize("shared", [False, True])
def test_run_that_died_before_it_had_an_epoch_is_reported_until_another_run_begins(shared: bool) -> None:
    machine, clock = Machine(), QuickClock()
    go(WORLD, machine, source(a=1))
    store = WORLD.store(machine)
    early = "20980101T000000-000000000001"
    with JobLock(store.fs, ROOTS.store, early, 30, clock, shared=shared):
        newest = max(path for path in machine.paths(ROOTS.store) if "/lock/" in path)
        lease = machine.paths(ROOTS.store)[newest]
        assert problems_of(machine, clock=clock) == []
    assert problems_of(machine, clock=clock) == [], "a run that released its lock is not a problem"
    machine.put(newest, lease)  # simulate a run that did not release its lock
    for path in machine.paths(ROOTS.store):
        if "/lock/" in path and path != newest:
            machine.remove(path)
    clock.seconds += 31
    (problem,) = problems_of(machine, clock=clock)
    assert problem.finding.startswith("the last run failed: it died before it had an epoch (process ")
    assert problem.command == "distcommit run /jobs/job.yaml"
    row, *others = read_runs(store, clock).runs
    assert (row.run_id, row.epoch, row.status, len(others)) == (early, 0, RunStatus.FAILED, 1)
    settings = replace(WORLD.begin(machine, source(a=1)), run_id="20980101T000001-000000000001")
    with recorded_run(settings, "run", "ann"):
        pass
    assert early not in {row.run_id for row in read_runs(store, clock).runs}


def test_damaged_log_is_reported_with_the_rebuild_command() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=1))
    path = max(path for path in machine.paths(ROOTS.store) if "bucket=00000" in path and path.endswith(".seg"))
    machine.remove(path)
    machine.put(path, b"torn")
    first, *_ = problems_of(machine)
    assert first.finding.startswith("bucket 0 can't be read: LOG_SEGMENT_CORRUPT: a log segment is corrupt")
    assert first.command == "distcommit store rebuild /jobs/job.yaml"


def test_folders_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    tree = {**TREE, "paths": {name: str(tmp_path / name) for name in ("store", "staging", "output")}}
    job = JobFolders(parse_config(tree, tmp_path / "job.yaml"), tmp_path / "job.yaml")
    store = job.open_store(create=True)
    assert environment_of(job, store).unwritable_folders == ()
    shutil.rmtree(tmp_path / "output")
    (closed,) = environment_of(job, store).unwritable_folders
    assert closed.startswith("paths.output cannot be inspected")
    problem, *_ = find_problems(
        read_status(store),
        read_runs(store, QuickClock()),
        command_for(job),
        EnvironmentFindings(unwritable_folders=(closed,)),
    )
    assert problem.command == f"distcommit run {tmp_path}/job.yaml"


def test_wrong_output_folder_is_reported_with_the_rebuild_command(tmp_path: Path) -> None:
    job_file = make_large_store(tmp_path / "job", 8)
    assert "the output" not in " ".join(problem.finding for problem in StoredJob.from_file(job_file).status().problems)
    for make in (lambda path: None, Path.mkdir):
        make(tmp_path / "job" / "elsewhere")
        first = StoredJob.from_file(job_file, ["paths.output=elsewhere"]).status().problems[0]
        assert first.finding.startswith("the output is older than the store, or is another folder: an unclaimed output")
        assert first.command.startswith(
            "distcommit store rebuild --set paths.output=elsewhere --keep-watermarks --dry-run"
        )
        before = sorted((tmp_path / "job").rglob("*"))
        shown = Job.from_file(job_file, ["paths.output=elsewhere"]).rebuild(keep_watermarks=True, dry_run=True)
        assert (shown.written, shown.epoch > 0, shown.problems) == (False, True, [])
        assert sorted((tmp_path / "job").rglob("*")) == before


def test_wrong_staging_folder_is_reported_with_the_rebuild_command() -> None:
    machine, world = Machine(), World(buckets=2)
    half_done(machine, world)
    store = world.store(machine)

    def find() -> list[Problem]:
        status, job = read_status(store), folders()
        return find_problems(status, read_runs(store, QuickClock()), command_for(job), environment_of(job, store))

    assert any("sealed and not closed" in problem.finding for problem in find())
    replace_files(machine, ROOTS.staging, {})
    problems = find()
    (elsewhere,) = (
        problem for problem in problems if problem.finding.startswith("pending commits were staged in another")
    )
    assert elsewhere.command.startswith("distcommit store rebuild --keep-watermarks --dry-run")
    assert not any(problem.repair or "sealed and not closed" in problem.finding for problem in problems)


def test_run_with_a_damaged_record_is_not_reported_as_dead() -> None:
    machine = Machine()
    epoch = go(WORLD, machine, source(a=1)).epoch
    machine.put(f"{ROOTS.store}/{RUNS}/{record_name(epoch)}", b"{}")
    (problem,) = problems_of(machine)
    assert problem.finding.startswith(f"the record of the run of epoch {epoch} can't be read: ")
    assert problem.command == "distcommit store repair /jobs/job.yaml"


def test_override_can_set_a_key_of_a_list_item(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps({**TREE, "converters": [{"type": "json", "evolution": "fail"}]}))
    config = load_config(file, ["converters.0.evolution=evolve"])
    assert config.task_flow().branches
    assert evolutions(config) == ["evolve"]
    for wrong in ("converters.1.evolution=evolve", "converters.x=1", "converters.evolution=evolve"):
        with pytest.raises(ConfigurationError, match="must be a key of a section"):
            load_config(file, [wrong])


def evolutions(config: JobConfig) -> list[str]:
    return [str(getattr(converter, "evolution", "")) for converter in config.converters]


def test_records_lost_at_the_source_are_a_problem_until_a_run_loses_none() -> None:
    machine, commands = Machine(), list[list[str]]()
    for end, expired in ((3, {}), (9, {"0": 7}), (9, {"0": 7})):
        settings = WORLD.begin(machine, ModelSource({"a": ModelDataset({"0": end}, expired=expired)}))
        with recorded_run(settings, "run", "ann") as recorder:
            run(launch, settings, observer=recorder)
        commands.append(
            [problem.command for problem in problems_of(machine) if "skipped 4 positions" in problem.finding]
        )
    assert commands == [[], ["distcommit run /jobs/job.yaml"], []], "a run without losses must end the problem"
