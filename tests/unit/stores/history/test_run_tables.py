"""Tables that executors write about a run."""

import subprocess
import sys

import pytest

from distcommit.stores.history.run_datasets import RunDataset, decode_run_datasets, encode_run_datasets

ENCODE = """
import sys
from distcommit.stores.history.run_datasets import RunDataset, encode_run_datasets
encode_run_datasets([RunDataset("kafka:a", 1, "published")])
assert "pandas" not in sys.modules
"""


@pytest.mark.parametrize(
    "text", ["", '"', "\\", "a\nb\r\t", "\x00\x1f\x7f", "\u2028\U0001f600", "2026-11-26 00:00:00", "1e9", "null", "{}"]
)
def test_any_text_survives_a_round_trip(text: str) -> None:
    rows = [RunDataset(text, 2**31 - 1, "failed", 2**63 - 1, -1, 0, text, text)]
    assert decode_run_datasets(encode_run_datasets(rows), "/x") == rows


def test_empty_and_large_tables_survive_a_round_trip() -> None:
    assert decode_run_datasets(encode_run_datasets([]), "/x") == []
    many = [RunDataset(f"kafka:{number}", number, "published", reason="r" * 500) for number in range(20_000)]
    assert decode_run_datasets(encode_run_datasets(many), "/x") == many, (
        "a table larger than a JSON block must be complete"
    )


def test_encoding_a_run_table_does_not_import_pandas() -> None:
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", ENCODE], check=True)
