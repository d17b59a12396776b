"""The section `compact` of a job file, and the settings with which no file would ever be merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.core.errors import ConfigurationError
from tests.unit.app.job_file.test_delivery import config


def test_empty_section_is_a_policy_and_a_missing_one_is_none(tmp_path: Path) -> None:
    assert config(tmp_path).compact is None
    policy = config(tmp_path, "compact: {}\nsink: {target_file_bytes: 8388608}\n").compact
    assert policy is not None
    assert (policy.target_file_bytes, policy.min_files, policy.after) == (128 << 20, 8, 3600)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "compact: {min_files: 1}\n",
            "compact.min_files must be at least 2, because one file is not merged; found 1; raise it, or remove",
        ),
        ("compact: {target_file_bytes: 4096}\n", "compact.target_file_bytes must be at least 1048576"),
        ("compact: {after: soon}\n", "compact.after must be a duration"),
        ("compact: {}\nsink: {target_file_bytes: 4096}\n", "sink.target_file_bytes must be at least 1048576"),
        (
            "compact: {target_file_bytes: 2097152}\nsink: {target_file_bytes: 1048576}\n",
            "compact.target_file_bytes must be at most sink.target_file_bytes (1048576)",
        ),
        ("compact: {}\nsink: {publish: replace}\n", "sink.publish must be append with compact"),
        ("compact: {}\nsink: {type: sqlite, path: /rows.db}\n", "sink.type must be files with compact"),
        ("compact: {}\ncommit: {delivery: at_least_once}\n", "commit.delivery must be exactly_once with compact"),
        ("compact: {}\nlock: {enabled: false}\n", "lock.enabled must be true with compact"),
    ],
)
def test_policy_that_can_never_be_met_is_refused(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        config(tmp_path, more)
    assert message in str(refused.value)
