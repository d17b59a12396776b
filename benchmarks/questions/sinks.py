"""How fast do sinks bring records to their targets, next to what each target's own client does with the same data?

Each sink's question is a function of its own, listed in `_QUESTIONS` with the figures it answers. One whose target
can't be had, or which is not asked, is reported as missing with the reason, and never as a figure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from benchmarks.results import Results, Sample, medians, results_of
from benchmarks.runner import Tell
from benchmarks.workloads.sink_batches import sink_batches
from tests.servers.postgresql import PostgresServer
from tests.servers.process import ServerUnavailableError

FIGURES = (
    "postgresql_over_copy",
    "iceberg_over_append",
    "delta_over_append",
    "iceberg_records_per_s",
    "catalog_wall_s",
)
"""What is to be answered, above 1 where ours is the faster one; the last two are no quotients."""


@dataclass(frozen=True, slots=True)
class Size:
    """What each sink is given.

    Attributes:
        records: in all, where speed is measured.
        tables: where many tables are committed at once.
        repeats: samples of each arm; the median counts.
        seed: what values are made from.
    """

    records: int
    tables: int
    repeats: int
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What was measured of one sink: figures by name, every sample, and what has to be known to read them."""

    figures: dict[str, float]
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Ask = Callable[[Size, Path, Tell], Answer]
"""Measures one sink, in places of its own below that folder. ServerUnavailableError: its target can't be had."""


def postgresql(size: Size, folder: Path, tell: Tell) -> Answer:
    """Rows of about 140 bytes to one new table each time, by the sink and by the client's own binary COPY."""
    from benchmarks.arms.postgresql import by_copy, by_sink, take  # noqa: PLC0415 - a driver that is an extra
    from distcommit.sinks.postgresql.sink import PostgresqlSink  # noqa: PLC0415

    batches = sink_batches(size.records, size.seed)
    samples: list[Sample] = []
    with PostgresServer() as server, server.connect() as connection:
        sink = PostgresqlSink(type="postgresql", url=server.url, password=SecretStr(server.password))
        for repeat in range(size.repeats):
            name = f"sink-{repeat}"
            seconds = {
                "postgresql": by_sink(sink, name, batches, folder / "postgresql"),
                "copy": by_copy(connection, f"copy-{repeat}", batches),
            }
            for table in (name, f"copy-{repeat}"):
                take(connection, table, size.records)
            samples += [Sample(arm, 1, 1, repeat, spent) for arm, spent in seconds.items()]
            tell(f"{repeat}: {seconds}")
    found = medians(samples)
    note = "postgresql_over_copy: rows per second of the sink, with staging and sync, over those of psycopg's write_row"
    return Answer({"postgresql_over_copy": found["copy"] / found["postgresql"]}, samples, [note])


_QUESTIONS: dict[tuple[str, ...], Ask] = {("postgresql_over_copy",): postgresql}
"""Functions by the figures that they answer."""


def sinks(size: Size, folder: Path, tell: Tell, only: frozenset[str] = frozenset()) -> Results:
    """Asks for each sink, one after the other.

    Args:
        size: what each is given.
        folder: on the disk that is measured.
        tell: told each sample.
        only: figures that are wanted; all if empty.
    """
    figures: dict[str, float] = {}
    samples: list[Sample] = []
    notes: list[str] = []
    missing = dict.fromkeys(FIGURES, "nothing here measures it")
    for names, ask in _QUESTIONS.items():
        if only and not only.intersection(names):
            missing.update(dict.fromkeys(names, "not asked for"))
            continue
        try:
            answer = ask(size, folder, tell)
        except ServerUnavailableError as error:
            tell(f"{', '.join(names)}: {error}")
            missing.update(dict.fromkeys(names, str(error)))
            continue
        figures |= answer.figures
        samples += answer.samples
        notes += answer.notes
        missing |= dict.fromkeys(names, "its question gave no figure")
    return results_of(
        "sinks",
        figures,
        samples,
        seed=size.seed,
        folder=folder,
        parameters={"records": size.records, "tables": size.tables, "repeats": size.repeats},
        skipped={name: reason for name, reason in missing.items() if name not in figures},
        notes=notes,
    )
