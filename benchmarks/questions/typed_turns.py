"""Typed records in Kafka and in memory, and the arms that take turns at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.arms.typed_topics import TopicsArm, TypedTopics
from benchmarks.results import Sample
from benchmarks.runner import Parts, Tell, WrongResultError, scratch
from benchmarks.workloads.topics import send
from benchmarks.workloads.typed_records import digests_of

Make = Callable[[Path], Parts]
"""Writes files below an empty folder, and returns the costs."""


def produced(
    kind: str, brokers: str, topics: int, partitions: int, values: Sequence[bytes], tell: Tell
) -> tuple[TypedTopics, TypedTopics]:
    """Produce the measured topics, and a small one for the warm-up."""
    tell(f"producing {len(values)} records of {kind}")

    def sent(prefix: str, topics: int, values: Sequence[bytes]) -> TypedTopics:
        names = tuple(f"{prefix}-{number:03d}" for number in range(topics))
        send(brokers, names, partitions, values)
        return TypedTopics(brokers, names, partitions, -(-len(values) // topics // partitions), sum(map(len, values)))

    return sent(kind, topics, values), sent(f"warm-{kind}", 1, values[:1000])


def copied(
    arms: Sequence[TopicsArm],
    topics: TypedTopics,
    warm: TypedTopics,
    expected: str,
    repeats: int,
    folder: Path,
    tell: Tell,
) -> list[Sample]:
    """Sample arms that read topics; each reads the small one first."""
    for arm in arms:  # loading and compiling do not count
        with scratch(folder) as root:
            arm.copy(warm, root)
    makes: list[tuple[str, Make]] = [(arm.name, partial(arm.copy, topics)) for arm in arms]
    return in_turns(makes, topics.records_in_all, expected, repeats, folder, tell)


def in_turns(
    arms: Sequence[tuple[str, Make]], records: int, expected: str, repeats: int, folder: Path, tell: Tell
) -> list[Sample]:
    """Sample each arm; they take turns, and another one begins each time.

    Raises:
        WrongResultError: if an arm's output is wrong.
    """
    samples = list[Sample]()
    for repeat in range(repeats):
        first = repeat % len(arms)
        for name, make in [*arms[first:], *arms[:first]]:
            with scratch(folder) as root:
                parts = make(root)
                digests = digests_of(root)
            if set(digests.values()) != {expected}:
                raise WrongResultError(f"{name} has {digests}, expected {expected}")
            seconds = parts.pop("seconds")
            tell(f"{name} #{repeat + 1}: {seconds:.2f} s, {records / seconds:,.0f} records/s")
            rounded = {key: round(value, 6) for key, value in parts.items()}
            samples.append(Sample(name, 1, 1, repeat, round(seconds, 6), {"records": float(records)} | rounded))
    return samples
