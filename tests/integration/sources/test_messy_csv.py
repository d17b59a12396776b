"""Messy CSV by the command line: a run killed in mid-commit, and the next one, publish each good row once."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from distcommit import Job
from tests.jobs.in_commit import killed_in_commit, run_of

DATASETS = 12
NOW_S = 1_700_000_000
HEADER = "Nr;Name;Betrag;Tag\r\n"


def write(path: Path, data: bytes, at: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (NOW_S + at,) * 2)


def run(path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "distcommit", "run", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_each_good_row_is_published_once_and_each_bad_file_is_rejected_once_in_spite_of_a_kill(tmp_path: Path) -> None:
    job = {
        "job": "messy",
        "source": {
            "type": "files",
            "paths": [f"{tmp_path}/in/{{dataset}}/*"],
            "format": "csv",
            "delimiter": ";",
            "encoding": "cp1252",
            "on_unreadable_file": "divert",
            "bytes_per_work_unit": 1,
        },
        "converters": [{"type": "parse", "decimal": ",", "dates": ["%d.%m.%Y"], "only_datasets": ["typed*"]}],
        "on_rejected": "divert",
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4},
        "spark": {"master": "local[2,4]"},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    names = [*(f"typed{number}" for number in range(DATASETS)), "texts"]
    sent: Counter[tuple[str, str, Any]] = Counter()
    for name in names:
        for number in range(3):
            rows = [f'{row};"Ü\r\n{row}";{row},5;31.12.2026\r\n' for row in range(100)]
            broken = "7;ä\r\n" if number == 1 else ""
            write(tmp_path / "in" / name / f"{number}.csv", (HEADER + "".join(rows) + broken).encode("cp1252"), number)
            sent.update((name, f"Ü\r\n{row}", row + 0.5 if name != "texts" else f"{row},5") for row in range(100))
        write(tmp_path / "in" / name / "bad.csv.gz", gzip.compress(HEADER.encode() * 99)[:-9], 1)
        write(tmp_path / "in" / name / "header.csv", b"Nr;Nr\r\n", 5)
    kills = killed_in_commit(path, partial(run_of, path, "killed"))
    result = run(path)
    assert kills, "the run was not killed in the middle of its commit"
    assert "input problem" in {note["kind"] for note in result["notes"]["entries"]}
    published: Counter[tuple[str, str, Any]] = Counter()
    reasons: Counter[str] = Counter()
    for file in (tmp_path / "output").rglob("*.parquet"):
        parts = file.relative_to(tmp_path / "output").parts
        for row in ds.dataset(str(file)).to_table().to_pylist():
            if parts[0] == "_rejected":
                reasons.update([row["error_reason"].removeprefix(f"{tmp_path}/in/{parts[1]}/").split(":")[0]])
            else:
                published.update([(parts[0], row["Name"], row["Betrag"])])
                assert str(row["Tag"]) == ("31.12.2026" if parts[0] == "texts" else "2026-12-31")
    assert published == sent
    assert reasons == {
        "1.csv, line 202": len(names),
        "bad.csv.gz, EOFError": len(names),
        "header.csv, line 1": len(names),
    }
    audit = Job.from_file(path).audit(deep=True)
    assert audit.exact
    assert run(path)["totals"]["records_read"] == 0
