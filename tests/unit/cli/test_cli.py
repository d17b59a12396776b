"""The command line without Spark: help, messages, exit codes, and the form of its output."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from typer.testing import CliRunner, Result

from distcommit.app.jobs.job import Job
from distcommit.cli.command_failure import causes_beside, failure_of
from distcommit.cli.main import app, commands_by_name
from distcommit.cli.terminal import Terminal
from distcommit.core.commit_groups import bucket_of
from distcommit.core.errors import ConfigurationError, ConflictError, FencedError, LostError, TransientError
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.records.log_records import Done, Failed, Fence, Intent, Postponed, Record
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.engine.driver.launch_interface import JobFailedError
from distcommit.engine.system_clock import SystemClock
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import segment_name
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import dump_steps
from distcommit.stores.history.run_records import put_record
from distcommit.stores.logs.log_anchors import durable_heads, record_cut_ended
from distcommit.stores.logs.segment_format import Segment, encode_segment
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.recorded_fixed_settings import record_settings
from tests.golden import samples

JOB = """\
job: planes
source: {type: kafka, brokers: "127.0.0.1:1", topics: [idle, waiting, stuck], request_timeout_s: 0.02}
paths: {store: store, staging: staging, output: output}
commit: {buckets: 4, durability: none}
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return file


@pytest.fixture
def store(job_file: Path) -> JobStore:
    """Return a store with an idle, a pending and a quarantined dataset."""
    store = Job.from_file(job_file).open_store(create=True)
    append(store, None, Fence(1, "run-1"))
    for bucket in range(store.buckets):
        append(store, bucket, Fence(1, "run-1"))
    for urn, end in {"idle": 10, "waiting": 20, "stuck": 30}.items():
        sequence = SealedSequence(urn, 1, None, Watermark({"0": end}), (), {"0": 0}, records=end)
        append(store, bucket_of(urn, store.buckets), Intent(1, (sequence,)))
    append(store, bucket_of("idle", store.buckets), Done(1, (SequenceName("idle", 1),)))
    stuck = Failed(1, SequenceName("stuck", 1), quarantine=True, reason="its file is gone")
    append(store, bucket_of("stuck", store.buckets), stuck)
    return store


def append(store: JobStore, bucket: int | None, record: Record) -> None:
    log = store.job_log(1) if bucket is None else store.bucket_log(bucket, 1)
    pending = [record]

    def decide(fold: Fold) -> Record | None:
        return pending.pop() if pending else None

    run_alone(log.settle(decide))


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def last_json(result: Result) -> Any:
    return json.loads(result.stdout.splitlines()[-1])


class TestHelp:
    @pytest.mark.parametrize("command", ["", "dataset", "store", "schedule", "migrate", *commands_by_name()])
    def test_help_of_each_command_begins_with_an_example_and_fits_one_screen(self, command: str) -> None:
        result = invoke(*command.split(), "--help")
        assert result.exit_code == 0
        lines = result.stdout.rstrip().splitlines()
        assert lines[0].startswith(f"Example: distcommit {command}".rstrip())
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80

    @pytest.mark.parametrize("group", ["", "dataset", "store", "schedule", "migrate"])
    def test_help_of_a_group_lists_each_command_in_one_line(self, group: str) -> None:
        result = invoke(*group.split(), "--help")
        listed = re.findall(r"^  ([a-z-]+)  +(\S.*)$", result.stdout, re.MULTILINE)
        names = [name.removeprefix(group).split()[0] for name in commands_by_name() if name.startswith(group)]
        assert [name for name, _ in listed] == list(dict.fromkeys(names))
        assert 0 < len(listed) <= 15
        texts = [text for _, text in listed]
        assert all(text.endswith(".") and len(text) <= 72 for text in texts), texts

    @pytest.mark.parametrize("name", [name for name in commands_by_name() if name != "dataset files"])
    def test_every_command_takes_the_shared_options(self, name: str) -> None:
        options = {option for parameter in commands_by_name()[name].params for option in parameter.opts}
        needs_job_file = name not in ("demo", "init", "migrate convert-gobblin")
        assert {"--json", "--verbose", "-v"} <= options
        assert ("--set" in options) == needs_job_file

    @pytest.mark.parametrize(
        ("option", "texts"),
        [
            ("--exit-codes", ["  0  ", "130  ", "another run of the job"]),
            ("--terms", ["  dataset  ", "  quarantined  skipped by runs"]),
            ("--version", ["distcommit "]),
        ],
    )
    def test_exit_codes_terms_and_version_are_shown(self, option: str, texts: list[str]) -> None:
        result = invoke(option)
        assert result.exit_code == 0
        assert all(text in result.stdout for text in texts)

    def test_shell_completion_knows_groups_commands_and_options(self) -> None:
        for line, words in {"distcommit sto": ["store"], "distcommit dataset re": ["release", "reprocess"]}.items():
            place = len(line.split()) - 1
            completed = {"_DISTCOMMIT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(place)}
            done = subprocess.run(
                [sys.executable, "-m", "distcommit"],
                env={**os.environ, **completed},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stdout.split() == words, done.stderr

    @pytest.mark.parametrize("arguments", [["bogus"], ["run"], ["dataset", "bogus"], ["status", "job.yaml", "--bogus"]])
    def test_wrong_usage_is_one_error_with_an_id_and_exit_code_2(self, arguments: list[str]) -> None:
        result = invoke(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("error: ARGUMENT_INVALID: ")
        assert result.stderr.count("\n") == 1

    @pytest.mark.parametrize(
        ("arguments", "text", "command"),
        [
            (["bogus"], "no such command 'bogus'", "distcommit"),
            (["datset"], "no such command 'datset'; did you mean 'dataset'", "distcommit"),
            (["dataset", "bogus"], "no such command 'bogus'", "distcommit dataset"),
            (["run"], "missing argument 'JOB.yaml'", "distcommit run"),
            (["status", "job.yaml", "--bogus"], "no such option: --bogus", "distcommit status"),
            (["runs", "job.yaml", "--limit", "x"], "invalid value for '--limit': ", "distcommit runs"),
        ],
    )
    def test_wrong_usage_is_one_document_with_json(self, arguments: list[str], text: str, command: str) -> None:
        result = invoke(*arguments, "--json")
        error = last_json(result)["error"]
        assert (error["id"], error["exit_code"], result.exit_code) == ("ARGUMENT_INVALID", 2, 2)
        assert error["text"].startswith(f"ARGUMENT_INVALID: {text}")
        assert error["action"] == f"read `{command} --help`"

    @pytest.mark.parametrize("words", [[], ["dataset"]])
    def test_group_without_a_command_prints_its_help(self, words: list[str]) -> None:
        result = invoke(*words)
        assert (result.exit_code, result.output.startswith("Example: ")) == (2, True)


class TestWrongJobFile:
    def test_unknown_key_is_reported_with_the_probable_key(self, job_file: Path) -> None:
        job_file.write_text(JOB.replace("buckets", "bukets"))
        result = invoke("status", job_file)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith("error: ")
        assert "commit.bukets is not a setting; did you mean 'buckets'?" in result.stderr

    def test_all_problems_of_a_job_file_are_printed_on_their_own_lines(self, job_file: Path) -> None:
        job_file.write_text(JOB.replace("buckets", "bukets") + "retention: {runs: 0}\n")
        result = invoke("status", job_file, "--json")
        assert result.exit_code == 2
        first, *lines = result.stderr.splitlines()
        assert first == "error: JOB_FILE_INVALID: the job file has 2 problems:"
        assert [line.split(": ", 1)[1] for line in lines] == [
            "commit.bukets is not a setting; did you mean 'buckets'?",
            "retention.runs must be at least 1; found 0",
        ]
        assert all(line.startswith(f"  {job_file}:") for line in lines)
        assert last_json(result)["problems"] == [line.strip() for line in lines]

    def test_unknown_key_in_an_override_is_reported_with_the_probable_key(self, job_file: Path) -> None:
        result = invoke("run", job_file, "--set", "source.broker=x")
        assert result.exit_code == 2
        assert "did you mean 'brokers'?" in result.stderr

    def test_secret_file_is_refused_outside_secret_settings(self, job_file: Path) -> None:
        result = invoke("status", job_file, "--set", "source.brokers=${file:/run/secrets/brokers}")
        assert result.exit_code == 2
        assert "must not contain ${file:PATH}, which is only for *.client.KEY, *.headers.KEY" in result.stderr
        assert "source.brokers" in result.stderr
        result = invoke("status", job_file, "--set", "source.client.sasl=${file:/run/secrets/none}")
        assert "the store does not exist" in result.stderr, "the secret file must be read only when it is used"
        by_registry = "{type: avro, registry: {url: 'http://x', client: {basic.auth.user.info: '${file:/run/none}'}}}"
        result = invoke("status", job_file, "--set", f"converters=[{by_registry}]")
        assert "the store does not exist" in result.stderr

    def test_override_without_a_value_is_refused(self, job_file: Path) -> None:
        result = invoke("audit", job_file, "--set", "commit.buckets")
        assert result.exit_code == 2
        assert "must have the form section.key=value" in result.stderr

    def test_overrides_take_precedence_over_the_job_file(self, store: JobStore, job_file: Path) -> None:
        result = invoke("status", job_file, "--set", "commit.buckets=5", "--set", "job=planes")
        assert result.exit_code == 2
        assert "expected commit.buckets: 5; found 4 buckets" in result.stderr

    def test_missing_job_file_is_reported(self, tmp_path: Path) -> None:
        result = invoke("run", tmp_path / "none.yaml")
        assert result.exit_code == 2
        assert "none.yaml: cannot be read" in result.stderr

    def test_json_error_is_printed_on_stdout_and_stderr(self, tmp_path: Path) -> None:
        result = invoke("run", tmp_path / "none.yaml", "--json")
        assert result.exit_code == 2
        error = last_json(result)["error"]
        assert list(error) == ["id", "title", "text", "cause", "action", "command", "exit_code"]
        assert (error["id"], error["title"], error["exit_code"]) == ("JOB_FILE_INVALID", "The job file is invalid", 2)
        assert error["cause"].startswith("No such file or directory")
        assert error["command"] == "distcommit check JOB.yaml"
        assert f"error: {error['text']}\n" == result.stderr
        assert error["text"].endswith(f"; {error['action']}")


class TestRelease:
    def test_release_all_retries_every_quarantined_dataset(self, store: JobStore, job_file: Path) -> None:
        assert invoke("dataset", "quarantine", job_file, "waiting").exit_code == 0
        result = invoke("dataset", "release", job_file, "--all", "retry", "--json")
        assert result.exit_code == 0
        rows = last_json(result)["datasets"]
        assert {row["dataset"]: row["status"] for row in rows} == {"waiting": "pending", "stuck": "pending"}
        result = invoke("dataset", "release", job_file, "--all", "retry", "--json")
        assert (result.exit_code, last_json(result)["datasets"]) == (0, [])

    def test_release_all_continues_past_an_unreadable_bucket(self, store: JobStore, job_file: Path) -> None:
        bucket = bucket_of("waiting", store.buckets)
        assert bucket != bucket_of("stuck", store.buckets)
        newest = max(Path(store.bucket_log(bucket).folder).glob("*.seg"))
        newest.write_bytes(b"")
        result = invoke("dataset", "release", job_file, "--all", "retry", "--json")
        assert result.exit_code == 5
        assert [row["dataset"] for row in last_json(result)["datasets"]] == ["stuck"]

    @pytest.mark.parametrize("how", ["retry", "abandon"])
    def test_release_dry_run_reports_the_same_unreadable_logs_as_the_release(
        self, store: JobStore, job_file: Path, how: str
    ) -> None:
        bucket = bucket_of("stuck", store.buckets)
        append(store, bucket, Fence(2, "run-2"))
        record_cut_ended(store, 1, durable_heads(store))
        newest = max(Path(store.bucket_log(bucket).folder).glob("*.seg"))
        for damage in (lambda: newest.write_bytes(b""), newest.unlink):  # the bucket's head names the missing segment
            damage()
            dry = invoke("dataset", "release", job_file, "--all", how, "--dry-run", "--json")
            real = invoke("dataset", "release", job_file, "--all", how, "--json")
            assert (dry.exit_code, real.exit_code) == (5, 5)
            assert last_json(dry)["unreadable"] == last_json(real)["unreadable"]
            assert list(last_json(dry)["unreadable"]) == [f"bucket {bucket}"]
            assert not any(row["changes_dataset"] for row in last_json(dry)["rows"])
            assert "unreadable logs: 1" in invoke("dataset", "release", job_file, "--all", how, "--dry-run").stdout
            dry = invoke("dataset", "release", job_file, "stuck", how, "--dry-run", "--json")
            real = invoke("dataset", "release", job_file, "stuck", how, "--json")
            assert (dry.exit_code, last_json(dry)) == (real.exit_code, last_json(real))

    @pytest.mark.parametrize("how", ["retry", "accept", "abandon", "quarantine"])
    def test_release_of_an_unknown_dataset_is_refused(self, store: JobStore, job_file: Path, how: str) -> None:
        words = (
            ["dataset", "quarantine", job_file, "stück"]
            if how == "quarantine"
            else ["dataset", "release", job_file, "stück", how]
        )
        for more in ([], ["--dry-run"]) if how != "quarantine" else ([],):
            result = invoke(*words, *more)
            assert (result.exit_code, "the store does not know this dataset" in result.stderr) == (2, True)

    def test_release_all_refuses_accept(self, store: JobStore, job_file: Path) -> None:
        result = invoke("dataset", "release", job_file, "--all", "accept")
        assert result.exit_code == 2
        assert "expected retry|abandon|restart; found accept" in result.stderr

    def test_release_all_abandons_only_datasets_with_a_missing_sealed_file(
        self, store: JobStore, job_file: Path
    ) -> None:
        context = StepContext(store.fs, store.roots.staging, store.roots.output)
        for urn in ("lost", "lost too", "kept well"):
            store.fs.create(f"{store.roots.staging}/{urn}").close_file(sync=False)
            steps = dump_steps([FsRenameCommitStep(context, urn, f"{urn}/file")])
            sequence = SealedSequence(urn, 1, None, Watermark({"0": 5}), steps, {"0": 0}, records=5)
            append(store, bucket_of(urn, store.buckets), Intent(1, (sequence,)))
            if urn != "kept well":
                store.fs.delete(f"{store.roots.staging}/{urn}")
            failed = Failed(1, SequenceName(urn, 1), quarantine=True, reason=f"the file is of size {len(urn)}")
            append(store, bucket_of(urn, store.buckets), failed)
        problems = last_json(invoke("status", job_file, "--json"))["problems"]
        commands = [problem["command"] for problem in problems if problem["id"] == "STAGED_FILE_MISSING"]
        assert commands == [f"distcommit dataset release --all {job_file} abandon"] * 2
        shown = invoke("dataset", "release", "--all", job_file, "abandon", "--dry-run")
        assert (shown.exit_code, "2 of 4 would be released" in shown.stdout) == (0, True)
        rows = last_json(invoke(*commands[0].split()[1:], "--json"))["datasets"]
        assert {row["dataset"]: row["status"] for row in rows} == {"lost": "idle", "lost too": "idle"}
        remaining = last_json(invoke("status", job_file, "--json"))["datasets"]
        assert {row["dataset"] for row in remaining if row["status"] == "quarantined"} == {"kept well", "stuck"}

    @pytest.mark.parametrize(
        "words", [["stuck"], ["stuck", "forget"], ["retry", "stuck"], ["stuck", "waiting", "retry"]]
    )
    def test_release_refuses_other_words(self, store: JobStore, job_file: Path, words: list[str]) -> None:
        result = invoke("dataset", "release", job_file, *words)
        assert result.exit_code == 2
        assert "expected DATASET retry|accept|abandon" in result.stderr

    def test_pending_dataset_is_released_only_after_it_was_quarantined(self, store: JobStore, job_file: Path) -> None:
        result = invoke("dataset", "release", job_file, "waiting", "accept")
        assert result.exit_code == 3
        assert "quarantine it" in result.stderr
        assert invoke("dataset", "quarantine", job_file, "waiting").exit_code == 0
        result = invoke("dataset", "release", job_file, "waiting", "accept", "--json")
        assert last_json(result)["datasets"][0]["positions"] == {"0": 20}
        assert invoke("dataset", "quarantine", job_file, "idle").exit_code == 3


def test_user_without_a_name_is_recorded_by_uid_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from distcommit.app.jobs import job

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 10017")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert job.username() == f"uid {os.getuid()}@{socket.gethostname()}"


class TestStatus:
    def test_status_without_a_store_ends_with_exit_code_2(self, job_file: Path) -> None:
        result = invoke("status", job_file)
        assert result.exit_code == 2
        assert "the store does not exist" in result.stderr

    def test_status_shows_the_outcome_of_the_last_run(self, store: JobStore, job_file: Path) -> None:
        unrecorded = last_json(invoke("status", job_file, "--json"))
        assert (unrecorded["last_run"], unrecorded["no_record"]) == (None, "it is under way, or it died")
        assert "no record: it is under way, or it died" in " ".join(invoke("status", job_file).stdout.split())
        with JobLock(store.fs, store.roots.store, "run-1", 30, SystemClock()):
            assert "no record: it is under way runs RUNNING" in " ".join(invoke("status", job_file).stdout.split())
        put_record(store, structs.replace(samples.RUN_RECORD, epoch=1, run_id="run-1"))
        shown = " ".join(invoke("status", job_file).stdout.split())
        assert (
            "last run run-1, epoch 1 ended incomplete at 2023-11-14 22:13:32 UTC after 12.3 s, run by ann@host" in shown
        )
        assert ": 1 quarantined; ingest: task 1 failed: no space" in shown
        recorded = last_json(invoke("status", job_file, "--json"))
        assert recorded["no_record"] == ""
        assert recorded["last_run"]["outcome"] == "incomplete"
        assert recorded["last_run"]["phases"][0]["counts"]["datasets_quarantined"] == 1
        assert recorded["last_run"]["quarantined"]["entries"][0]["subject"] == "größe/1"

    def test_status_reports_an_unreadable_run_record_and_exits_with_0(self, store: JobStore, job_file: Path) -> None:
        put_record(store, structs.replace(samples.RUN_RECORD, epoch=1))
        Path(f"{store.roots.store}/runs/0000000001.json").write_text("{}")
        result = invoke("status", job_file)
        assert result.exit_code == 0
        assert "no record: STORED_DATA_CORRUPT: the record of a run is corrupt" in " ".join(result.stdout.split())
        assert last_json(invoke("status", job_file, "--json"))["unreadable"] == {}

    def test_status_as_json_has_the_states_of_all_datasets(self, store: JobStore, job_file: Path) -> None:
        result = invoke("status", job_file, "--json")
        assert result.exit_code == 0
        assert result.stderr == ""
        assert len(result.stdout.splitlines()) == 1
        document = last_json(result)
        assert {key: document[key] for key in ("job", "buckets", "epoch", "run_id", "unreadable")} == {
            "job": "planes",
            "buckets": 4,
            "epoch": 1,
            "run_id": "run-1",
            "unreadable": {},
        }
        rows = {row["dataset"]: row for row in document["datasets"]}
        assert {name: row["status"] for name, row in rows.items()} == {
            "idle": "idle",
            "waiting": "pending",
            "stuck": "quarantined",
        }
        assert rows["idle"]["positions"] == {"0": 10}
        assert rows["idle"]["published_in"] == f"{store.roots.output}/idle"
        assert (rows["waiting"]["pending_epoch"], rows["waiting"]["pending_records"]) == (1, 20)
        assert rows["stuck"]["reason"] == "its file is gone"

    def test_status_shows_the_reason_and_an_outage_of_a_pending_dataset(self, store: JobStore, job_file: Path) -> None:
        record = Postponed(1, (PostponedSequence("waiting", 1, "no file can be written"),), outage=True)
        append(store, bucket_of("waiting", store.buckets), record)
        result = invoke("status", job_file)
        assert "an outage, which does not count as a failed run: no file can be written" in " ".join(
            result.stdout.split()
        )
        rows = {row["dataset"]: row for row in last_json(invoke("status", job_file, "--json"))["datasets"]}
        assert (rows["waiting"]["outage"], rows["waiting"]["next_run"]) == (True, "replays")

    def test_status_shows_read_failures_and_a_stopped_dataset_is_released_by_retry(
        self, store: JobStore, job_file: Path
    ) -> None:
        end = Watermark({"0": 30})
        low = Watermark({"0": 10})
        failures = (
            DatasetReadFailure("idle", low, end, "SourceError: a page is damaged"),
            DatasetReadFailure("idle", low, end, "TransientError: no answer", outage=True),
            DatasetReadFailure("idle", low, end, "SourceError: a page is damaged", stops=True),
        )
        shown = (
            "the last run could not read it: SourceError: a page is damaged",
            "could not read it; an outage, which does not count as a failed run: TransientError: no answer",
            "to be released (retry): 2 runs in a row could not read it: SourceError: a page",
        )
        bucket = bucket_of("idle", store.buckets)
        for epoch, (failure, text) in enumerate(zip(failures, shown, strict=True), 2):
            append(store, bucket, Fence(epoch, "r"))
            append(store, bucket, ReadFailures(epoch, (failure,)))
            assert text in " ".join(invoke("status", job_file).stdout.split())
        rows = {row["dataset"]: row for row in last_json(invoke("status", job_file, "--json"))["datasets"]}
        assert (rows["idle"]["status"], rows["idle"]["failed_runs"], rows["idle"]["outage"]) == ("stopped", 2, False)
        printed = " ".join(invoke("store", "log", job_file, "--dataset", "idle").stdout.split())
        assert "idle 0:10 -> 0:30; stopped: SourceError: a page is damaged" in printed
        assert invoke("dataset", "release", job_file, "idle", "accept").exit_code == 3
        released = last_json(invoke("dataset", "release", job_file, "idle", "retry", "--json"))["datasets"]
        assert [(row["status"], row["failed_runs"]) for row in released] == [("idle", 0)]
        assert invoke("dataset", "release", job_file, "idle", "retry").exit_code == 3

    def test_status_names_the_release_of_a_quarantined_dataset(self, store: JobStore, job_file: Path) -> None:
        text = " ".join(invoke("status", job_file).stdout.split())
        assert "to be released (retry, accept or abandon): its file is gone" in text

    def test_status_lists_only_datasets_that_are_not_idle(self, store: JobStore, job_file: Path) -> None:
        result = invoke("status", job_file)
        assert result.exit_code == 0
        assert "the next run replays 20 records" in result.stdout
        assert "its file is gone" in " ".join(result.stdout.split())
        assert "3 in 4 buckets: 1 idle, 1 pending, 1 quarantined" in result.stdout
        assert not any(line.strip().startswith("idle") for line in result.stdout.splitlines())

    def test_status_with_all_lists_idle_datasets_too(self, store: JobStore, job_file: Path) -> None:
        result = invoke("status", job_file, "--all")
        assert any(line.strip().startswith("idle") for line in result.stdout.splitlines())

    def test_status_with_an_unreadable_log_ends_with_exit_code_5(self, store: JobStore, job_file: Path) -> None:
        bucket = bucket_of("idle", store.buckets)
        newest = max(Path(store.bucket_log(bucket).folder).glob("*.seg"))
        newest.write_bytes(newest.read_bytes()[:-3])
        result = invoke("status", job_file)
        assert result.exit_code == 5
        assert f"bucket {bucket}" in result.stdout


class TestLog:
    def test_log_of_the_job_lists_its_fences(self, store: JobStore, job_file: Path) -> None:
        document = last_json(invoke("store", "log", job_file, "--json"))
        lines = [(line["number"], line["record"], line["ignored"]) for line in document["lines"]]
        assert lines == [(1, "Checkpoint", ""), (2, "Fence", "")]
        assert "epoch 1 begins, run run-1" in invoke("store", "log", job_file).stdout

    def test_log_of_a_dataset_lists_only_its_records(self, store: JobStore, job_file: Path) -> None:
        document = last_json(invoke("store", "log", job_file, "--dataset", "stuck", "--json"))
        assert [line["record"] for line in document["lines"]] == ["Fence", "Intent", "Failed"]
        assert document["lines"][1]["summary"] == "stuck nothing -> 0:30, 30 records in 0 files"
        assert "its file is gone" in document["lines"][2]["summary"]

    def test_log_shows_why_the_record_of_a_zombie_is_ignored(self, store: JobStore, job_file: Path) -> None:
        bucket = bucket_of("waiting", store.buckets)
        append(store, bucket, Fence(2, "run-2"))
        log = store.bucket_log(bucket)
        number = log.refresh().number + 1
        late = Segment(1, "ab" * 16, Done(1, (SequenceName("waiting", 1),)))
        store.fs.put_if_absent(f"{log.folder}/{segment_name(number)}", encode_segment(late))
        line = last_json(invoke("store", "log", job_file, "--bucket", bucket, "--json"))["lines"][-1]
        assert (line["number"], line["writer"], line["record"]) == (number, "ab" * 16, "Done")
        assert line["ignored"] == "by epoch 1, and epoch 2 has fenced this log"
        assert "ignored: by epoch 1" in invoke("store", "log", job_file, "--bucket", bucket).stdout

    def test_log_continues_past_an_unreadable_segment(self, store: JobStore, job_file: Path) -> None:
        bucket = bucket_of("idle", store.buckets)
        first = min(Path(store.bucket_log(bucket).folder).glob("*.seg"))
        first.write_bytes(first.read_bytes()[:-3])
        result = invoke("store", "log", job_file, "--bucket", bucket, "--json")
        torn, *others = last_json(result)["lines"]
        assert result.exit_code == 5
        assert torn["unreadable"]
        assert others
        assert all("its effect is unknown" in line["ignored"] for line in others)

    @pytest.mark.parametrize("words", [["--bucket", "4"], ["--bucket", "-1"], ["--bucket", "0", "--dataset", "idle"]])
    def test_log_of_an_unknown_bucket_ends_with_exit_code_2(
        self, store: JobStore, job_file: Path, words: list[str]
    ) -> None:
        assert invoke("store", "log", job_file, *words).exit_code == 2


class TestAudit:
    def test_audit_of_an_empty_store_is_exact(self, job_file: Path) -> None:
        Job.from_file(job_file).open_store(create=True)
        result = invoke("audit", job_file, "--deep", "--json")
        assert result.exit_code == 0
        document = last_json(result)
        assert (document["exact"], document["deep"], document["records"]) == (True, True, 0)

    def test_audit_that_is_not_exact_ends_with_exit_code_6(self, store: JobStore, job_file: Path) -> None:
        stray = Path(store.roots.output) / "idle" / "stray.parquet"
        stray.parent.mkdir(parents=True)
        stray.write_bytes(b"not ours")
        result = invoke("audit", job_file)
        assert result.exit_code == 6
        assert "not exact" in result.stdout
        assert "stray.parquet" in result.stdout
        assert "waiting (pending)" in result.stdout


class TestRunsThatDoNotBegin:
    @pytest.mark.parametrize("command", ["run", "recover"])
    def test_run_is_refused_while_another_run_is_alive(self, store: JobStore, job_file: Path, command: str) -> None:
        with JobLock(store.fs, store.roots.store, "run-2", 30, SystemClock()):
            result = invoke(command, job_file, "--json")
        assert result.exit_code == 3
        assert last_json(result)["error"]["id"] == "JOB_LOCK_HELD"
        assert "another run of this job is alive [run=run-2]" in result.stderr

    @pytest.mark.parametrize(
        ("command", "words"),
        [
            (["recover"], []),
            (["dataset", "release", "--all"], ["retry"]),
            (["dataset", "release"], ["stuck", "retry"]),
        ],
        ids=" ".join,
    )
    def test_dry_run_is_refused_like_the_command(
        self, store: JobStore, job_file: Path, command: list[str], words: list[str]
    ) -> None:
        record_settings(store, Job.from_file(job_file)._folders.fixed_settings())
        changed = "--set=source.dataset=partition"
        dry, real = (invoke(*command, job_file, *words, changed, "--json", *more) for more in (["--dry-run"], []))
        assert last_json(dry)["error"]["id"] == last_json(real)["error"]["id"] == "SETTING_FIXED"
        assert (dry.exit_code, dry.stdout) == (real.exit_code, real.stdout) == (2, real.stdout)

    def test_recover_dry_run_shows_the_exit_code_of_recover(self, store: JobStore, job_file: Path) -> None:
        shown = invoke("recover", job_file, "--dry-run")
        assert (shown.exit_code, "recover would end" in shown.stdout) == (0, False)
        path = max((job_file.parent / "store" / "log" / f"bucket={bucket_of('waiting', 4):05d}").glob("*.seg"))
        path.write_bytes(b"torn")
        shown = invoke("recover", job_file, "--dry-run")
        assert shown.exit_code == 1
        assert "recover would end with exit code 1" in shown.stdout
        assert "logs that can't be recovered: 1" in shown.stdout


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (FencedError("fenced"), 3),
            (TransientError("away"), 4),
            (LostError("lost"), 5),
            (OSError(28, "No space left on device"), 4),
            (RuntimeError("first line\nsecond line"), 1),
            (KeyboardInterrupt(), 130),
        ],
    )
    def test_error_is_printed_in_one_line_with_its_exit_code(
        self, error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended, Terminal(as_json=False, verbose=False).command():
            raise error
        assert ended.value.code == code
        shown = capsys.readouterr()
        assert shown.out == ""
        assert len(shown.err.splitlines()) == 1

    def test_error_shows_a_traceback_only_with_verbose(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit), Terminal(as_json=False, verbose=True).command():
            raise RuntimeError("[bold]not markup")
        shown = capsys.readouterr().err
        assert "Traceback (most recent call last)" in shown
        assert shown.splitlines()[-1] == "error: RuntimeError: [bold]not markup"

    def test_storage_error_is_printed_with_its_remedy(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended, Terminal(as_json=False, verbose=False).command():
            raise PermissionError(13, "user=x, access=WRITE", "/jobs")
        assert ended.value.code == 4
        assert capsys.readouterr().err == (
            "error: STORAGE_REFUSED: a storage operation failed; found user=x, access=WRITE (EACCES). "
            "To do: correct the permissions: let this user write /jobs, and run again; nothing was lost\n"
        )

    @pytest.mark.parametrize(
        ("last_line", "text", "code"),
        [
            (
                "distcommit.core.errors.TransientError: SPARK_UNAVAILABLE: no answer. To do: start it",
                "SPARK_UNAVAILABLE: no answer. To do: start it",
                4,
            ),
            ("ImportError: cannot import name 'x'", "ImportError: cannot import name 'x'", 1),
        ],
    )
    def test_executor_error_is_extracted_from_the_error_of_spark(
        self, last_line: str, text: str, code: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        message = f"An exception was thrown\nTraceback (most recent call last):\n  File x, line 1\n{last_line}\n"
        with pytest.raises(SystemExit) as ended, Terminal(as_json=False, verbose=False).command():
            raise RuntimeError(message)
        assert ended.value.code == code
        assert capsys.readouterr().err == f"error: {text}\n"

    def test_error_without_text_from_a_dead_jvm_is_printed_by_its_type(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        class OfSparkError(Exception):
            def __str__(self) -> str:
                raise ConnectionRefusedError(111, "Connection refused")

        def dies() -> None:
            logging.getLogger("distcommit").warning("it could not be interrupted", exc_info=OfSparkError())
            raise OfSparkError

        with pytest.raises(SystemExit) as ended, Terminal(as_json=False, verbose=False).command():
            dies()
        assert ended.value.code == 1
        assert capsys.readouterr().err == "warning: it could not be interrupted: OfSparkError\nerror: OfSparkError\n"

    def test_interrupt_message_of_py4j_is_suppressed(self, capsys: pytest.CaptureFixture[str]) -> None:
        def interrupted() -> None:
            where, message = "/py4j/java_gateway.py", "KeyboardInterrupt while sending command."
            logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, where, 1070, message, (), None))
            raise KeyboardInterrupt

        with pytest.raises(SystemExit) as ended, Terminal(as_json=False, verbose=False).command():
            interrupted()
        assert ended.value.code == 130
        assert capsys.readouterr().err == "interrupted; the next run replays what was sealed\n"

    def test_job_error_without_a_traceback_is_printed_in_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended, Terminal(as_json=False, verbose=False).command():
            raise JobFailedError("An error occurred while calling o1.collect.\n: many lines", "task 1 failed: no space")
        assert ended.value.code == 1
        assert capsys.readouterr().err == "error: task 1 failed: no space\n"


def test_failure_that_is_its_own_cause_is_printed() -> None:
    error = ConfigurationError("a setting is wrong")
    error.__cause__ = error
    assert list(causes_beside(failure_of(error), error)) == []


def test_innermost_cause_is_printed_unless_the_error_already_quotes_it() -> None:
    def causes(text: str, cause: Exception) -> list[str]:
        error = ConfigurationError(text)
        error.__cause__ = cause
        return list(causes_beside(failure_of(error), error))

    full = OSError(errno.ENOSPC, "No space left on device")
    assert causes("the plan can't be stored", full) == ["OSError: [Errno 28] No space left on device"]
    assert causes("the plan can't be stored: No space left on device", full) == []
    assert causes("job a: the lock is held", ConflictError("the lock is held")) == []
