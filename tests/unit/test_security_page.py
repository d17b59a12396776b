"""The bounds on the security page agree with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.job_file.sections.folder_and_run_settings import RunLimits
from distcommit.avro import container_format
from distcommit.constructs.registry import registry_client, registry_converter
from distcommit.pipeline.limits import watchdog_process
from distcommit.schemas import schema_size_limits as limits

PAGE = (Path(__file__).parents[2] / "conf" / "docs" / "operate" / "security.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("row", "bounds"),
    [
        ("columns that a schema expands to, nested ones included", f"{limits.MAX_COLUMNS:,}"),
        ("nested levels of a registered schema, or of the schema of an Avro file", f"{limits.MAX_NESTING}"),
        ("text of a registered schema, with the schemas that it refers to", f"{limits.MAX_SCHEMA_BYTES >> 20} MiB"),
        ("references of a registered schema", f"{registry_client.MAX_REFERENCES}"),
        ("values that one Protobuf message expands to", f"{limits.MAX_RECORD_VALUES:,}"),
        ("schemas of one dataset", f"{limits.MAX_SCHEMAS:,}"),
        ("unknown schema ids of one work unit", f"{registry_converter.MAX_UNKNOWN}"),
        ("the header of an Avro file; each block, also unpacked", f"{container_format.MAX_BLOCK_BYTES >> 20} MiB"),
        ("`fixed` types of a schema together", f"{limits.MAX_FIXED_BYTES >> 10} KiB"),
        (
            "a converter, a row checker or the fork, for one batch or schema",
            f"[`limits.construct_seconds`](../reference/configuration.md) ({RunLimits().construct_seconds:g} s)",
        ),
        (
            "the same in native code, until its worker is killed",
            f"twice that time, but at least {watchdog_process.LEAST_MARGIN_S} s longer than that time",
        ),
    ],
)
def test_bound_on_the_page_agrees_with_the_code(row: str, bounds: str) -> None:
    assert f"| {row} | {bounds} |" in PAGE
