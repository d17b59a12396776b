"""A job whose sink is a custom class, by the command line on real Spark, killed while it commits."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import yaml

from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from tests.integration.parts.plain_sink import HALF_WAY, RELEASE
from tests.jobs.victims import strike

NAMES = [f"dataset-{number:02d}" for number in range(40)]
RECORDS = 3
"""Records of each dataset of `NamedSource`."""


def write_job(folder: Path) -> Path:
    """Write a job file that commits at the end of a task, in one batch for each bucket."""
    held = {name: str(folder / name) for name in ("half_way", "release")}
    job = {
        "job": "own-sink",
        "source": {
            "type": "python",
            "class": "tests.integration.parts.named_source:NamedSource",
            "options": {"names": NAMES},
        },
        "sink": {
            "type": "python",
            "class": "tests.integration.parts.held_sink:HeldSink",
            "options": {"path": str(folder / "rows.db"), **held},
        },
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 4, "min_interval_ms": 1_000_000},
        "spark": {"master": "local[2,4]"},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def rows(folder: Path) -> list[tuple[str, int]]:
    """Return dataset and offset of each row at the target."""
    db = sqlite3.connect(folder / "rows.db")
    records = db.execute("SELECT dataset, columns FROM records ORDER BY rowid").fetchall()
    db.close()
    return [(urn, msgspec.json.decode(columns)["offset"]) for urn, columns in records]


def pending(job: Job) -> list[str]:
    return [row.dataset for row in job.status().datasets if row.status == "pending"]


@pytest.mark.slow
def test_writer_only_sink_killed_while_writing_misses_nothing(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    tree = yaml.safe_load(path.read_text())
    lines = tmp_path / "lines"
    lines.mkdir()
    plain = {
        "class": "tests.integration.parts.plain_sink:PlainSink",
        "options": {"folder": str(lines), "held": True},
    }
    tree["sink"] |= plain
    tree["commit"]["delivery"] = "at_least_once"
    path.write_text(yaml.safe_dump(tree))
    with RunProcess(["run", str(path), "--json"], tmp_path / "first.out", tmp_path / "first.err") as run:
        while not (lines / HALF_WAY).exists():
            assert run.wait(0.02) is None, run.stderr.read_text()[-3000:]
        assert strike(run, "all", signal.SIGKILL, random.Random(1))
    early = lines_in(lines)
    assert early, "some are visible"
    (lines / RELEASE).touch()
    for attempt in ("second", "third"):
        with RunProcess(["run", str(path), "--json"], tmp_path / f"{attempt}.out", tmp_path / f"{attempt}.err") as run:
            assert run.wait(120) == 0, run.stderr.read_text()[-3000:]
    everything = Counter((urn, offset) for urn in NAMES for offset in range(RECORDS))
    twice = Counter(lines_in(lines)) - everything
    assert set(lines_in(lines)) == set(everything), "nothing is missing"
    assert twice <= Counter(early), "and only the first run's visible records are there twice"
    assert {row.dataset: row.positions for row in Job.from_file(path).status().datasets} == {
        urn: {"0": RECORDS} for urn in NAMES
    }


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sink_of_the_guide_is_exact_in_spite_of_kills(tmp_path: Path, seed: int) -> None:
    path, chance = write_job(tmp_path), random.Random(seed)
    tree = yaml.safe_load(path.read_text())
    target = tmp_path / "notes.db"
    tree["sink"] |= {"class": "distcommit.testing.fakes.notes_sink:NotesSink", "options": {"path": str(target)}}
    tree["commit"]["min_interval_ms"] = 0
    path.write_text(yaml.safe_dump(tree))
    with RunProcess(["run", str(path), "--json"], tmp_path / "first.out", tmp_path / "first.err") as run:
        deadline_s = time.monotonic() + 120
        while not target.exists() and time.monotonic() < deadline_s:
            assert run.wait(0.005) is None, run.stderr.read_text()[-3000:]
        time.sleep(chance.random() * 0.3)
        strike(run, "all", signal.SIGKILL, chance)
    for attempt in ("second", "third"):
        with RunProcess(["run", str(path), "--json"], tmp_path / f"{attempt}.out", tmp_path / f"{attempt}.err") as run:
            assert run.wait(120) == 0, run.stderr.read_text()[-3000:]
    db = sqlite3.connect(target)
    places = [(urn, msgspec.json.decode(note)["offset"]) for urn, note in db.execute("SELECT dataset, note FROM notes")]
    db.close()
    assert sorted(places) == [(urn, offset) for urn in NAMES for offset in range(RECORDS)]


def lines_in(folder: Path) -> list[tuple[str, int]]:
    """Return dataset and offset of each visible line."""
    words = (line.split() for file in folder.glob("*.lines") for line in file.read_text().splitlines())
    return [(urn, int(offset)) for urn, offset in words]


@pytest.mark.slow
def test_runs_killed_in_commit_and_in_replay_publish_each_record_once(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    job = Job.from_file(path)
    for attempt in ("commit", "replay"):
        half_way = tmp_path / "half_way"
        half_way.unlink(missing_ok=True)
        with RunProcess(["run", str(path), "--json"], tmp_path / f"{attempt}.out", tmp_path / f"{attempt}.err") as run:
            deadline_s = time.monotonic() + 120
            while not half_way.exists() and time.monotonic() < deadline_s:
                assert run.wait(0.02) is None, run.stderr.read_text()[-3000:]
            assert half_way.exists(), "no commit was seen"
            assert strike(run, "all", signal.SIGKILL, random.Random(1))
        open_sequences = pending(job)
        assert len(open_sequences) >= 2, "nothing was left half-way"
        committed = {urn for urn, _ in rows(tmp_path)} & set(open_sequences)
        assert committed, "of the datasets left pending some are at the target"
        assert committed < set(open_sequences), "and some are not"

    (tmp_path / "release").touch()
    with RunProcess(["run", str(path), "--json"], tmp_path / "last.out", tmp_path / "last.err") as run:
        assert run.wait(120) == 0, run.stderr.read_text()[-3000:]
        result = msgspec.json.decode(run.stdout.read_bytes().splitlines()[-1])
    assert result["totals"]["sequences_replayed"] >= 2
    assert pending(job) == []
    assert sorted(rows(tmp_path)) == [(urn, offset) for urn in NAMES for offset in range(RECORDS)]
    assert {row.dataset: row.positions for row in job.status().datasets} == {urn: {"0": RECORDS} for urn in NAMES}
    assert [path.name for path in (tmp_path / "staging").iterdir()] == [OWNERSHIP_FOLDER]
