"""The table of contract results says what came out, and is not older than the contract."""

from __future__ import annotations

import re

from tests.contract.results import TABLE, contract_tests, table
from tests.contract.test_file_systems import TestLocalFileSystem as Local
from tests.contract.test_file_systems import TestLocalFileSystemWithoutRenameat2 as WithoutRenameat2


def test_each_test_has_a_row_and_what_failed_is_seen() -> None:
    first, second, *_ = contract_tests()
    kinds = {"TestLocalFileSystem": Local, "TestLocalFileSystemWithoutRenameat2": WithoutRenameat2}
    text = table(
        kinds, {("TestLocalFileSystem", first): ["passed"] * 6 + ["failed"], (Local.__name__, second): ["passed"]}
    )
    assert f"| {first.removeprefix('test_').replace('_', ' ')} | **6 of 7 pass** | not run |" in text
    assert "| a large file | passes | not run |" in text
    assert "(1) |" in text
    assert "1. A weaker test of its own. Not so by link and unlink" in text


def test_the_committed_table_has_all_tests_and_they_passed() -> None:
    """Else run `python -m tests.contract.results` again."""
    text = TABLE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z][^|]*) \|", text, re.MULTILINE)
    assert [f"test_{row.replace(' ', '_')}" for row in rows] == contract_tests()
    assert "**" not in text
    assert "not run" not in text
