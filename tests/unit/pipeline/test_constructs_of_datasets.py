"""Converters and checkers with `only_datasets` apply to the datasets that a pattern of theirs matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from distcommit.app.checks.flow_description import describe_flow
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.pipeline.task_flow import TaskFlow
from tests.simulation.world import World
from tests.unit.engine.driver.machines import OUTPUT, Machine, go
from tests.unit.sources.files.files_folder import Folder
from tests.unit.sources.files.test_csv_rows import tables
from tests.unit.sources.files.test_files_source import folder

__all__ = ["folder"]

CAST = {"type": "cast", "columns": {"price": "decimal(8, 2)"}, "only_datasets": ["orders_*"]}
RENAME = {"type": "rename", "columns": {"n": "name"}, "only_datasets": ["customers", "people"]}
CHECK = {"type": "range", "column": "price", "min": 0, "on_failure": "drop", "only_datasets": ["orders_*"]}
ROWS = {"type": "row_count", "min": 2, "only_datasets": ["people"]}


def sections(source: Any) -> dict[str, Any]:
    return {"source": source, "converters": [CAST, RENAME], "row_checkers": [CHECK], "task_checkers": [ROWS]}


def flow_of(**other: Any) -> Callable[[Source, Sink], TaskFlow]:
    def with_sink(source: Source, sink: Sink) -> TaskFlow:
        if not hasattr(source, "model_dump"):
            return TaskFlow.straight(source, sink)
        flow = FlowSettings.model_validate({**sections(source.model_dump()), **other}).task_flow()
        return replace(flow, branches=[replace(branch, sink=sink) for branch in flow.branches])

    return with_sink


def test_each_dataset_has_the_converters_and_checkers_that_match_its_name(folder: Folder) -> None:
    machine, world = Machine(), World(flow=flow_of())
    source = folder.source(format="csv", paths=[f"{folder.folder}/in/{{dataset}}/*.csv"])
    folder.put("orders_eu/0.csv", "n,price\na,1.5\nb,-1\n")
    folder.put("orders_us/0.csv", "n,price\na,2\n")
    folder.put("customers/0.csv", "n\nann\n")
    folder.put("other/0.csv", "n,price\na,x\n")
    folder.put("people/0.csv", "n\nbob\n")
    result = go(world, machine, source)  # type: ignore[arg-type]  # a source as any other
    published = {
        name: tables(machine, f"{OUTPUT}/{name}/") for name in ("orders_eu", "orders_us", "customers", "other")
    }
    assert [str(row["price"]) for row in published["orders_eu"]] == ["1.50"]
    assert [str(row["price"]) for row in published["orders_us"]] == ["2.00"]
    assert [(row["name"], "n" in row) for row in published["customers"]] == [("ann", False)]
    assert [(row["n"], row["price"]) for row in published["other"]] == [("a", "x")]
    (reason,) = result.reasons.entries
    assert (reason.subject, "row_count" in reason.text) == ("people", True)


def test_flow_is_checked_for_each_pattern_and_described_with_its_patterns() -> None:
    source = {"type": "kafka", "brokers": "b:1", "topics": ["orders_eu"]}
    config = JobConfig.model_validate(
        {
            "job": "j",
            "source": source,
            "converters": [{"type": "json", "fields": {"a": "int64"}, "only_datasets": ["orders_*"]}],
            "paths": {"store": "/s", "staging": "/t", "output": "/o"},
        }
    )
    parts = {part.name: part for part in describe_flow(config).parts}
    assert "orders_*" in parts["json"].settings
    assert parts["json"].columns in (None, [])
    wrong = {"type": "cast", "columns": {"missing": "int64"}, "only_datasets": ["orders_*"]}
    settings = {"source": source, "converters": [wrong]}
    with pytest.raises(ConfigurationError, match="cast"):
        FlowSettings.model_validate(settings).task_flow().check()


def test_empty_pattern_is_rejected() -> None:
    with pytest.raises(ValidationError, match="only_datasets"):
        FlowSettings.model_validate(
            {
                **sections({"type": "kafka", "brokers": "b:1", "topics": ["t"]}),
                "converters": [{**RENAME, "only_datasets": [""]}],
            }
        )
