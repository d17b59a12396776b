"""Settings of a work unit take precedence over those of the job file in every construct."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.constructs.checkers.record_counts import RowCount
from distcommit.constructs.forks.by_condition import FirstMatch
from distcommit.core.errors import SourceError
from distcommit.core.interfaces.work_unit_settings import SETTINGS, with_settings
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit
from distcommit.pipeline.merge_work_unit_settings import flow_of_unit
from distcommit.pipeline.task_flow import TaskFlow

UNIT = WorkUnit("00000_000001", "a", Watermark({"0": 10}), Watermark({"0": 14}), 4)
SECTIONS = {
    "source": {"type": "kafka", "brokers": "b:1", "topics": ["a"]},
    "converters": [
        {"type": "rename", "columns": {"n": "name"}},
        {"type": "rename", "columns": {"m": "mail"}},
        {
            "type": "python",
            "class": "tests.integration.parts.recording_parts:CountingConverter",
            "options": {"weight": 2},
        },
    ],
    "row_checkers": [{"type": "range", "column": "price", "min": 0}],
    "task_checkers": [{"type": "row_count", "min": 5}],
}


def flow(**sections: Any) -> TaskFlow:
    return FlowSettings.model_validate({**SECTIONS, **sections}).task_flow()


def test_work_units_settings_take_precedence_in_every_construct() -> None:
    settings: dict[str, dict[str, Any]] = {
        "rename#2": {"columns": {"m": "address"}},
        "python": {"weight": 7},
        "range": {"min": 3},
        "main.task_checkers.row_count": {"min": 1},
    }
    before = flow()
    merged = flow_of_unit(before, with_settings(UNIT, settings))
    first, second, custom, checker = (stage.construct for stage in merged.stages)
    assert first is before.stages[0].construct, "others keep those of the job"
    assert second.columns == {"m": "address"}  # type: ignore[union-attr]
    assert custom.instance.weight == 7  # type: ignore[union-attr]
    assert (checker.column, checker.at_least) == ("price", 3)  # type: ignore[union-attr]
    (check,) = merged.branches[0].checks
    assert isinstance(check.checker, RowCount)
    assert check.checker.at_least == 1
    assert before.stages[2].construct.instance.weight == 2  # type: ignore[union-attr]
    assert flow_of_unit(before, UNIT) is before


def test_work_units_settings_reach_the_fork_and_the_constructs_behind_it() -> None:
    fork = {
        "type": "first_match",
        "when": {"lake": {"column": "price", "op": ">", "value": 1}},
        "branches": {"lake": {"row_checkers": [{"type": "range", "column": "price", "min": 0}]}},
    }
    forked = {**SECTIONS, "fork": fork}
    del forked["task_checkers"]
    before = FlowSettings.model_validate(forked).task_flow()
    merged = flow_of_unit(
        before,
        with_settings(
            UNIT, {"lake.range": {"min": 9}, "fork": {"when": {"lake": {"column": "price", "op": ">", "value": 5}}}}
        ),
    )
    assert merged.branches[0].stages[0].construct.at_least == 9  # type: ignore[union-attr]
    assert isinstance(merged.fork, FirstMatch)
    batch = pa.record_batch({"price": [3, 7]})
    (rows,) = merged.fork.choose(batch, ["lake"]).values()
    assert rows.to_pylist() == [False, True]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settings", "construct", "text"),
    [
        ({"cast": {"columns": {}}}, "cast", "an unknown construct"),
        ({"range": {"min": None}}, "range", "min"),
        ({"range": {"minimum": 1}}, "range", "minimum"),
        ({"range": {"on_failure": "drop"}}, "range", "on_failure, a setting of the job"),
        ({"python": {"label": "${file:/run/secrets/db}"}}, "python", "a reference"),
        ({"python": {"nested": [{"${PASSWORD}": 1}]}}, "python", "a reference"),
    ],
)
def test_settings_that_a_construct_cannot_have_name_it(settings: Any, construct: str, text: str) -> None:
    with pytest.raises(SourceError) as raised:
        flow_of_unit(flow(), with_settings(UNIT, settings))
    assert (raised.value.id, raised.value.ids["construct"]) == ("SOURCE_PLAN_INVALID", construct)
    assert text in f"{raised.value.expected} {raised.value.found}"


def test_property_that_is_not_settings_is_rejected() -> None:
    with pytest.raises(SourceError, match="as `with_settings` writes them"):
        flow_of_unit(flow(), replace(UNIT, properties={SETTINGS: "[]"}))
