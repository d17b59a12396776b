"""The arms of typed flows write their input completely, and each ratio is present."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.arms.flows import TYPED_JSON, FlowArm, PlainArrow, ProductFlow, fork_arms, typed_batches
from benchmarks.questions.typed_turns import in_turns
from benchmarks.runner import WrongResultError
from benchmarks.workloads.typed_records import HeldSource, as_batches, as_json, digests_of, events, expected_digest
from tests.benchmarks.commands import answer
from tests.servers.java import jars

RECORDS = 300
SOURCE = HeldSource(as_batches(as_json(events(RECORDS, 1, 50))))
EXPECTED = expected_digest(events(RECORDS, 1, 50), with_noise=False)


def arms() -> list[FlowArm]:
    forks = fork_arms(HeldSource(typed_batches(SOURCE.batches)))
    return [ProductFlow("ours_chain", TYPED_JSON, SOURCE), PlainArrow(SOURCE.batches), *forks]


@pytest.mark.parametrize("arm", arms(), ids=lambda arm: str(arm.name))
def test_each_arm_writes_the_same_records(arm: FlowArm, tmp_path: Path) -> None:
    parts = arm.make(tmp_path)
    assert set(digests_of(tmp_path).values()) == {EXPECTED}
    assert parts["seconds"] > 0


def test_a_fork_writes_them_twice(tmp_path: Path) -> None:
    arms()[2].make(tmp_path)
    assert digests_of(tmp_path) == {"parquet": EXPECTED, "avro": EXPECTED}


def test_files_without_a_record_are_not_a_sample(tmp_path: Path) -> None:
    fewer = replace(SOURCE, batches=[SOURCE.batches[0].slice(1)])
    with pytest.raises(WrongResultError, match="ours has"):
        in_turns([("ours", ProductFlow("ours", TYPED_JSON, fewer).make)], RECORDS, EXPECTED, 1, tmp_path, print)


@pytest.mark.long
@pytest.mark.slow
def test_flow(tmp_path: Path) -> None:
    jars("kafka")
    jars("registry")
    jars("spark-avro")
    results = answer(
        *("flow", "--records", "500", "--note-bytes", "50", "--topics", "2", "--topic-records", "200"),
        *("--typed-records", "300", "--repeats", "1", "--kafka-repeats", "2"),
        folder=tmp_path,
    )
    requested = {"chain_over_plain_pyarrow", "fork_over_writers", "typed_mb_per_s", "avro_over_spark"}
    requested |= {"typed_fixed_s", "consume_only_mb_per_s", "us_a_record_task", "us_a_record_broker"}
    assert requested <= results.ratios.keys()
    # With few records, parts that are differences may come out below zero.
    assert all(ratio > 0 for name, ratio in results.ratios.items() if name in requested - {"us_a_record_broker"})
