"""The section `compact` of a job file, and policies that no file could ever meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy
from tests.unit.app.job_file.test_delivery import config


def test_empty_section_is_a_policy_and_a_missing_one_is_none(tmp_path: Path) -> None:
    assert config(tmp_path).compact is None
    settings = config(tmp_path, "compact: {}\nsink: {target_file_bytes: 8388608}\n").compact
    assert settings is not None
    assert settings.policy(3_600_001) == CompactionPolicy(128 << 20, 8, 1)


def test_policy_has_the_numbers_of_the_section(tmp_path: Path) -> None:
    settings = config(tmp_path, "compact: {target_file_bytes: 67108864, min_files: 3, after: 2m}\n").compact
    assert settings is not None
    assert settings.policy(120_007) == CompactionPolicy(64 << 20, 3, 7)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "compact: {min_files: 1}\n",
            "compact.min_files must be at least 2, because one file is not merged; found 1; raise it, or remove the",
        ),
        ("compact: {min_files: 1001}\n", "compact.min_files must be at most 1000"),
        ("compact: {target_file_bytes: 67108863}\n", "compact.target_file_bytes must be at least 67108864"),
        ("compact: {after: soon}\n", "compact.after must be a duration"),
        ("compact: {after: -1}\n", "compact.after must be at least 0.1"),
        (
            "compact: {target_file_bytes: 134217728}\nsink: {target_file_bytes: 67108864}\n",
            "compact.target_file_bytes must be at most sink.target_file_bytes (67108864)",
        ),
        ("compact: {}\nsink: {publish: replace}\n", "sink.publish must be append with the section compact"),
        ("compact: {}\nsink: {type: sqlite, path: /rows.db}\n", "sink.type must be files with the section compact"),
        ("compact: {}\ncommit: {delivery: at_least_once}\n", "commit.delivery must be exactly_once with the section"),
    ],
)
def test_policy_that_can_never_be_met_is_refused(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        config(tmp_path, more)
    assert message in str(refused.value)
