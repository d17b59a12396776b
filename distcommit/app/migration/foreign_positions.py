"""Read the positions of another system: from a CSV file, an export of Gobblin's state store, or a Kafka consumer group.

A position is the next record to read in a partition of a dataset.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distcommit.app.job_file.job_config import JobConfig
from distcommit.core.dataset_urn import check_urn
from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.support.decoding import from_json
from distcommit.core.watermark import Position

CSV_HEADER = ("dataset", "partition", "next_offset")
_NAMED = 20
_TOPICS = "kafka"
"""Namespace of Gobblin's extracts from Kafka topics."""


@dataclass(frozen=True, slots=True)
class ForeignPositions:
    """Positions of another system.

    Attributes:
        origin: description of the other system or file, for messages.
        datasets: next position to read, by dataset URN and partition.
        skipped: unused entries with the reason.
        incarnations: incarnation of the source (such as a topic id) that the positions refer to, by dataset, if known.
        source_facts: identity of the source, as the other job's store recorded it.
        lines: line numbers in the file that have the positions of a dataset.
    """

    origin: str
    datasets: dict[str, dict[str, Position]]
    skipped: list[str] = field(default_factory=list)
    incarnations: dict[str, str] = field(default_factory=dict)
    source_facts: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)


def read_positions(config: JobConfig, file: Path | None, group: str | None) -> ForeignPositions:
    """Read positions from a file or a Kafka consumer group.

    In a `.csv` file, positions that are not offsets are JSON. Any other file is an export from Gobblin.

    Raises:
        ConfigurationError: naming each invalid line or task; or if no position is for this job, or not exactly one of
            `file` and `group` is given.
        SourceError: if Kafka does not respond.
    """
    if (file is None) == (group is None):
        raise ConfigurationError(
            "positions must come from one origin: a file or a consumer group",
            id="ARGUMENT_INVALID",
            expected="either --from FILE or --kafka-group NAME",
            found="neither" if file is None else "both",
        )
    if file is not None:
        foreign_positions = _from_csv(config, file) if file.suffix.lower() == ".csv" else _from_gobblin(config, file)
    else:
        foreign_positions = _from_group(config, group or "")
    return require_some(foreign_positions)


def require_some(positions: ForeignPositions) -> ForeignPositions:
    """Return `positions`. Raises ConfigurationError if it is empty."""
    if not positions.datasets:
        raise ConfigurationError(
            "the given positions contain none of this job",
            id="POSITIONS_INVALID",
            found=f"{positions.origin}: {'; '.join(positions.skipped[:_NAMED]) or 'nothing at all'}",
            todo="compare the topics of the positions with those of the job file",
        )
    return positions


def _from_group(config: JobConfig, group: str) -> ForeignPositions:
    positions = config.source.group_positions(group)
    return ForeignPositions(f"consumer group {group}", positions.datasets, list(positions.missing))


# -- CSV


def _from_csv(config: JobConfig, file: Path) -> ForeignPositions:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            reader = csv.reader(opened, strict=True)
            header = tuple(name.strip() for name in next(reader, []))
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(
            "the file of positions can't be read", id="POSITIONS_INVALID", path=file, found=str(error)
        ) from error
    if header != CSV_HEADER:
        raise ConfigurationError(
            "the file of positions has another header",
            id="POSITIONS_INVALID",
            path=file,
            expected=",".join(CSV_HEADER),
            found=",".join(header),
            todo="name its columns so; next_offset is the offset of the first record that is not published yet",
        )
    datasets: dict[str, dict[str, Position]] = {}
    lines_of: dict[str, list[int]] = {}
    problems: list[str] = []
    for line, row in rows:
        try:
            urn, partition, position = _csv_row(config, row)
            if partition in datasets.get(urn, {}):
                raise ValueError(f"{urn} partition {partition} is there twice")
        except (ValueError, DistcommitError) as error:
            problems.append(f"line {line}: {error}")
            continue
        datasets.setdefault(urn, {})[partition] = position
        lines_of.setdefault(urn, []).append(line)
    _require_none(problems, file, "line")
    lines = {
        urn: f"{file.name}, line{'s' if len(at) > 1 else ''} {', '.join(map(str, at))}" for urn, at in lines_of.items()
    }
    return ForeignPositions(str(file), datasets, lines=lines)


def _csv_row(config: JobConfig, row: list[str]) -> tuple[str, str, Position]:
    if len(row) != len(CSV_HEADER):
        raise ValueError(f"{len(row)} fields instead of {len(CSV_HEADER)}")
    urn, partition, position = (text.strip() for text in row)
    check_urn(urn)
    if not config.source.selects(urn, partition):
        raise ValueError(f"{urn!r} partition {partition} is not in a dataset of this job")
    if position.startswith(("[", '"')):  # a list or a text, in JSON; the source checks it
        return urn, partition, from_json(position, Position)
    return urn, partition, _offset(position)


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 2**63):
        raise ValueError(f"{text!r} is not an offset")
    return int(text)


# -- Gobblin


def _from_gobblin(config: JobConfig, file: Path) -> ForeignPositions:
    """Read the output of `gobblin cli job-state-store --read-job-state --keepConfig`.

    A position is where Gobblin's KafkaSource would continue: `workunit.state.actual.high.water.mark` of a task (the
    offset after the last record), or else the low watermark of its work unit. If several job states have a partition,
    the newest job state applies.
    """
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            "the file of positions can't be read", id="POSITIONS_INVALID", path=file, found=str(error)
        ) from error
    problems = list[str]()
    newest: dict[tuple[str, str], tuple[int, int]] = {}
    for location, task, began_ms in _tasks(tree, problems):
        try:
            positions = list(_task_positions(task))
        except (ValueError, TypeError, KeyError) as error:
            problems.append(f"{location}: {error}")
            continue
        for topic, partition, position in positions:
            before = newest.get((topic, partition), (-1, -1))
            if before[0] == began_ms and before[1] != position:
                problems.append(f"{location}: {topic} partition {partition} is at {before[1]} and at {position}")
            elif before[0] < began_ms:
                newest[topic, partition] = (began_ms, position)
    _require_none(problems, file, "task")
    datasets: dict[str, dict[str, Position]] = {}
    left_out: dict[str, str] = {}
    for (topic, partition), (_, position) in sorted(newest.items()):
        urn = _dataset_of_topic(config, topic, partition)
        if not config.source.selects(urn, partition):
            left_out[topic] = "not a topic of this job"
        elif position < 0:
            left_out[f"{topic} partition {partition}"] = "Gobblin has never read it"
        else:
            datasets.setdefault(urn, {})[partition] = position
    return ForeignPositions(str(file), datasets, [f"{name}: {reason}" for name, reason in left_out.items()])


def _tasks(tree: Any, problems: list[str]) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    for job in tree if isinstance(tree, list) else [tree]:
        tasks = job.get("task states") if isinstance(job, Mapping) else None
        if not isinstance(job, Mapping) or not isinstance(tasks, list):
            problems.append("no job state with a list of 'task states'")
            continue
        began_ms = job.get("start time")
        for number, task in enumerate(tasks):
            name = task.get("task id", number) if isinstance(task, Mapping) else number
            properties = task.get("properties") if isinstance(task, Mapping) else None
            if isinstance(properties, Mapping):
                yield f"task {name}", properties, began_ms if isinstance(began_ms, int) else 0
            else:
                problems.append(f"task {name}: no properties (export again with --keepConfig)")


def _task_positions(task: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    topic = task.get("topic.name")
    if not isinstance(topic, str):
        raise KeyError("no topic.name: not a task of Gobblin's KafkaSource")
    partitions: list[str] = []
    while (partition := task.get(f"partition.id.{len(partitions)}")) is not None:
        partitions.append(str(int(partition)))
    partitions = partitions or [str(int(task["partition.id"]))]
    actual = task.get("workunit.state.actual.high.water.mark")
    if actual is None:
        actual = json.dumps(json.loads(task["watermark.interval.value"])["low.watermark.to.json"])
    values = json.loads(actual)["values"]
    if len(values) != len(partitions) or not all(type(value) is int and value >= -1 for value in values):
        raise ValueError(f"watermark {actual} does not fit partitions {', '.join(partitions)}")
    yield from ((topic, partition, value) for partition, value in zip(partitions, values, strict=True))


def _dataset_of_topic(config: JobConfig, topic: str, partition: str) -> str:
    urn = config.source.current_name(topic, partition)
    extract = config.source.extract_of(urn)
    if extract is None or extract.namespace != _TOPICS:
        raise ConfigurationError(
            "a Gobblin state store has positions of Kafka topics only",
            id="POSITIONS_INVALID",
            expected="a job with a source of type kafka",
            found=f"a source of type {config.source.type}",
        )
    return urn


def _require_none(problems: list[str], file: Path, kind: str) -> None:
    if problems:
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise ConfigurationError(
            f"the file of positions has {len(problems)} that can't be used",
            id="POSITIONS_INVALID",
            path=file,
            found="; ".join(problems[:_NAMED]) + more,
            todo=f"correct each {kind}; nothing was written",
        )
