"""Job files with a fork to a database and to files, by the command line: commits are counted by sink and branch in the
metrics and in the run's record, and by dataset in the run's table. Prepared transactions are logged by their names."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.core.records.run_counts import COMMIT_COUNTS
from tests.integration.operate.test_telemetry import SOURCE
from tests.integration.runs.test_serve import NAMES, RECORDS, write_job
from tests.servers.postgresql import PostgresServer
from tests.unit.app.telemetry.test_metrics import series

ROWS = len(NAMES) * RECORDS
GOOD, REFUSED, LATE = NAMES[0], NAMES[1], NAMES[2]


def write_fork(folder: Path, sink: dict[str, Any]) -> Path:
    """Write a job that publishes all records to the sink and to files, and return its path."""
    fork = {"type": "all", "branches": {"rows": {"sink": sink}, "lake": {"sink": {"type": "files"}}}}
    telemetry = {"metrics_file": str(folder / "orders.prom")}
    return write_job(folder, "orders", SOURCE, {"names": NAMES}, fork=fork, telemetry=telemetry)


def command(folder: Path, *arguments: str) -> tuple[int | None, Any, str]:
    """Return a command's exit code, its JSON and its stderr."""
    with RunProcess([*arguments, "--json"], folder / "out.json", folder / "err.txt") as run:
        code = run.wait(240)
        return code, json.loads(run.stdout.read_text()), run.stderr.read_text()


def recorded(folder: Path, path: Path, epoch: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the counts of a run by branch, and by dataset."""
    _, run, _ = command(folder, "runs", str(path), str(epoch))
    by_branch = {counts["branch"]: counts for counts in run["record"]["totals"]["flow"]["sinks"]}
    return by_branch, {row["dataset"]: row["counts"] for row in run["datasets"]}


def test_commits_are_counted_by_sink_and_branch_and_a_refused_commit_as_a_failure(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "rows.db")) as file, file:
        columns = '("partition" TEXT, "offset" INTEGER, value TEXT'
        file.execute(f'CREATE TABLE "{REFUSED}" {columns}, CHECK ("offset" < 0))')
        file.execute(f'CREATE TABLE "{LATE}" {columns})')
        file.execute(f'CREATE TRIGGER late BEFORE INSERT ON "{LATE}" BEGIN INSERT INTO missing VALUES (NEW.value); END')
    path = write_fork(tmp_path, {"type": "sqlite", "path": str(tmp_path / "rows.db")})
    code, result, errors = command(tmp_path, "run", str(path))
    assert code == 1, errors
    by_branch, by_dataset = recorded(tmp_path, path, result["epoch"])
    rows, lake = by_branch["rows"], by_branch["lake"]
    assert (rows["records_written"], lake["records_written"], lake["files_written"]) == (ROWS, ROWS, len(NAMES))
    assert (rows["commit_successes"], rows["commit_failures"]) == (len(NAMES) - 2, 1)
    assert rows["commit_retries"] >= 1
    assert rows["commit_attempts"] == len(NAMES) - 1 + rows["commit_retries"]
    assert rows["target_ms"] > 0
    assert not any(lake[name] for name in COMMIT_COUNTS), "renames are no requests"
    values = series((tmp_path / "orders.prom").read_text())
    for branch, counts in by_branch.items():
        labels = (branch, "orders", counts["sink"])
        assert {name: values[f"last_run_sink_{name}", labels] for name in COMMIT_COUNTS} == {
            name: counts[name] for name in COMMIT_COUNTS
        }
    assert values["last_run_commit_failures", ("orders",)] == 1
    answers = ("commit_successes", "commit_failures")
    assert {name: [by_dataset[name][count] for count in answers] for name in (GOOD, REFUSED, LATE)} == {
        GOOD: [1, 0],
        REFUSED: [0, 1],
        LATE: [0, 0],
    }
    assert by_dataset[LATE]["commit_retries"] == by_dataset[LATE]["commit_attempts"] == rows["commit_retries"]

    with closing(sqlite3.connect(tmp_path / "rows.db")) as file, file:
        file.execute("DROP TRIGGER late")
    _, result, _ = command(tmp_path, "run", str(path))
    by_branch, by_dataset = recorded(tmp_path, path, result["epoch"])
    assert (by_branch["rows"]["commit_successes"], by_dataset[LATE]["commit_successes"]) == (1, 1), "replay is counted"


def test_prepared_transactions_are_logged_from_their_start_to_their_commit(
    tmp_path: Path, preparing_server: PostgresServer
) -> None:
    (tmp_path / "password").write_text(preparing_server.password + "\n")
    with preparing_server.connect() as connection:
        connection.execute("CREATE SCHEMA logged")
    secret = f"${{file:{tmp_path / 'password'}}}"
    sink = {"type": "postgresql", "url": preparing_server.url, "password": secret, "schema": "logged"}
    path = write_fork(tmp_path, sink | {"two_phase": True})
    try:
        code, result, errors = command(tmp_path, "run", str(path), "--verbose")
        assert code == 0, errors
        states: dict[str, list[str]] = {}
        for name, state in re.findall(r"INFO distcommit\S*: transaction (distcommit-\S+): (\w+)", errors):
            states.setdefault(name, []).append(state)
        assert [*states.values()] == [["started", "prepared", "committed"]] * len(NAMES)
        by_branch, _ = recorded(tmp_path, path, result["epoch"])
        counts = by_branch["rows"]
        assert (counts["commit_attempts"], counts["commit_successes"], counts["commit_in_doubt"]) == (
            len(NAMES),
            len(NAMES),
            0,
        )
        assert Job.from_file(path).audit(deep=True).exact
    finally:
        with preparing_server.connect() as connection:
            connection.execute("DROP SCHEMA logged CASCADE")
