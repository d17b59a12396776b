"""The lag of Kafka datasets whose partitions do not all answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.sources.kafka import lag as kafka_lag
from distcommit.sources.kafka.client import KafkaConnection, KafkaQueries
from distcommit.sources.kafka.topics import KafkaDataset, PartitionName, PartitionOffsets

STATES = {"t": DatasetState("t", watermark=Watermark({"0": 5, "1": 5, "2": 9}))}


class Logs:
    """Three partitions with 9 records each."""

    def logs(self, names: list[PartitionName], *_: object) -> dict[PartitionName, PartitionOffsets]:
        return dict.fromkeys(names, PartitionOffsets(0, 9))


@pytest.mark.parametrize(("arrived", "late"), [((0, 1), ""), ((0,), "partitions 1: "), ((), "partitions 0, 1: ")])
def test_lag_names_the_partitions_whose_first_unread_message_does_not_arrive(
    monkeypatch: pytest.MonkeyPatch, arrived: tuple[int, ...], late: str
) -> None:
    def first_times(_: object, offsets: Mapping[PartitionName, int]) -> dict[PartitionName, int]:
        assert offsets == {("t", 0): 5, ("t", 1): 5}
        return {("t", number): 0 for number in arrived}

    monkeypatch.setattr(kafka_lag, "_first_times", first_times)
    queries, dataset = cast("KafkaQueries", Logs()), KafkaDataset("t", "t", (0, 1, 2))
    (lag,) = kafka_lag._lags(KafkaConnection("", {}, 30), queries, [dataset], STATES)
    assert lag.records == 8
    assert (lag.seconds is not None) == bool(arrived)
    assert lag.problem == (f"{late}no unread message arrived within 30 s" if late else "")
