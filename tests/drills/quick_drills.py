"""Drills that take seconds: commands run in this process, and runs share its Spark session."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distcommit.app.demo.broker import MockBroker
from distcommit.app.inspection.problems.catalogue import PROBLEMS
from tests.drills.catalogue import GAP, command_names
from tests.drills.drill import Drilled, KafkaSituation, NotBrokenError, Situation, Typed, count, line_of, without_ids
from tests.drills.targets import Target
from tests.jobs.commands_here import run_here

TOPICS = ("a", "b")


def typed_here(command: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a distcommit command in this process, split into words by a shell."""
    split = ["bash", "-c", f"printf '%s\\0' {command.removeprefix('distcommit')}"]
    words = subprocess.run(split, capture_output=True, text=True, check=True, cwd=folder).stdout.split("\0")[:-1]
    return run_here([word for word in words if word], folder, env)


@dataclass
class Here(Situation):
    """Job whose commands run in this process."""

    def type(self, command: str, **env: str) -> subprocess.CompletedProcess[str]:
        if command.startswith("distcommit ") and not self.shell:
            return typed_here(command, self.folder, env)
        return super().type(command, **env)


@dataclass
class KafkaHere(Here, KafkaSituation):
    """In-process job whose topics are on a broker."""


@dataclass
class TargetHere(KafkaHere):
    """In-process job whose records go to a target, and also to files if `is_forked`."""

    target: Target = field(kw_only=True)
    is_forked: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def sections(self) -> dict[str, Any]:
        """Return the job file's sections for the target, with `options` of the sink."""
        sink = {**self.target.sink, **self.options}
        if not self.is_forked:
            return {"sink": sink}
        branches = {"files": {"sink": {"type": "files"}}, "rows": {"sink": sink}}
        return {"sink": None, "fork": {"type": "all", "branches": branches}}

    def published(self) -> tuple[Counter[bytes], Counter[bytes]]:
        """Return the values that are in the target and, if forked, in the files.

        If target and files have different counts of a value, the wrong count is returned.
        """
        rows = Counter(value for topic in TOPICS for value in self.target.values(topic))
        if not self.is_forked:
            return rows, Counter()
        files, rejected = super().published()
        wrong = {value: rows[value] for value in rows | files if files[value] == self.given[value]}
        return Counter({**files, **wrong}), rejected


@contextmanager
def a_job(
    folder: Path, *topics: str, runs: int = 1, records: int = 5, target: TargetHere | None = None, **sections: Any
) -> Iterator[Any]:
    """Yield a job of topics on a broker of this process, after that many runs, with unread records."""
    names = topics or TOPICS
    with MockBroker.start(dict.fromkeys(names, 1)) as broker:
        situation = target or KafkaHere(folder)
        situation.on(broker.bootstrap_servers, names, **{"commit": {"buckets": 2}, **sections})
        for _ in range(runs):
            more(situation, *names, records=records)
            situation.run(0)
        more(situation, *names, records=records)
        yield situation


def more(situation: KafkaSituation, *topics: str, records: int = 5) -> None:
    """Produce new records to each topic."""
    for topic in topics or TOPICS:
        situation.numbers(topic, records)


@dataclass
class Printed:
    """The texts that a drill has seen printed, and the commands that it typed. `tried`: those that were refused."""

    situation: Situation
    result: Drilled = field(default_factory=Drilled)
    tried: list[str] = field(default_factory=list)

    @property
    def seen(self) -> list[str]:
        """Return the printed texts."""
        return self.result.seen

    def refused(self, command: str, says: str, code: int | None = None) -> str:
        """Type a command that must fail and print a remedy.

        Raises:
            NotBrokenError: if it does not fail so.
        """
        done = self.situation.type(command)
        text = " ".join((done.stderr or done.stdout).split())
        if not re.search(says, text) or done.returncode == 0 or (code is not None and done.returncode != code):
            raise NotBrokenError(f"{command} ended with {done.returncode} and printed {text[-3000:]}")
        self.seen.append(text)
        self.tried.append(command)
        self.result.cause_reported, self.result.problem_line = True, text[-400:]
        return text

    def problem(self, says: str) -> dict[str, Any]:
        """Return the problem of `status` with a matching text.

        Raises:
            NotBrokenError: if there is none.
        """
        problems = self.situation.reported_problems()
        match = next((problem for problem in problems if re.search(says, without_ids(line_of(problem)))), None)
        if match is None:
            raise NotBrokenError(f"status does not print {says!r}: {problems}")
        self.seen.append(line_of(match))
        self.result.cause_reported, self.result.problem_line, self.result.command = (
            True,
            line_of(match),
            match["command"],
        )
        return match

    def reported(self, text: str) -> None:
        """Record a text that was printed elsewhere, such as in a run's result."""
        self.seen.append(" ".join(text.split()))

    def type(self, command: str, code: int = 0) -> str:
        """Type a command of a remedy, or a command that was refused before; return its output.

        Raises:
            NotBrokenError: if no printed text names the command.
        """
        names = (name for name in reversed(command_names()) if command.startswith(f"distcommit {name} "))
        program = command.split(maxsplit=1)[0]  # of a program's own commands only the last word is printed
        words = {next(names, program).split()[-1], command.rsplit(maxsplit=1)[-1]}
        printed = (*self.seen, *self.tried, self.result.command)
        if not any(re.search(rf"\b{re.escape(word)}\b", text) for word in words for text in printed):
            raise NotBrokenError(f"no printed text names the command {command}: {self.seen}")
        done = self.situation.type(command)
        self.result.typed.append(Typed(command, done.returncode))
        if done.returncode != code:
            self.result.problems.append(
                f"{command} ended with {done.returncode}: {done.stdout[-700:]} {done.stderr[-2000:]}"
            )
        return done.stdout

    def ended(self, *, rejected: Counter[bytes] | None = None, gone: Counter[bytes] | None = None) -> Drilled:
        """Return the result; it requires that no problem is left and that the output is exact."""
        if problems := self.situation.reported_problems():
            self.result.problems.append(f"not resolved: {[line_of(problem) for problem in problems]}")
        count(self.situation, self.result, rejected or Counter(), gone or Counter())
        self.result.resolved = self.result.exact_afterwards and not self.result.problems
        return self.result


def unproven(declared: Sequence[str], result: Drilled) -> list[str]:
    """Return the declared remedies that were not printed."""
    return [name for name in declared if not any(_is_printed(name, observed) for observed in result.seen)]


def _is_printed(declared: str, seen: str) -> bool:
    """Return whether a printed text has the id and, after it, the part of the remedy that a drill declares."""
    name, _, remedy = declared.partition(": ")
    if name in PROBLEMS:
        return seen.startswith(f"{name}: ")
    return re.search(rf"\b{name}: .*{as_pattern(remedy).pattern}", seen, re.DOTALL) is not None


def as_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a text as it is printed."""
    return re.compile(".*".join(re.escape(part) for part in text.split(GAP)), re.DOTALL)


def loads(text: str) -> dict[str, Any]:
    """Return the JSON object that a command printed last."""
    result: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return result
