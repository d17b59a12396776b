"""Renamed datasets: stored state continues under the new names."""

from __future__ import annotations

import pytest

from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.read_failure_records import ReadFailure
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import SkippedRange
from distcommit.protocol.dataset_renaming import renamed


def by_partition(urn: str, partition: str) -> str:
    return f"{urn.partition('@')[0]}@{partition}"


def by_topic(urn: str, partition: str) -> str:
    return urn.partition("@")[0]


def state(urn: str, positions: dict[str, int], incarnation: str = "id", **more: object) -> DatasetState:
    return DatasetState(urn, watermark=Watermark(dict(positions), incarnation), **more)  # type: ignore[arg-type]


TOPIC = state("t", {"0": 10, "1": 7}, closed_epoch=4, done_epoch=3, origin={"0": 2}, schemas={"avro": (1,)})
PARTS = [
    state("t@0", {"0": 15}, origin={"0": 10}, closed_epoch=8, schemas={"avro": (2,)}),
    state("t@1", {"1": 7}, origin={"1": 7}, closed_epoch=9),
]


def test_topic_state_continues_as_its_partitions_and_keeps_its_values() -> None:
    assert renamed([TOPIC, DatasetState("never-read")], by_partition) == [
        TOPIC,
        DatasetState("never-read"),
        state("t@0", {"0": 10}, closed_epoch=4, origin={"0": 10}, schemas={"avro": (1,)}),
        state("t@1", {"1": 7}, closed_epoch=4, origin={"1": 7}, schemas={"avro": (1,)}),
    ]


def test_range_read_meanwhile_under_another_name_is_neither_a_gap_nor_lost() -> None:
    (topic,) = [s for s in renamed([TOPIC, *PARTS], by_topic) if s.dataset_urn == "t"]
    assert topic == state(
        "t",
        {"0": 15, "1": 7},
        closed_epoch=9,
        done_epoch=3,
        origin={"0": 2},
        skipped=(SkippedRange("0", 10, 15, "read as t@0", is_hole=True, incarnation="id"),),
        schemas={"avro": (1, 2)},
    )


def test_partition_never_read_under_the_other_name_keeps_its_position() -> None:
    topic = renamed([state("t", {"0": 3, "2": 9}), state("t@0", {"0": 4})], by_topic)[0]
    assert topic.watermark == Watermark({"0": 4, "2": 9}, "id")


def test_operator_s_lower_watermark_is_kept_unless_the_last_read_position_is_unknown() -> None:
    states = [state("t", {"0": 10}), state("t@0", {"0": 4})]
    assert renamed(states, by_topic)[0].watermark == Watermark({"0": 4}, "id")
    assert renamed(states, by_topic, only_ahead=True)[0].watermark == Watermark({"0": 10}, "id")


def test_state_of_another_incarnation_is_ignored() -> None:
    (topic, _) = renamed([state("t", {"0": 10, "1": 3}, "old"), state("t@0", {"0": 4}, "new")], by_topic)
    assert topic.watermark == Watermark({"0": 4}, "new")
    assert topic.origin == {"0": 4}


def test_parts_of_different_incarnations_are_not_a_dataset() -> None:
    with pytest.raises(ConflictError, match="different incarnations"):
        renamed([state("t@0", {"0": 4}, "old"), state("t@1", {"1": 4}, "new")], by_topic)


def test_read_failures_are_counted_from_zero() -> None:
    failure = ReadFailure(5, 2, Watermark({"0": 20}, "id"), "no answer")
    (topic, _) = renamed(
        [state("t", {"0": 10}, read_failure=failure), state("t@0", {"0": 12}, read_failure=failure)], by_topic
    )
    assert topic.read_failure is None


def test_renaming_twice_changes_nothing_and_states_may_come_in_any_order() -> None:
    once = renamed([TOPIC, *PARTS], by_topic)
    assert sorted(renamed([*reversed(PARTS), TOPIC], by_topic), key=str) == sorted(once, key=str)
    assert sorted(renamed(once, by_topic), key=str) == sorted(once, key=str)
