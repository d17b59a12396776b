"""Planning from Kafka: the real protocol against the mock broker; expiry and times, which the mock lacks, as pure
functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distcommit.app.demo.broker import MockBroker
from distcommit.core.errors import SourceError, TransientError
from distcommit.core.interfaces.source import DatasetProblem, SkippedDataset, SourceState
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.fixed_settings import SourceFact
from distcommit.core.records.log_records import DatasetState, DatasetStatus, OpenSequence
from distcommit.core.records.read_failure_records import ReadFailure
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, positions_lost
from distcommit.pipeline import task_attempt
from distcommit.sources.kafka.client import KafkaQueries
from distcommit.sources.kafka.plan_dataset import fair_shares, limited_to_reread, pack, plan_dataset, planned_log
from distcommit.sources.kafka.source import KafkaSource
from distcommit.sources.kafka.topics import (
    MAX_BYTES,
    PartitionLog,
    PartitionOffsets,
    Start,
    TopicMetadata,
    TopicSelection,
)
from distcommit.sources.plan_error import PlanError
from tests.unit.sources.retried_ranges import ReadingAgain

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    with MockBroker.start(
        {"full": 4, "grown": 2, "empty": 2, "expired": 1, "orders.eu": 1, "orders.us": 1, "__internal": 1}
    ) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition in range(4):
            for number in range(10 * partition):
                producer.produce("full", str(number), partition=partition)
        for topic, partition in (("grown", 0), ("grown", 1), ("orders.eu", 0), ("orders.us", 0), ("__internal", 0)):
            for number in range(5):
                producer.produce(topic, str(number), partition=partition)
        for _ in range(60):  # the mock keeps 5 MB of a partition and drops the oldest
            producer.produce("expired", b"x" * 100_000)
            producer.flush(20)
        assert producer.flush(20) == 0
        del producer
        yield broker


def source(brokers: str = UNREACHABLE, **settings: Any) -> KafkaSource:
    settings.setdefault("topics", ["full"])
    return KafkaSource.model_validate({"type": "kafka", "brokers": brokers, "request_timeout_s": 5, **settings})


def everything(urn: str) -> bool:
    return bool(urn)


def plans(
    source: KafkaSource,
    states: Mapping[str, DatasetState] | None = None,
    owned: Callable[[str], bool] = everything,
) -> dict[str, DatasetPlan | DatasetProblem]:
    results = [
        planned
        for planned in source.plan(owned, states if isinstance(states, SourceState) else SourceState(states or {}))
        if not isinstance(planned, SourceFact | SkippedDataset | DeferredRecords)
    ]
    assert len({planned.dataset_urn for planned in results}) == len(results)
    return {planned.dataset_urn: planned for planned in results}


def plan_of(planned: DatasetPlan | DatasetProblem | None) -> DatasetPlan:
    assert isinstance(planned, DatasetPlan), planned
    return planned


def problem_of(planned: DatasetPlan | DatasetProblem | None) -> str:
    assert isinstance(planned, DatasetProblem), planned
    return planned.error


def ranges(plan: DatasetPlan) -> list[dict[str, tuple[Any, Any]]]:
    return [
        {p: (low, unit.expected_high.positions[p]) for p, low in unit.low.positions.items()} for unit in plan.work_units
    ]


def read_to(urn: str, **positions: int) -> dict[str, DatasetState]:
    watermark = Watermark({name.removeprefix("p"): offset for name, offset in positions.items()})
    return {urn: DatasetState(urn, watermark=watermark)}


# Regular plans


def test_new_topic_starts_at_earliest_with_all_partitions_in_one_unit(broker: MockBroker) -> None:
    plan = plan_of(plans(source(broker.bootstrap_servers))["full"])
    assert plan.planned_low is None
    assert plan.start == Watermark({"0": 0, "1": 0, "2": 0, "3": 0})
    assert ranges(plan) == [{"3": (0, 30), "2": (0, 20), "1": (0, 10), "0": (0, 0)}]
    assert plan.work_units[0].size == 60


@pytest.mark.parametrize("start", ["latest", "2030-01-01T00:00:00Z"])
def test_partition_seen_first_gets_a_position_even_if_nothing_is_read(broker: MockBroker, start: str) -> None:
    plan = plan_of(plans(source(broker.bootstrap_servers, start=start))["full"])
    assert plan.start == Watermark({"0": 0, "1": 10, "2": 20, "3": 30})
    assert ranges(plan) == [{"0": (0, 0), "1": (10, 10), "2": (20, 20), "3": (30, 30)}]


def test_empty_topic_is_planned_once_and_then_skipped(broker: MockBroker) -> None:
    kafka = source(broker.bootstrap_servers, topics=["empty"])
    assert ranges(plan_of(plans(kafka)["empty"])) == [{"0": (0, 0), "1": (0, 0)}]
    assert plans(kafka, read_to("empty", p0=0, p1=0)) == {}


@pytest.mark.parametrize(
    ("start", "at_start_time", "begin"),
    [
        ("earliest", -1, 10),
        ("latest", -1, 20),
        (datetime(2020, 1, 1, tzinfo=UTC), 15, 15),
        (datetime(2020, 1, 1, tzinfo=UTC), -1, 20),
        (datetime(2020, 1, 1, tzinfo=UTC), 3, 10),  # deleted since it was requested
        (datetime(2020, 1, 1, tzinfo=UTC), 25, 20),  # written after the end was requested
    ],
)
def test_partition_never_read_begins_at_start_within_its_offsets(start: Start, at_start_time: int, begin: int) -> None:
    planned = planned_log(PartitionOffsets(10, 20, at_start_time, 30), start)
    assert planned == PartitionLog(10, 20, begin, 30)
    assert planned_log("no leader", start) == "no leader"


@pytest.mark.parametrize("start", ["latest", "2020-01-01T00:00:00+02:00"])
def test_stored_positions_win_over_start_and_partitions_added_later_begin_at_0(broker: MockBroker, start: str) -> None:
    plan = plan_of(
        plans(source(broker.bootstrap_servers, topics=["grown"], start=start), read_to("grown", p0=2))["grown"]
    )
    assert plan.planned_low == Watermark({"0": 2})
    assert plan.start == Watermark({"1": 0})
    assert ranges(plan) == [{"1": (0, 5), "0": (2, 5)}]


def test_read_failure_is_planned_up_to_its_end_and_other_partitions_as_usual(
    broker: MockBroker,
) -> None:
    kafka, states = source(broker.bootstrap_servers), read_to("full", p0=0, p1=4, p2=6, p3=7)
    whole = plan_of(plans(kafka, states)["full"])
    assert ranges(whole) == [{"3": (7, 30), "2": (6, 20), "1": (4, 10)}]
    incarnation = whole.work_units[0].expected_high.incarnation
    failure = ReadFailure(1, 1, Watermark({"2": 9, "3": 40}, incarnation), "SourceError: gone")
    states["full"] = replace(states["full"], read_failure=failure)
    assert ranges(plan_of(plans(kafka, states)["full"])) == ranges(whole), (
        "a run without separate retries plans as usual"
    )
    again = plan_of(plans(kafka, ReadingAgain(states))["full"])
    assert ranges(again) == [{"3": (7, 30), "1": (4, 10), "2": (6, 9)}], "partition 3 ends before the failed read's end"
    states["full"] = replace(states["full"], read_failure=replace(failure, stopped=True))
    assert plans(kafka, ReadingAgain(states)) == {}


def test_expired_or_recreated_part_of_a_read_failure_is_not_waited_for() -> None:
    end = Watermark({"0": 5, "1": 5, "2": 5}, "id")
    logs: dict[int, PartitionLog | str] = {0: PartitionLog(8, 20, 8), 1: PartitionLog(0, 20, 20), 2: "no leader"}
    logs[3] = PartitionLog(0, 9, 0)
    limited = limited_to_reread(end, logs, None, "id")
    assert limited == {0: PartitionLog(8, 8, 8, 20), 1: PartitionLog(0, 20, 20, 20), 2: "no leader", 3: logs[3]}
    stored = read_to("t", p0=2, p1=2)["t"]
    assert limited_to_reread(end, logs, stored, "id")[1] == PartitionLog(0, 5, 20, 20), "the watermark has the start"
    assert limited_to_reread(end, logs, stored, "another id") == logs
    assert limited_to_reread(None, logs, stored, "id") == logs


def test_retried_range_that_has_expired_is_reported_with_the_end_of_the_partition() -> None:
    logs: dict[int, PartitionLog | str] = {0: PartitionLog(300, 900, 300)}
    state = read_to("t", p0=100)["t"]
    limited = limited_to_reread(Watermark({"0": 250}), logs, state, "")
    with pytest.raises(PlanError, match="offsets 300 to 900; 200 offsets have expired"):
        plan_dataset(source(), "t", limited, state, "")
    planned = plan_of(plan_dataset(source(expired_offsets="earliest"), "t", limited, state, ""))
    assert [skip.reason for skip in planned.skipped] == [
        "expired: Kafka holds offsets 300 to 900; expired_offsets is earliest"
    ]
    assert ranges(planned) == [{"0": (300, 300)}]


def test_partitions_are_datasets_if_configured(broker: MockBroker) -> None:
    kafka = source(broker.bootstrap_servers, dataset="partition")
    planned = plans(kafka, read_to("full@1", p1=10), owned=lambda urn: urn != "full@3")
    assert set(planned) == {"full@0", "full@2"}
    assert ranges(plan_of(planned["full@2"])) == [{"2": (0, 20)}]


@pytest.mark.parametrize("start", ["latest", "2020-01-01T00:00:00+02:00"])
def test_added_partition_of_a_topic_read_by_partition_begins_at_0(broker: MockBroker, start: str) -> None:
    """The other partitions are in other buckets; their stored states are looked up."""
    kafka = source(broker.bootstrap_servers, topics=["grown", "full"], dataset="partition", start=start)
    states = Elsewhere(read_to("grown@0", p0=2))
    planned = plans(kafka, states, owned=lambda urn: urn in ("grown@1", "full@1"))
    assert ranges(plan_of(planned["grown@1"])) == [{"1": (0, 5)}]
    first = plan_of(planned["full@1"]).start
    assert first == Watermark({"1": 10}), "no partition of that topic was read, so `start` applies"
    forgotten = {"grown@1": DatasetState("grown@1", done_epoch=2)}
    planned = plans(kafka, Elsewhere(read_to("grown@0", p0=2), forgotten), owned=lambda urn: urn == "grown@1")
    assert ranges(plan_of(planned["grown@1"])) == [{"1": (5, 5)}], (
        "it was published, and an operator has reset it since"
    )


def test_unreadable_state_of_another_bucket_is_a_problem_of_the_partition_alone(broker: MockBroker) -> None:
    kafka = source(broker.bootstrap_servers, topics=["grown", "full"], dataset="partition", start="latest")
    planned = plans(kafka, Elsewhere({}, unreadable="grown@0"), owned=lambda urn: urn in ("grown@1", "full@1"))
    assert "can't be told" in problem_of(planned["grown@1"])
    plan_of(planned["full@1"])


class Elsewhere(SourceState):
    """States of which some are in other buckets."""

    def __init__(
        self, others: Mapping[str, DatasetState], own: Mapping[str, DatasetState] | None = None, unreadable: str = ""
    ) -> None:
        super().__init__(own or {})
        self.others, self.unreadable = others, unreadable

    def anywhere(self, urn: str) -> DatasetState | None:
        if urn == self.unreadable:
            raise SourceError("it can't be told", dataset=urn)
        return self.others.get(urn)


def test_first_offset_of_a_partition_is_queried_only_if_it_has_new_records(
    broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[tuple[str, int]]] = []
    offsets = KafkaQueries._offsets

    def record_query(queries: KafkaQueries, names: Collection[tuple[str, int]], *rest: Any) -> Any:
        asked.append(set(names))
        return offsets(queries, names, *rest)

    monkeypatch.setattr(KafkaQueries, "_offsets", record_query)
    states = {
        "grown": DatasetState("grown", watermark=Watermark({"0": 5, "1": 3})),
        "orders.eu": DatasetState("orders.eu", watermark=Watermark({"0": 5})),
        "expired": DatasetState("expired", watermark=Watermark({"0": 60})),  # all were read; the first ones expired
    }
    planned = plans(source(broker.bootstrap_servers, topics=["grown", "orders.eu", "orders.us", "expired"]), states)
    ends, begins = asked[:2]
    assert ends - begins == {("grown", 0), ("orders.eu", 0), ("expired", 0)}
    assert begins == {("grown", 1), ("orders.us", 0)}
    assert set(planned) == {"grown", "orders.us"}
    (unit,) = plan_of(planned["grown"]).work_units
    assert (unit.low.positions, unit.expected_high.positions) == ({"1": 3}, {"1": 5})


def test_datasets_that_are_not_idle_are_not_planned(broker: MockBroker) -> None:
    pending = OpenSequence(DatasetStatus.PENDING, SealedSequence("full", 1, None, None, ()))
    assert plans(source(broker.bootstrap_servers), {"full": DatasetState("full", pending)}) == {}


def test_topics_are_selected_by_name_and_pattern(broker: MockBroker) -> None:
    kafka = source(
        broker.bootstrap_servers,
        topics=["full", "__internal"],
        topic_patterns=["orders[.].*", ".*"],
        exclude=["grown"],
        exclude_patterns=[".*[.]us", "emp", "exp.*"],
    )
    assert set(plans(kafka)) == {"full", "__internal", "orders.eu", "empty"}


def test_patterns_match_whole_names_and_never_kafka_internal_topics() -> None:
    selection = TopicSelection(["a"], ["b.?"], [], ["bx"])
    assert [topic for topic in ("a", "b", "bb", "bbb", "bx", "__b") if topic in selection] == ["a", "b", "bb"]
    assert "__b" not in TopicSelection([], [".*"], [], [])


def test_internal_topic_that_a_pattern_matches_is_named_once_by_its_owner(broker: MockBroker) -> None:
    kafka = source(broker.bootstrap_servers, topics=[], topic_patterns=[".*"])
    skipped_topics = [
        planned for planned in kafka.plan(everything, SourceState()) if isinstance(planned, SkippedDataset)
    ]
    assert [passed.dataset_urn for passed in skipped_topics] == ["__internal"]
    assert "add it to source.topics to read it" in skipped_topics[0].reason
    quiet: tuple[tuple[KafkaSource, Callable[[str], bool]], ...] = (
        (kafka, lambda urn: urn != "__internal"),
        (kafka.model_copy(update={"exclude": ("__internal",)}), everything),
        (kafka.model_copy(update={"exclude_patterns": ("__.*",)}), everything),
        (kafka.model_copy(update={"topics": ("__internal",)}), everything),
        (kafka.model_copy(update={"topic_patterns": ("[a-z].*",)}), everything),
    )
    for silent, owned in quiet:
        assert not [planned for planned in silent.plan(owned, SourceState()) if isinstance(planned, SkippedDataset)]


def test_limits_are_divided_among_partitions_and_work_units(broker: MockBroker) -> None:
    kafka = source(broker.bootstrap_servers, records_per_dataset=25, records_per_work_unit=10, bytes_per_dataset=1000)
    plan = plan_of(plans(kafka)["full"])
    assert ranges(plan) == [{"3": (0, 9)}, {"1": (0, 8)}, {"2": (0, 8), "0": (0, 0)}]
    assert [unit.properties for unit in plan.work_units] == [{MAX_BYTES: "360"}, {MAX_BYTES: "320"}, {MAX_BYTES: "320"}]
    assert MAX_BYTES == task_attempt.MAX_BYTES


def test_bytes_limit_keeps_partitions_whole(broker: MockBroker) -> None:
    kafka = source(broker.bootstrap_servers, records_per_work_unit=10, bytes_per_dataset=1000)
    assert ranges(plan_of(plans(kafka)["full"])) == [{"3": (0, 30)}, {"2": (0, 20)}, {"1": (0, 10), "0": (0, 0)}]


# Problems


def test_missing_topic_is_a_problem_of_its_own_dataset(broker: MockBroker) -> None:
    for kind in ("topic", "partition"):
        planned = plans(source(broker.bootstrap_servers, topics=["full", "nowhere"], dataset=kind))
        assert "does not exist" in problem_of(planned.pop("nowhere"))
        assert all(isinstance(other, DatasetPlan) for other in planned.values())
        assert planned
    assert "nowhere" not in plans(source(broker.bootstrap_servers, topics=["nowhere"]), owned=lambda urn: False)


def test_unreachable_broker_raises_at_once() -> None:
    kafka = source(request_timeout_s=0.3)
    began = time.monotonic()
    with pytest.raises(SourceError, match=f"can't be reached.*{UNREACHABLE}") as failure:
        list(kafka.plan(everything, SourceState()))
    with pytest.raises(TransientError, match="can't be reached"):
        kafka.open()
    assert time.monotonic() - began < 3
    assert "source.brokers" in str(failure.value)


def test_position_above_the_log_is_a_problem_and_others_are_planned(broker: MockBroker) -> None:
    planned = plans(source(broker.bootstrap_servers, topics=["full", "grown"]), read_to("grown", p0=6, p1=0))
    assert "recreated" in problem_of(planned["grown"])
    plan_of(planned["full"])


@pytest.mark.parametrize("watermark", [Watermark({"7": 1}), Watermark({"0": "x"}), Watermark({"0": 2}, "topic-id")])
@pytest.mark.parametrize("policy", ["fail", "skip", "earliest", "latest", "nearest"])
def test_position_that_does_not_fit_the_topic_is_rejected(watermark: Watermark, policy: str) -> None:
    kafka, state = source(expired_offsets=policy), DatasetState("t", watermark=watermark)
    with pytest.raises(PlanError, match="recreated") as caught:
        plan_dataset(kafka, "t", {0: PartitionLog(0, 5, 0)}, state, "another-id")
    assert caught.value.remedy == ("dataset set-watermark", "t", "null")


@pytest.mark.parametrize("policy", ["earliest", "nearest"])
def test_position_above_the_log_never_moves_back_and_the_nearest_position_is_named(policy: str) -> None:
    logs: dict[int, PartitionLog | str] = {0: PartitionLog(0, 5, 0), 1: PartitionLog(7, 9, 0), 2: PartitionLog(0, 4, 0)}
    state = read_to("t", p0=6, p1=1, p2=3)["t"]
    with pytest.raises(PlanError, match="not in the topic") as caught:
        plan_dataset(source(expired_offsets=policy), "t", logs, state)
    assert caught.value.remedy == (), "it may also be another topic that was never read"
    assert """set-watermark) to null to begin at source.start, or to {"0": 5, "1": 7, "2": 3}""" in str(caught.value)
    assert state.watermark is not None
    known_topic = replace(state, watermark=Watermark(state.watermark.positions, "topic-id"))
    with pytest.raises(PlanError) as caught:
        plan_dataset(source(expired_offsets=policy), "t", logs, known_topic, "topic-id")
    assert caught.value.remedy == ("dataset set-watermark", "t", '{"0": 5, "1": 7, "2": 3}')
    with pytest.raises(PlanError) as caught:
        plan_dataset(source(expired_offsets=policy), "t", {**logs, 1: "unknown"}, read_to("t", p0=6, p1=1)["t"])
    assert "nearest offsets" not in str(caught.value)


@pytest.mark.parametrize("topic_id", ["", "topic-id"])
def test_position_after_an_open_transaction_waits_for_its_end_without_suggesting_set_watermark(topic_id: str) -> None:
    state = DatasetState("t", watermark=Watermark({"0": 6, "1": 2}, topic_id))
    logs: dict[int, PartitionLog | str] = {0: PartitionLog(0, 4, 0, open_end=6), 1: PartitionLog(0, 9, 0)}
    with pytest.raises(PlanError, match="an open transaction precedes the stored position") as caught:
        plan_dataset(source(), "t", logs, state, topic_id)
    assert caught.value.remedy == ("run",)
    assert "set-watermark" not in str(caught.value)
    assert "from offset 4 on; the partition ends at 6" in str(caught.value)
    logs[0] = PartitionLog(0, 4, 0, open_end=5)
    with pytest.raises(PlanError, match="not in the topic") as caught:
        plan_dataset(source(), "t", logs, state, topic_id)
    assert """to {"0": 5, "1": 2} to continue""" in str(caught.value), "the end includes uncommitted records"


def test_position_of_a_known_topic_waits_for_a_cluster_that_returns_topic_ids() -> None:
    state = DatasetState("t", watermark=Watermark({"0": 2}, "topic-id"))
    with pytest.raises(SourceError, match="no controller"):
        plan_dataset(source(), "t", {0: PartitionLog(0, 5, 0)}, state)


def test_broker_that_does_not_list_all_partitions_yet_is_retried_later() -> None:
    """The stored position is right: if an operator set the watermark, records would be published twice."""
    state = DatasetState("t", watermark=Watermark({"0": 3, "1": 2}, "topic-id"))
    with pytest.raises(SourceError, match="does not know partitions 1 of the topic yet") as raised:
        plan_dataset(source(), "t", {0: PartitionLog(0, 5, 0)}, state, "topic-id")
    assert not isinstance(raised.value, PlanError)


@pytest.mark.parametrize("stored", ["", "topic-id"])
def test_planned_positions_carry_the_topic_id(stored: str) -> None:
    state = DatasetState("t", watermark=Watermark({"0": 2}, stored))
    plan = plan_of(plan_dataset(source(), "t", {0: PartitionLog(0, 5, 0)}, state, "topic-id"))
    assert (plan.planned_low, plan.start) == (Watermark({"0": 2}, stored), Watermark({}, "topic-id"))
    (unit,) = plan.work_units
    assert (unit.low, unit.expected_high) == (Watermark({"0": 2}, "topic-id"), Watermark({"0": 5}, "topic-id"))


def test_expired_offsets_fail_with_the_expected_and_the_existing_offsets() -> None:
    message = r"expected offset 3; found offsets 10 to 20; 7 offsets have expired.*expired_offsets"
    with pytest.raises(PlanError, match=message) as caught:
        plan_dataset(source(), "t", {0: PartitionLog(10, 20, 0)}, read_to("t", p0=3)["t"])
    assert caught.value.remedy == ("run", "--set=source.expired_offsets=earliest")


@pytest.mark.parametrize(("policy", "low"), [("earliest", 10), ("nearest", 10), ("latest", 20)])
def test_expired_offsets_are_skipped_and_recorded_as_configured(policy: str, low: int) -> None:
    logs: dict[int, PartitionLog | str] = {0: PartitionLog(10, 20, 10), 1: PartitionLog(0, 4, 0)}
    plan = plan_of(plan_dataset(source(expired_offsets=policy), "t", logs, read_to("t", p0=3, p1=4)["t"]))
    assert ranges(plan) == [{"0": (low, 20)}]
    assert plan.start == Watermark({})
    assert [(s.partition, s.low, s.high) for s in plan.skipped] == [("0", 3, low)]
    assert "expired" in plan.skipped[0].reason
    assert positions_lost(plan.skipped) == low - 3


NEW = PartitionLog(10, 20, 20)
"""A partition whose first ten records have expired, as `start: latest` sees it."""


@pytest.mark.parametrize(("policy", "low"), [("earliest", 10), ("nearest", 10), ("latest", 20)])
def test_expired_offsets_of_an_added_partition_are_recorded(policy: str, low: int) -> None:
    kafka = source(expired_offsets=policy, start="latest")
    logs: dict[int, PartitionLog | str] = {0: PartitionLog(0, 4, 4), 1: NEW}
    plan = plan_of(plan_dataset(kafka, "t", logs, read_to("t", p0=4)["t"]))
    assert (plan.start, ranges(plan)) == (Watermark({"1": 0}), [{"1": (low, 20)}])
    assert [(s.partition, s.low, s.high) for s in plan.skipped] == [("1", 0, low)]


def test_expired_offsets_of_an_added_partition_stop_its_dataset_as_configured() -> None:
    logs: dict[int, PartitionLog | str] = {0: PartitionLog(0, 6, 6), 1: NEW}
    with pytest.raises(
        SourceError, match=r"partition=1\]; expected offset 0; found offsets 10 to 20; 10 offsets have expired"
    ):
        plan_dataset(source(start="latest"), "t", logs, read_to("t", p0=4)["t"])
    skipping = source(start="latest", expired_offsets="skip")
    plan = plan_of(plan_dataset(skipping, "t", logs, read_to("t", p0=4)["t"]))
    assert (plan.start, ranges(plan)) == (Watermark({}), [{"0": (4, 6)}])


@pytest.mark.parametrize(("policy", "low"), [("fail", 10), ("skip", 10), ("earliest", 10), ("latest", 20)])
def test_partition_that_may_predate_the_first_read_of_its_topic_is_never_stuck(policy: str, low: int) -> None:
    kafka = source(expired_offsets=policy, start="latest", dataset="partition")
    plan = plan_of(plan_dataset(kafka, "t@1", {1: NEW}, None, topic_followed=True))
    assert (plan.start, ranges(plan)) == (Watermark({"1": 0}), [{"1": (low, 20)}])
    assert positions_lost(plan.skipped) == low


def test_expired_partition_is_excluded_and_the_others_are_planned() -> None:
    logs: dict[int, PartitionLog | str] = {0: PartitionLog(10, 20, 10), 1: PartitionLog(0, 4, 0)}
    plan = plan_of(plan_dataset(source(expired_offsets="skip"), "t", logs, read_to("t", p0=3, p1=1)["t"]))
    assert ranges(plan) == [{"1": (1, 4)}]
    assert plan.skipped == ()
    assert plan_dataset(source(expired_offsets="skip"), "t", logs, read_to("t", p0=3, p1=4)["t"]) is None


def test_offsets_that_the_broker_deleted_are_a_problem_of_their_topic_alone(broker: MockBroker) -> None:
    topics, states = ["expired", "full"], read_to("expired", p0=1)
    planned = plans(source(broker.bootstrap_servers, topics=topics), states)
    assert "deleted records before they were read" in problem_of(planned["expired"])
    plan_of(planned["full"])
    left_out = plans(source(broker.bootstrap_servers, topics=["expired"], expired_offsets="skip"), states)
    assert [type(problem) for problem in left_out.values()] == [DatasetProblem]
    skipping = source(broker.bootstrap_servers, topics=topics, expired_offsets="earliest")
    plan = plan_of(plans(skipping, states)["expired"])
    ((low, high),) = (bounds["0"] for bounds in ranges(plan))
    assert (plan.skipped[0].low, plan.skipped[0].high, high) == (1, low, 60)
    (unit,) = plan.work_units
    extractor = skipping.open()
    extraction = extractor.extract(unit)
    assert sum(batch.num_rows for batch in extraction) == high - low
    extractor.close()


def test_partition_error_stops_its_dataset() -> None:
    with pytest.raises(SourceError, match="partition 1: gone wrong"):
        plan_dataset(source(), "t", {0: PartitionLog(0, 1, 0), 1: "gone wrong"}, None)


def test_topic_with_partition_datasets_lists_one_dataset_per_partition() -> None:
    metadata = TopicMetadata("t", (0, 1), "", frozenset())
    assert [dataset.urn for dataset in metadata.datasets("partition")] == ["t@0", "t@1"]


# Packing and fair shares


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(1, 300), st.booleans())
def test_packing_covers_each_partition_without_gap_or_overlap(sizes: list[int], target: int, split: bool) -> None:
    given_ranges = [(partition, 7 * partition, 7 * partition + size) for partition, size in enumerate(sizes)]
    units = pack(given_ranges, target, split=split)
    pieces: dict[int, list[tuple[int, int]]] = {}
    for unit in units:
        assert unit
        assert len({partition for partition, _, _ in unit}) == len(unit)
        size = sum(high - low for _, low, high in unit)
        assert size <= target or (len(unit) == 1 and not split)
        for partition, low, high in unit:
            pieces.setdefault(partition, []).append((low, high))
            if (low, high) != given_ranges[partition][1:]:
                assert len(unit) == 1
    for partition, low, high in given_ranges:
        assert pieces[partition][0][0] == low
        assert pieces[partition][-1][1] == high
        assert all(a[1] == b[0] for a, b in zip(pieces[partition], pieces[partition][1:], strict=False))


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(0, 3000))
def test_fair_shares_use_the_whole_limit_and_are_even(sizes: list[int], limit: int) -> None:
    shares = fair_shares(sizes, limit)
    assert sum(shares) == min(sum(sizes), limit or sum(sizes))
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))
    held_back = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    if held_back:
        assert max(shares) - min(held_back) <= 1
