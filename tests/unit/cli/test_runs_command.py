"""`distcommit runs` shows runs safely, whatever their records contain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from distcommit.app.jobs.job import Job
from distcommit.core.records.log_records import Fence
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.records.run_reasons import Reason, Reasons
from distcommit.stores.history.run_records import put_beginning, put_record
from distcommit.stores.history.run_table import DatasetOutcome, TaskIdentity, TaskRows, outcome_row, put_task_rows
from distcommit.stores.state.job_store import JobStore
from tests.golden import samples
from tests.unit.cli.test_cli import JOB, append, invoke, last_json

HOSTILE = "\x1b]0;owned\x07[red]<b onclick=alert(1)>\r\nforged\u202e"
DANGEROUS = {"\x1b", "\x07", "\r", "\u202e"}


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return file


@pytest.fixture
def store(job_file: Path) -> JobStore:
    """Return a store with a committed run, a failed run and a killed run."""
    store = Job.from_file(job_file).open_store(create=True)
    record = samples.RUN_RECORD
    for number, outcome in {3: RunOutcome.SUCCEEDED, 5: RunOutcome.FAILED, 7: None}.items():
        run_id = f"2026010{number}T000000-00000000000{number}"
        append(store, None, Fence(number, run_id))
        put_beginning(store, structs.replace(samples.RUN_BEGINNING, epoch=number, run_id=run_id))
        if outcome is not None:
            reasons = Reasons((Reason(HOSTILE, "failed", HOSTILE),), 0)
            error = HOSTILE if outcome is RunOutcome.FAILED else ""
            put_record(
                store,
                structs.replace(
                    record,
                    epoch=number,
                    run_id=run_id,
                    outcome=outcome,
                    error=error,
                    reasons=reasons,
                    requested_by=HOSTILE,
                ),
            )
            rows = [
                outcome_row(HOSTILE, 0, DatasetOutcome.FAILED, kind="failed", reason=HOSTILE),
                outcome_row("a", 1, DatasetOutcome.PUBLISHED, RunCounts(records_published=9, files_published=1)),
            ]
            drained = TaskRows(TaskIdentity("drain", 0, f"{0:032x}"), rows)
            put_task_rows(store.fs, store.roots.store, run_id, drained)
    return store


def test_runs_are_listed_newest_first(store: JobStore, job_file: Path) -> None:
    result = invoke("runs", job_file)
    assert result.exit_code == 0
    lines = [line.split()[:2] for line in result.stdout.splitlines() if line.split()[:1] in (["3"], ["5"], ["7"])]
    assert lines == [["7", "FAILED"], ["5", "FAILED"], ["3", "COMMITTED"]]
    document = last_json(invoke("runs", job_file, "--json"))
    assert [(row["epoch"], row["status"]) for row in document["runs"]] == [
        (7, "FAILED"),
        (5, "FAILED"),
        (3, "COMMITTED"),
    ]
    assert document["failed_in_a_row"] == 2
    assert "it died" in document["runs"][0]["reason"]


def test_single_run_is_shown_with_its_facts_and_datasets(store: JobStore, job_file: Path) -> None:
    result = invoke("runs", job_file, "3")
    text = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert "python 3.11.7" in text
    assert "process 4711 on host" in text
    assert '"sasl.password": "***"' in text
    document = last_json(invoke("runs", job_file, "3", "--json"))
    assert [row["outcome"] for row in document["datasets"]] == ["failed", "published"]


@pytest.mark.parametrize("words", [[], ["3"], ["5"], ["7"]])
def test_hostile_record_is_printed_without_control_characters_and_unchanged_in_json(
    store: JobStore, job_file: Path, words: list[str]
) -> None:
    shown, as_json = invoke("runs", job_file, *words), invoke("runs", job_file, *words, "--json")
    assert (shown.exit_code, as_json.exit_code) == (0, 0)
    assert not DANGEROUS & set(shown.stdout)
    assert not DANGEROUS & set(as_json.stdout)
    assert not any(line.startswith("forged") for line in shown.stdout.splitlines())
    if words == ["5"]:
        assert "<b onclick=alert(1)>" in "".join(shown.stdout.split("\n")), "markup must be printed as text"
        document = json.loads(as_json.stdout)
        assert document["datasets"][0]["dataset"] == HOSTILE
        assert document["record"]["error"] == HOSTILE


def test_unknown_run_ends_with_exit_code_2(store: JobStore, job_file: Path) -> None:
    assert "retention has deleted" in invoke("runs", job_file, "2").stderr
    result = invoke("runs", job_file, "99", "--json")
    assert (result.exit_code, last_json(result)["error"]["id"]) == (2, "RUN_UNKNOWN")
    assert invoke("runs", job_file, "soon").exit_code == 2


def record_start(store: JobStore, epoch: int, config: dict[str, object]) -> None:
    run_id = f"20260102T000000-{epoch:012d}"
    append(store, None, Fence(epoch, run_id))
    facts = structs.replace(samples.RUN_BEGINNING.facts, config=config)
    put_beginning(store, structs.replace(samples.RUN_BEGINNING, epoch=epoch, run_id=run_id, facts=facts))


def test_settings_of_a_run_are_shown_and_compared_with_another_run(store: JobStore, job_file: Path) -> None:
    record_start(store, 11, {"job": "t", "source": {"type": "kafka", "topics": "a"}, "converters": [{"type": "json"}]})
    record_start(store, 12, {"job": "t", "source": {"type": "kafka", "topics": HOSTILE}, "converters": []})
    shown = invoke("runs", job_file, "11", "--settings")
    assert shown.exit_code == 0
    assert ["source.topics", "a"] in [line.split() for line in shown.stdout.splitlines()]
    document = last_json(invoke("runs", job_file, "12", "--compare", "11", "--json"))
    assert (document["epoch"], document["compared_epoch"]) == (12, 11)
    assert {row["setting"]: (row["value"], row["compared_value"]) for row in document["settings"]} == {
        "source.topics": (HOSTILE, "a"),
        "converters": ([], None),
        "converters.0.type": (None, "json"),
    }
    compared = invoke("runs", job_file, "12", "--compare", "11")
    assert "source.topics" in compared.stdout
    assert "job" not in compared.stdout.split()
    assert not DANGEROUS & set(compared.stdout)
    assert "have the same settings" in invoke("runs", job_file, "11", "--compare", "11").stdout


@pytest.mark.parametrize("arguments", [("--settings",), ("--compare", "3"), ("99", "--settings")])
def test_settings_without_a_recorded_run_are_an_error(
    store: JobStore, job_file: Path, arguments: tuple[str, ...]
) -> None:
    result = invoke("runs", job_file, *arguments)
    assert result.exit_code == 2
    assert "EPOCH" in result.output or "RUN_UNKNOWN" in result.output
