"""Jobs with records that kill their worker, and jobs on a cluster with one bad node, killed at random moments.

Each round adds a file to each dataset and disturbs a run of the job. After some rounds an undisturbed run must publish
all datasets that have no such record: in one run, although the node is bad.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import yaml

from distcommit.app.demo.killed_run import RunProcess
from distcommit.app.jobs.job import Job
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit
from tests.cluster.timing import Say
from tests.jobs.kafka_job import PACKAGE_ROOT
from tests.jobs.victims import Role, strike
from tests.servers.spark import SparkCluster

Fault = Literal["poison", "read_only", "package", "hidden"]
FAULTS_OF_NODES: tuple[Fault, ...] = ("read_only", "package", "hidden")
POISON = 5000
"""The number in a record that kills its worker."""
_POISONED = ("d000", "d001")
_RECORDS, _END_S = 5, 400
_PACKAGES = "NODE_PACKAGES"
_ROLES: tuple[Role, ...] = ("all", "driver", "jvm", "executor", "worker")


class NeedsPackage(Converter):
    """Converter that imports a module from the folder in the worker's environment variable NODE_PACKAGES."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        if (folder := os.environ.get(_PACKAGES)) is not None:
            sys.path.insert(0, folder)
            importlib.import_module("package_of_the_nodes")
        yield Converted(batch)


class BadNodesResult(msgspec.Struct):
    """Counts of a whole drill.

    `published`: datasets whose records were all published in the end, for each fault. `innocents_starved`: datasets
    without a killing record that an undisturbed run did not publish. `kills`: runs of which processes were killed.
    """

    datasets: int
    published: int = 0
    innocents_starved: int = 0
    duplicates: int = 0
    missing: int = 0
    kills: int = 0
    problems: list[str] = []

    @property
    def is_exact(self) -> bool:
        """Return whether all datasets were published exactly once, by each undisturbed run."""
        wrong = self.innocents_starved or self.duplicates or self.missing or self.problems
        return not wrong and self.published == self.datasets


class Drill:
    """A job on a cluster with one fault."""

    def __init__(self, folder: Path, cluster: SparkCluster, fault: Fault, datasets: int) -> None:
        self.folder, self.cluster, self.fault, self.runs = folder, cluster, fault, 0
        self.names = [f"d{number:03d}" for number in range(datasets)]
        self.sent: Counter[tuple[str, int, int]] = Counter()
        self.poisoned: set[str] = set()
        self.path, self._batch = folder / "job.yaml", 0
        self.write_job()

    def write_job(self, *, repaired: bool = False) -> None:
        """Write the job file; without the converter that dies, if it is repaired."""
        killing = {
            "type": "python",
            "class": "tests.integration.parts.breaking_converter:Killing",
            "options": {"number": POISON},
        }
        package = {"type": "python", "class": "tests.cluster.bad_nodes:NeedsPackage"}
        converters: list[dict[str, Any]] = [{"type": "json", "fields": {"n": "int64", "batch": "int64"}}]
        converters += [] if repaired else [killing if self.fault == "poison" else package]
        source = {"type": "files", "paths": [f"{self.folder}/in/{{dataset}}/*.jsonl"], "format": "jsonl"}
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": 2,
            "spark.executorEnv.PYTHONPATH": str(PACKAGE_ROOT),
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.maxExecutors": 2,
        }
        job = {
            "job": "bad-nodes",
            "source": {**source, "min_file_age_s": 0},
            "converters": converters,
            "paths": {name: name for name in ("store", "staging", "output")},
            "commit": {"buckets": 8},
            "lock": {"lease_ttl_s": 2},
            "spark": {"master": self.cluster.master, "partitions": 8, "conf": conf},
        }
        for name in ("store", "staging", "output"):
            (self.folder / name).mkdir(exist_ok=True)
        self.path.write_text(yaml.safe_dump(job))

    def break_node(self) -> None:
        """Start the second worker again, with the fault."""
        self.cluster.kill_worker(2)
        packages = self.folder / "packages"
        packages.mkdir(exist_ok=True)
        read_only = self.folder if self.fault == "read_only" else None
        hidden = self.folder if self.fault == "hidden" else None
        env = {_PACKAGES: str(packages)} if self.fault == "package" else {}
        self.cluster.start_worker(2, read_only=read_only, hidden=hidden, env=env)

    def repair_node(self) -> None:
        """Start the second worker again, without a fault."""
        self.cluster.kill_worker(2)
        self.cluster.start_worker(2)

    def produce(self, *, poisoned: bool = False) -> None:
        """Add a file to each dataset."""
        self._batch += 1
        for name in self.names:
            numbers = [*range(_RECORDS)]
            if poisoned and name in _POISONED:
                numbers.append(POISON)
                self.poisoned.add(name)
            self.sent.update((name, self._batch, number) for number in numbers)
            file = self.folder / "in" / name / f"{self._batch:04d}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps({"n": n, "batch": self._batch}) + "\n" for n in numbers))

    def start(self) -> RunProcess:
        """Start a run."""
        self.runs += 1
        out = self.folder / f"run-{self.runs}"
        return RunProcess(["run", str(self.path), "--json"], out.with_suffix(".out"), out.with_suffix(".err"))

    def disturb(self, chance: random.Random) -> int:
        """Kill processes of one run at a random moment; return the number of signals that arrived."""
        role, wait_s = chance.choice(_ROLES), chance.uniform(6, 20)
        with self.start() as run:
            if run.wait(wait_s) is not None:
                return 0
            reached = strike(run, role, signal.SIGKILL, chance, self.cluster.processes())
            if role in {"executor", "worker"}:  # the run goes on with another one
                run.wait(_END_S)
        return 1 if reached else 0

    def published(self) -> Counter[tuple[str, int, int]]:
        """Return (dataset, batch, number) of each published record."""
        records: Counter[tuple[str, int, int]] = Counter()
        for path in (self.folder / "output").rglob("*.parquet"):
            name = path.relative_to(self.folder / "output").parts[0]
            rows = ds.dataset(str(path)).to_table(columns=["batch", "n"]).to_pylist()
            records.update((name, row["batch"], row["n"]) for row in rows)
        return records

    def finish(self, result: BadNodesResult) -> dict[str, Any]:
        """Run the job undisturbed, and count the datasets that it should have published and did not."""
        with self.start() as run:
            ended = run.wait(_END_S)
            if ended is None:
                result.problems.append(f"{self.fault}: a run did not end")
                return {}
        missing = self.sent - self.published()
        starved = {name for name, _, _ in missing} - self.poisoned
        result.innocents_starved += len(starved)
        if starved or (ended and not self.poisoned):
            text = f"{run.stdout.read_text()[-1500:]} {run.stderr.read_text()[-3000:]}"
            result.problems.append(f"{self.fault}: exit code {ended}, {len(starved)} starved: {text}")
        shown: dict[str, Any] = json.loads(run.stdout.read_text() or "{}")
        return shown

    def count(self, result: BadNodesResult) -> None:
        """Compare the output with the input, and audit."""
        published = self.published()
        result.missing += (self.sent - published).total()
        result.duplicates += (published - self.sent).total()
        incomplete = {name for name, _, _ in self.sent - published}
        complete = len(self.names) - len(incomplete)
        result.published = complete if not result.published else min(result.published, complete)
        audit = Job.from_file(self.path).audit(deep=True)
        audit.partitions = []
        if not audit.exact:
            result.problems.append(f"{self.fault}: {audit}"[:2000])


def run_bad_nodes(
    folder: Path, say: Say, *, faults: tuple[Fault, ...], datasets: int, kills: int, seed: int
) -> BadNodesResult:
    """Run a job for each fault; the kills are distributed over them."""
    result, chance = BadNodesResult(datasets), random.Random(seed)
    with ExitStack() as stack:
        cluster = stack.enter_context(SparkCluster())
        for place, fault in enumerate(faults):
            own = folder / fault
            own.mkdir()
            drill = Drill(own, cluster, fault, datasets)
            until = kills * (place + 1) // len(faults)
            if fault != "poison":
                drill.break_node()
            _rounds(drill, chance, until, result, say)
            if fault == "poison":
                drill.write_job(repaired=True)
                drill.poisoned.clear()
                drill.finish(result)
            else:
                drill.repair_node()
            drill.count(result)
    return result


def _rounds(drill: Drill, chance: random.Random, until: int, result: BadNodesResult, say: Say) -> None:
    """Disturb runs until so many signals arrived. Each third round, and the last, ends with an undisturbed run."""
    number = 0
    while number == 0 or result.kills < until:
        drill.produce(poisoned=drill.fault == "poison" and number == 0)
        if result.kills < until:
            result.kills += drill.disturb(chance)
        if number % 3 == 0 or result.kills >= until:
            drill.finish(result)
        number += 1
        say(f"{drill.fault}: {number} rounds, {result.kills} kills, {result.innocents_starved} starved")
