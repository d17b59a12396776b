"""The product: a job file, served by its schedule in a warm Spark session."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Set
from pathlib import Path

import yaml

from benchmarks.peers.peer import Peer, Place, parquet_files

_DURABLE = "fsync"
_CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # as in kafka-to-parquet.yaml
}


class Ours(Peer):
    """`distcommit schedule serve`, with the settings of the other peers, and the product's own defaults."""

    name = "ours"
    system = "distcommit"
    settings = {
        "job file": "schedule.interval_s; sink.format parquet, compression zstd; spark.master local[2,4], driver 1g, "
        "spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC, as kafka-to-parquet.yaml has it",
        "commit.durability": f"{_DURABLE} (the default)",
        "command": "distcommit schedule serve",
    }

    def missing(self) -> str:
        return ""

    def command(self, place: Place) -> list[str]:
        return [self._program(), "schedule", "serve", str(self._job(place).parent), "--poll", "1"]

    def visible(self, place: Place) -> Set[Path]:
        return parquet_files(place.output)

    def keep(self, place: Place) -> object:
        copy = place.root / "kept-store"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place.root / "store", copy)
        return copy

    def put_back(self, place: Place, kept: object) -> None:
        shutil.rmtree(place.root / "store")
        shutil.copytree(str(kept), place.root / "store")

    def refused(self, place: Place) -> list[str]:
        return [self._program(), "store", "rebuild", str(self._job(place))]

    @staticmethod
    def _program() -> str:
        return str(Path(sys.executable).with_name("distcommit"))

    @staticmethod
    def _job(place: Place) -> Path:
        """Return the job file, written if it is missing."""
        path = place.root / "jobs" / "peers.yaml"
        path.parent.mkdir(exist_ok=True)
        tree = {
            "job": "peers",
            "source": {
                "type": "kafka",
                "brokers": place.stream.brokers,
                "topic_patterns": [f"{place.stream.prefix}\\..*"],
            },
            "sink": {"type": "files", "format": "parquet", "compression": "zstd"},
            "paths": {name: str(place.root / name) for name in ("store", "staging", "output")},
            "commit": {"durability": _DURABLE},
            "schedule": {"interval_s": place.interval_s},
            "spark": {"master": "local[2,4]", "conf": _CONF},
        }
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")
        return path
