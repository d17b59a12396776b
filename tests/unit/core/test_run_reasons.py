"""Reasons of many datasets are grouped by their causes."""

from __future__ import annotations

import pytest

from distcommit.core.errors import RecordError, error_text
from distcommit.core.records.run_reasons import Reason, Reasons


def rejected(dataset: str, found: str, construct: str = "json") -> Reason:
    error = RecordError(
        "a record is rejected", construct=construct, dataset=dataset, work_unit=f"{dataset}-1", found=found
    )
    return Reason(dataset, "failed", error_text(error))


def test_datasets_that_share_a_cause_are_one_cause_with_the_first_names() -> None:
    reasons = Reasons(tuple(rejected(f"ds{n}", f"JSON is malformed (byte {n}): b'{n}'") for n in range(9, 0, -1)))
    [cause] = reasons.causes()
    assert cause.names == "ds1, ds2, ds3 and 6 more"
    assert cause.text.endswith(": a record is rejected [construct=json]; found JSON is malformed (byte 9): b'9'")


def test_single_reason_keeps_all_of_its_names() -> None:
    [cause] = Reasons((rejected("orders", "x"),)).causes()
    assert "[construct=json, dataset=orders, work_unit=orders-1]" in cause.text
    assert cause.names == "orders"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (rejected("a", "column 'x' is missing"), rejected("b", "column 'y' is missing")),
        (rejected("a", "no text", construct="json"), rejected("b", "no text", construct="avro")),
        (Reason("a", "failed", "no broker"), Reason("b", "not planned", "no broker")),
    ],
)
def test_different_causes_stay_apart(first: Reason, second: Reason) -> None:
    assert [cause.subjects for cause in Reasons((first, second)).causes()] == [("a",), ("b",)]


def test_name_of_the_dataset_within_the_text_does_not_separate_causes() -> None:
    reasons = [Reason(name, "failed", f"FileNotFoundError: '/in/{name}/x.jsonl'") for name in ("a", "b")]
    [cause] = Reasons(tuple(reasons)).causes()
    assert cause.subjects == ("a", "b")


def test_dataset_with_several_failed_parts_is_named_once() -> None:
    [cause] = Reasons((Reason("a", "failed", "part 1 is lost"), Reason("a", "failed", "part 2 is lost"))).causes()
    assert cause.names == "a"
