"""The tables of contract results contain all outcomes and are up to date with the contracts."""

from __future__ import annotations

import re

import pytest

from tests.contract.results import CONTRACTS, ContractResults, key_of, parts, table
from tests.contract.test_file_systems import TestLocalFileSystem as Local
from tests.contract.test_file_systems import TestLocalFileSystemWithoutRenameat2 as WithoutRenameat2
from tests.contract.test_kafka_sink import TestKafkaSink as Kafka


def test_each_test_has_a_row_and_failures_are_visible() -> None:
    contract = CONTRACTS["file-systems"]
    first, second, *_ = contract.names()
    results = ContractResults(contract, {key_of(kind): kind for kind in (Local, WithoutRenameat2)})
    results.outcomes[key_of(Local), first] = ["passed"] * 6 + ["failed"]
    results.outcomes[key_of(Local), second] = ["passed"]
    text = table(contract, results)
    assert "|  | local disk | local, without `renameat2` (as NFS) |" in text
    assert f"| {first.removeprefix('test_').replace('_', ' ')} | **6 of 7 pass** | not run |" in text
    assert "| large file is read as it was written | passes | not run |" in text
    assert "(1) |" in text
    assert "1. Replaced by a weaker test. Several renames by link and unlink" in text


def test_skipped_test_and_test_with_nothing_to_try_have_a_reason() -> None:
    contract = CONTRACTS["sinks"]
    results = ContractResults(contract, {key_of(Kafka): Kafka})
    first, second, *_ = contract.names()
    results.outcomes = {(key_of(Kafka), first): ["passed"], (key_of(Kafka), second): ["skipped"]}
    results.reasons = {(key_of(Kafka), first): "no groups", (key_of(Kafka), second): "no broker here"}
    text = table(contract, results)
    assert "| passes (1) |" in text
    assert "| skipped (2) |" in text
    assert "1. Nothing to try: no groups.\n2. no broker here" in text
    assert "| commit killed at any line is committed by the next | by `pytest -m slow` |" in text


@pytest.mark.parametrize("name", sorted({"file-systems", *parts()}))
def test_committed_table_contains_all_tests_and_all_passed(name: str) -> None:
    """If this fails, run `python -m tests.contract.results` with this name again."""
    text = parts()[name]
    rows = re.findall(r"^\| ([a-z][^|]*) \|", text, re.MULTILINE)
    assert [f"test_{row.replace(' ', '_')}" for row in rows] == CONTRACTS[name].names()
    assert "**" not in text
    assert "not run" not in text
    assert "skipped" not in text
