"""Readers in a loop while runs commit and are killed: no reader may see a partial dataset or an inconsistent snapshot.

The job publishes all of its datasets or none. Each round adds one batch to each dataset, of two input files, which
become two published files. A run is killed once something of it is sealed, or a little later, and another one finishes.
pyarrow counts the records of the files that `distcommit.read` names. A batch must be complete or absent, no batch
disappears, all datasets agree, and a snapshot that is read again is unchanged.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import yaml

import distcommit
from distcommit.app.demo.killed_run import CommitWatcher, RunProcess
from distcommit.app.jobs.job import Job
from distcommit.app.reading.snapshot_reader import Snapshot
from distcommit.core.errors import NotSettledError, SnapshotExpiredError
from tests.cluster.timing import Say

RECORDS, FILES = 6, 2
"""Records in a batch of a dataset."""
Batches = dict[int, int]
"""Records by batch."""


class ReadersResult(msgspec.Struct):
    """Counts of reads.

    `views`: of one dataset; `partial` of them had a part of a batch, or went back. `cuts`: of all datasets; `torn` of
    them were partial, showed half a job, went back, or had changed. `gone`: snapshots deleted meanwhile, which was
    reported. `kills`: killed runs; `in_commit` of them had open sealed sequences.
    """

    datasets: int
    batches: int = 0
    views: int = 0
    partial: int = 0
    cuts: int = 0
    torn: int = 0
    gone: int = 0
    kills: int = 0
    in_commit: int = 0
    newest_batch_seen: int = -1
    problems: list[str] = []

    @property
    def is_whole(self) -> bool:
        """Return whether no reader saw a partial commit, and the newest batch was seen in the end."""
        return not (self.partial or self.torn or self.problems) and self.newest_batch_seen == self.batches - 1


def _batches(paths: list[str]) -> Batches:
    batches: Counter[int] = Counter()
    for path in paths:
        batches.update(pq.ParquetFile(path).read(["batch"])["batch"].to_pylist())
    return dict(batches)


def _wrong(batches: Batches, before: Batches) -> str:
    if set(batches.values()) - {RECORDS}:
        return f"a part of a batch: {batches}"
    return "" if before.keys() <= batches.keys() else f"it went back: {sorted(before)} to {sorted(batches)}"


class Reader(threading.Thread):
    """Thread that reads until stopped: single datasets, all of them at the newest snapshot, and at a known older
    one."""

    def __init__(self, path: Path, seed: int, result: ReadersResult) -> None:
        super().__init__(daemon=True)
        self._path, self._chance, self.result = path, random.Random(seed), result
        self.stopped = threading.Event()
        self._last: dict[str, Batches] = {}
        self._last_all: dict[str, Batches] = {}
        self._known: dict[tuple[int, int], dict[str, Batches]] = {}

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                self.look()
            except (SnapshotExpiredError, FileNotFoundError):  # a file that was deleted after it was named
                self.result.gone += 1
            except NotSettledError:
                self.stopped.wait(0.05)
            except Exception as error:
                self.result.problems.append(f"{type(error).__name__}: {error}")
                raise

    def look(self) -> None:
        """Read once."""
        cut = distcommit.read(self._path)
        if not cut.datasets:
            self.stopped.wait(0.05)
        elif self._chance.random() < 0.9:
            self._view(cut, self._chance.choice(list(cut.datasets)))
        else:
            self._look_at_all(cut)
            if (epochs := sorted({name[0] for name in self._known})) and self._chance.random() < 0.3:
                self._look_at_all(distcommit.read(self._path, as_of=self._chance.choice(epochs)), newest=False)

    def _view(self, cut: Snapshot, urn: str) -> None:
        batches = _batches(cut.files(urn))
        self.result.views += 1
        if wrong := _wrong(batches, self._last.get(urn, {})):
            self.result.partial += 1
            self.result.problems.append(f"{urn} at epoch {cut.epoch}: {wrong}")
        self._last[urn] = batches

    def _look_at_all(self, cut: Snapshot, *, newest: bool = True) -> None:
        batches = {urn: _batches(paths) for urn, paths in cut.paths().items()}
        self.result.cuts += 1
        before = self._last_all if newest else {}
        wrong = next((w for urn, observed in batches.items() if (w := _wrong(observed, before.get(urn, {})))), "")
        if len({frozenset(observed) for observed in batches.values()}) > 1 or len(batches) != self.result.datasets:
            wrong = f"half a job: {Counter(max(observed) for observed in batches.values())} of {len(batches)} datasets"
        if self._known.setdefault((cut.epoch, cut.phase), batches) != batches:
            wrong = "it has changed"
        if wrong:
            self.result.torn += 1
            self.result.problems.append(f"the cut {cut.epoch}, {cut.phase}: {wrong}")
        if newest:
            self._last_all = batches
        self.result.newest_batch_seen = max(
            self.result.newest_batch_seen, *(max(observed) for observed in batches.values())
        )


def _job_file(folder: Path) -> Path:
    path = folder / "job.yaml"
    source = {"type": "files", "paths": [f"{folder}/in/{{dataset}}/*.jsonl"], "format": "jsonl", "min_file_age_s": 0}
    job = {
        "job": "readers",
        "source": {**source, "bytes_per_work_unit": 1},
        "converters": [{"type": "json", "fields": {"batch": "int64", "n": "int64"}}],
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": 8, "scope": "job"},
        "lock": {"lease_ttl_s": 2},
        "spark": {"master": "local[2,4]"},
    }
    path.write_text(yaml.safe_dump(job))
    return path


def _produce(folder: Path, datasets: int, batch: int) -> None:
    for number in range(datasets):
        below = folder / "in" / f"d{number:03d}"
        below.mkdir(parents=True, exist_ok=True)
        rows = [json.dumps({"batch": batch, "n": n}) for n in range(RECORDS)]
        for part in range(FILES):
            (below / f"{batch:06d}-{part}.jsonl").write_text("\n".join(rows[part::FILES]) + "\n")


def _strike(path: Path, number: int, wait_s: float, result: ReadersResult) -> None:
    """Kill a run some time after it has sealed a dataset, unless it ends earlier."""
    watcher, out = CommitWatcher(Job.from_file(path).open_store(create=True)), path.parent / f"killed-{number}"
    with RunProcess(["run", str(path), "--json"], out.with_suffix(".out"), out.with_suffix(".err")) as run:
        while not run.has_ended and not watcher.pending():
            run.wait(0.002)
        run.wait(wait_s)
        had_ended = run.has_ended
        run.kill()
    result.kills += not had_ended
    result.in_commit += bool(watcher.pending())


def _finish(path: Path) -> None:
    line = [sys.executable, "-m", "distcommit", "run", str(path), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"an undisturbed run fails: {done.stdout} {done.stderr[-2000:]}")


def run_readers(folder: Path, say: Say, *, datasets: int, rounds: int, readers: int, seed: int) -> ReadersResult:
    """Read in that many threads while runs of the job come and go; return the sum of all threads' results."""
    path, chance = _job_file(folder), random.Random(seed)
    Job.from_file(path).open_store(create=True)
    total = ReadersResult(datasets, batches=rounds)
    threads = [Reader(path, seed + number, ReadersResult(datasets)) for number in range(readers)]
    for thread in threads:
        thread.start()
    for number in range(rounds):
        _produce(folder, datasets, number)
        _strike(path, number, chance.choice((0, 0, 0.02, 0.1, 0.3)), total)
        _finish(path)
        say(f"{number + 1} rounds, {sum(t.result.views for t in threads)} views, {total.in_commit} killed in commits")
    for thread in threads:
        thread.stopped.set()
        thread.join()
        thread.result.problems.extend([] if thread.result.cuts else ["a reader has seen nothing"])
    last = threads[0]
    last._look_at_all(distcommit.read(path))
    for thread in threads:
        for name in ("views", "partial", "cuts", "torn", "gone"):
            setattr(total, name, getattr(total, name) + getattr(thread.result, name))
        total.problems += thread.result.problems[:10]
        total.newest_batch_seen = max(total.newest_batch_seen, thread.result.newest_batch_seen)
    return total
