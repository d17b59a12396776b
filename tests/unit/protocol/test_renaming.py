"""What is stored of datasets goes on under the names that they have from now on."""

from __future__ import annotations

import pytest

from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.read_failures import ReadFailure
from distcommit.core.watermark import Watermark
from distcommit.core.work import SkippedRange
from distcommit.protocol.renaming import renamed


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


def test_a_topic_goes_on_as_its_partitions_and_stays_as_it_is() -> None:
    assert renamed([TOPIC, DatasetState("never-read")], by_partition) == [
        TOPIC,
        DatasetState("never-read"),
        state("t@0", {"0": 10}, closed_epoch=4, origin={"0": 10}, schemas={"avro": (1,)}),
        state("t@1", {"1": 7}, closed_epoch=4, origin={"1": 7}, schemas={"avro": (1,)}),
    ]


def test_what_was_read_meanwhile_under_another_name_is_no_gap_and_nothing_that_is_lost() -> None:
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


def test_a_partition_of_which_nothing_was_read_under_the_other_name_stays_where_it_is() -> None:
    topic = renamed([state("t", {"0": 3, "2": 9}), state("t@0", {"0": 4})], by_topic)[0]
    assert topic.watermark == Watermark({"0": 4, "2": 9}, "id")


def test_a_person_who_has_set_it_back_is_followed_unless_nobody_knows_what_was_read_last() -> None:
    states = [state("t", {"0": 10}), state("t@0", {"0": 4})]
    assert renamed(states, by_topic)[0].watermark == Watermark({"0": 4}, "id")
    assert renamed(states, by_topic, only_ahead=True)[0].watermark == Watermark({"0": 10}, "id")


def test_in_another_incarnation_nothing_of_the_one_before_counts() -> None:
    (topic, _) = renamed([state("t", {"0": 10, "1": 3}, "old"), state("t@0", {"0": 4}, "new")], by_topic)
    assert topic.watermark == Watermark({"0": 4}, "new")
    assert topic.origin == {"0": 4}


def test_parts_that_count_in_different_incarnations_are_no_dataset() -> None:
    with pytest.raises(ConflictError, match="different incarnations"):
        renamed([state("t@0", {"0": 4}, "old"), state("t@1", {"1": 4}, "new")], by_topic)


def test_what_could_not_be_read_counts_anew() -> None:
    unread = ReadFailure(5, 2, Watermark({"0": 20}, "id"), "no answer")
    (topic, _) = renamed([state("t", {"0": 10}, unread=unread), state("t@0", {"0": 12}, unread=unread)], by_topic)
    assert topic.unread is None


def test_given_twice_it_is_the_same_and_states_may_come_in_any_order() -> None:
    once = renamed([TOPIC, *PARTS], by_topic)
    assert sorted(renamed([*reversed(PARTS), TOPIC], by_topic), key=str) == sorted(once, key=str)
    assert sorted(renamed(once, by_topic), key=str) == sorted(once, key=str)
