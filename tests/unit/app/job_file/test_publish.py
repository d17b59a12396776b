"""`sink.publish` in a job file, and the settings that a replacing publisher excludes."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.core.errors import ConfigurationError
from tests.unit.app.job_file.test_delivery import config

REPLACE = "sink: {publish: replace}\n"
TABLE = "sink: {type: sqlite, path: /rows.db, mode: replace}\n"
TABLES = "fork: {{type: all, branches: {{a: {{sink: {{type: sqlite, path: /rows.db, mode: replace}}}}, b: {{{0}}}}}}}\n"
TWO = "fork: {{type: all, branches: {{a: {{sink: {{publish: replace}}}}, b: {{{0}}}}}}}\n"


def test_publish_appends_by_default(tmp_path: Path) -> None:
    assert config(tmp_path).task_flow().publish == "append"
    assert config(tmp_path, REPLACE).task_flow().publish == "replace"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("sink: {publish: replace_partitions}\n", "sink.partition_by must be set with publish: replace_partitions"),
        (
            REPLACE + "commit: {delivery: at_least_once}\n",
            "delivery must be exactly_once with sink.publish: replace",
        ),
        (REPLACE + "commit: {policy: successful}\n", "must be full with sink.publish: replace"),
        (
            REPLACE + "commit: {policies: [{datasets: [a], policy: partial}]}\n",
            "must be full with sink.publish: replace",
        ),
        (REPLACE + "limits: {seconds: 5}\n", "limits.seconds must not be set with sink.publish: replace"),
        (TABLE + "commit: {policy: successful}\n", "commit.policy must be full with sink.mode: replace"),
        (TABLE + "limits: {seconds: 5}\n", "limits.seconds must not be set with sink.mode: replace"),
        (
            TABLES.format("sink: {publish: append}, optional: true"),
            "must not be true with fork.branches.a.sink.mode",
        ),
        (TWO.format("sink: {publish: append}"), "fork.branches.b.sink.publish must be replace as in the first branch"),
        (TWO.format("sink: {publish: replace}, optional: true"), "fork.branches.b.optional must not be true"),
    ],
)
def test_settings_by_which_a_partial_read_could_replace_the_whole_are_refused(
    tmp_path: Path, more: str, message: str
) -> None:
    config(tmp_path)
    config(tmp_path, TABLE)
    with pytest.raises(ConfigurationError) as refused:
        config(tmp_path, more)
    assert message in str(refused.value)


def test_freshness_target_does_not_slice_a_read_that_replaces_the_whole(tmp_path: Path) -> None:
    """A slice limits a task's time for backlogged datasets, as `limits.seconds` would, which is refused with
    `replace`."""
    fresh = "freshness: 5s\n"
    assert config(tmp_path, fresh).targets.slice_s > 0
    fork = TABLES.format("sink: {publish: append}")
    for more in (REPLACE, TABLE, fork):
        assert config(tmp_path, fresh + more).targets.slice_s == 0


SPARK = "source={type: spark, format: orc, datasets: {t: {path: /in}}, "


@pytest.mark.parametrize(
    ("source", "more", "message"),
    [
        (SPARK + "}", "", "publish must be replace"),
        (
            SPARK + "}",
            "sink: {publish: replace_partitions, partition_by: {column: a}}\n",
            "publish must be replace",
        ),
        (SPARK + "}", TWO.format("sink: {publish: append}"), "publish must be replace"),
        (SPARK + "watermark: n, lookback: 0}", "limits: {seconds: 5}\n", "must not be set for micro-batches"),
    ],
)
def test_source_that_is_read_whole_requires_a_replacing_publisher(
    tmp_path: Path, source: str, more: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        config(tmp_path, more, source)
    assert config(tmp_path, REPLACE, SPARK + "}").task_flow().publish == "replace"
    assert config(tmp_path, "sink: {type: console}\n", SPARK + "}").tries_out
