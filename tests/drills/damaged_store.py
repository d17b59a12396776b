"""A store with a damaged part."""

from __future__ import annotations

from pathlib import Path

from distcommit.app.demo.broker import MockBroker
from tests.drills.drill import Drilled, KafkaSituation, drilled
from tests.drills.registry import drill

_TOPICS = [f"topic-{number}" for number in range(8)]


@drill("FILE_UNREADABLE", "LOG_SEGMENT_CORRUPT: if it is lost, `distcommit store rebuild` repairs a log")
def torn_log_segment(folder: Path) -> Drilled:
    """Half of a bucket's newest segment is left, as after a disk failure."""
    with MockBroker.start(dict.fromkeys(_TOPICS, 1)) as broker:
        situation = KafkaSituation(folder)
        situation.on(broker.bootstrap_servers, _TOPICS, commit={"buckets": 2})
        for code in (0, 0, 1):
            for topic in _TOPICS:
                situation.numbers(topic, 5)
            if code:
                newest = max((folder / "store" / "log" / "bucket=00000").glob("*.seg"))
                newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
            situation.run(code)
        return drilled(situation, "bucket 0 can't be read: a log segment is corrupt")
