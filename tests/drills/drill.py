"""A broken job, and an operator who types the commands that `distcommit status` prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import yaml
from confluent_kafka import Producer

from distcommit.app.demo.killed_run import RunProcess

ROOT = Path(__file__).resolve().parents[2]
DAY_MS, FIRST_DAY_MS = 86_400_000, 1_700_000_000_000
_TYPED_AT_MOST = 6
_END_S = 900.0


class NotBrokenError(Exception):
    """The situation could not be created; the drill has no result."""


class Typed(msgspec.Struct):
    """A typed command and its exit code."""

    command: str
    exit_code: int


class Drilled(msgspec.Struct):
    """Result of a drill.

    `problem_line`: the line that names the cause. `command`: the command below it, which was typed first. `typed`: all
    typed commands, each the first that `status` printed then. `exact_afterwards`: by the product's deep audit and by a
    count that shares no code with it. `seen`: the printed texts.
    """

    cause_reported: bool = False
    problem_line: str = ""
    command: str = ""
    typed: list[Typed] = []
    exact_afterwards: bool = False
    resolved: bool = False
    records: int = 0
    seconds: float = 0.0
    problems: list[str] = []
    skipped: str = ""
    seen: list[str] = []


def line_of(problem: dict[str, Any]) -> str:
    """Return the id, the finding and the action of a problem that `status` reports."""
    return f"{problem['id']}: {problem['finding']}. {problem['action']}"


def without_ids(line: str) -> str:
    """Return a printed line without the ids of errors in front of their texts; a drill's name has its id."""
    return re.sub(r"(?<=: )[A-Z]+(?:_[A-Z]+)+: ", "", line)


def nothing() -> None:
    """Do nothing: no action outside of the system, no follow-up."""


@dataclass
class Situation:
    """A job with its file, its input values, and the operator's shell.

    `shell`: the command that starts the shell. `seen_at`: the job's folders as the test process sees them, if they
    differ.
    """

    folder: Path
    given: Counter[bytes] = field(default_factory=Counter)
    config: dict[str, Any] = field(default_factory=dict)
    shell: Sequence[str] = ()
    seen_at: Path | None = None
    started: int = 0

    @property
    def path(self) -> Path:
        return self.folder / "job.yaml"

    @property
    def output(self) -> Path:
        return (self.seen_at or self.folder) / "output"

    @property
    def staging(self) -> Path:
        return (self.seen_at or self.folder) / "staging"

    def write(self, **sections: Any) -> None:
        """Write the job file; sections replace or add to the previous ones, and None removes one."""
        paths = {name: name for name in ("store", "staging", "output")}
        base: dict[str, Any] = {"job": "drill", "paths": paths, "spark": {"master": "local[2,4]"}, **self.config}
        self.config = {name: section for name, section in {**base, **sections}.items() if section is not None}
        self.path.write_text(yaml.safe_dump(self.config), encoding="utf-8")

    def type(self, command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell, exactly as printed."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return subprocess.run(
            [*self.shell, "bash", "-c", command],
            capture_output=True,
            text=True,
            timeout=_END_S,
            env={**os.environ, "PATH": path, "PYTHONPATH": python_path, **env},
            cwd=self.folder,
            check=False,
        )

    def run(self, code: int, **env: str) -> str:
        """Run the job as a schedule does; require that exit code, and return the output."""
        done = self.type(f"distcommit run {self.path} --json", **env)
        if done.returncode != code:
            raise NotBrokenError(f"a run ended with {done.returncode}: {done.stdout[-1000:]} {done.stderr[-3000:]}")
        return done.stdout

    def start(self, command: str = "run") -> RunProcess:
        """Start a run in the background."""
        self.started += 1
        name = self.folder / f"run-{self.started}"
        return RunProcess([command, str(self.path), "--json"], name.with_suffix(".out"), name.with_suffix(".err"))

    def reported_problems(self) -> list[dict[str, Any]]:
        """Return the problems that `status` reports."""
        problems: list[dict[str, Any]] = self.result("status")["problems"]
        return problems

    def result(self, *words: str) -> dict[str, Any]:
        """Return the JSON output of an inspection command."""
        done = self.type(" ".join(["distcommit", words[0], str(self.path), *words[1:], "--json"]))
        lines = done.stdout.strip().splitlines()
        if not lines:
            raise NotBrokenError(f"{words} ended with {done.returncode}: {done.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(lines[-1])
        return result

    def published(self) -> tuple[Counter[bytes], Counter[bytes]]:
        """Return the values in the output files and in the error files, read by pyarrow, by file names alone."""
        contents: tuple[Counter[bytes], Counter[bytes]] = (Counter(), Counter())
        for path in self.output.rglob("*.parquet"):
            within = path.relative_to(self.output).parts
            if not any(part.startswith(".") for part in within):
                values = pq.ParquetFile(path).read(columns=["value"])["value"].to_pylist()
                contents[within[0] == "_rejected"].update(values)
        return contents


class KafkaSituation(Situation):
    """Situation whose topics are on a broker."""

    brokers = ""

    def on(self, brokers: str, topics: Sequence[str], **sections: Any) -> None:
        """Write the job file for these topics."""
        self.brokers = brokers
        source = {"type": "kafka", "brokers": brokers, "topics": list(topics)}
        self.write(**{"source": source, "sink": {"partition_by": {"granularity": "day"}}, **sections})

    def produce(self, topic: str, *values: bytes, days: int = 1, first: int = 0) -> None:
        """Produce records to a topic's first partition, spread over days from `first` on."""
        producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 5})
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=0, timestamp=FIRST_DAY_MS + (first + number % days) * DAY_MS)
        if unacknowledged := producer.flush(60):
            raise NotBrokenError(f"{unacknowledged} records are not acknowledged")
        self.given.update(values)

    def numbers(self, topic: str, records: int, days: int = 1) -> None:
        """Produce that many records with distinct values."""
        begin = self.given.total()
        values = [b'{"topic":"%s","n":%d}' % (topic.encode(), begin + number) for number in range(records)]
        self.produce(topic, *values, days=days)


def drilled(
    situation: Situation,
    cause: str,
    *,
    act: Callable[[], None] = nothing,
    afterwards: Callable[[], None] = nothing,
    rejected: Counter[bytes] | None = None,
    gone: Counter[bytes] | None = None,
) -> Drilled:
    """Act as the operator: inspect, act outside of the system, and type the printed commands until no problem is left.

    Args:
        situation: the broken job.
        cause: a regular expression for the line that names the cause, without the ids of quoted errors.
        act: the operator's action outside of the system, before the commands.
        afterwards: further actions before the output is counted.
        rejected: the expected rejected values.
        gone: the values that the source lost before they were read.
    """
    result = Drilled()
    problems = situation.reported_problems()
    named = next((problem for problem in problems if re.search(cause, without_ids(line_of(problem)))), None)
    if named is None:
        result.problems.append(f"the cause is not reported: {problems}")
        return result
    result.cause_reported, result.problem_line, result.command = True, line_of(named), named["command"]
    result.seen += map(line_of, problems)
    shown = situation.type(f"distcommit status {situation.path}").stdout
    if result.command not in [line.strip() for line in shown.splitlines()]:
        result.problems.append(f"the command is not printed exactly: {shown}")
    act()
    command: str = result.command
    while True:
        done = situation.type(command)
        result.typed.append(Typed(command, done.returncode))
        problems = situation.reported_problems()
        result.seen += map(line_of, problems)
        if not problems or len(result.typed) == _TYPED_AT_MOST:
            break
        command = problems[0]["command"]
    if problems or done.returncode:
        what = [line_of(problem) for problem in problems]
        result.problems.append(f"not resolved: {what}; exit code {done.returncode}: {done.stderr[-2000:]}")
    afterwards()
    count(situation, result, rejected or Counter(), gone or Counter())
    result.resolved = result.cause_reported and result.exact_afterwards and not result.problems
    return result


def count(situation: Situation, result: Drilled, rejected: Counter[bytes], gone: Counter[bytes]) -> None:
    """Compare the published values with the input."""
    before = list(result.problems)
    audit = situation.result("audit", "--deep")
    if not audit.get("exact"):
        result.problems.append(f"the audit is not exact: { {k: v for k, v in audit.items() if k != 'partitions'} }")
    published, turned_away = situation.published()
    result.records = published.total() + turned_away.total()
    expected = situation.given - gone - rejected
    for name, actual, requested in (("published", published, expected), ("turned away", turned_away, rejected)):
        if actual != requested:
            lost, doubled = requested - actual, actual - requested
            result.problems.append(
                f"{name}: {lost.total()} missing, such as {list(lost)[:3]}; {doubled.total()} too many, such as"
                f" {list(doubled)[:3]}"
            )
    lost_by_source = audit.get("skipped", 0)
    if lost_by_source != gone.total():
        result.problems.append(f"the audit counts {lost_by_source} as lost by the source, and {gone.total()} were")
    result.exact_afterwards = result.problems == before
