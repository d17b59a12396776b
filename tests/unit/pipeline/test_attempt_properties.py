"""Properties in the task state of an attempt, in each outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import Extraction
from distcommit.core.work_units import TaskOutcome, WorkUnit
from tests.unit.pipeline.test_task_attempt import GOOD, ListExtraction, ListSource, NotingSink, infos, run_unit


class RecordingSource(ListSource):
    def extract(self, unit: WorkUnit) -> Extraction:
        return RecordingExtraction(self)


@dataclass
class RecordingExtraction(ListExtraction):
    def task_properties(self) -> dict[str, Any]:
        return {"offset": self.offset}


@dataclass
class RecordingSink(NotingSink):
    properties: Any = None

    def task_properties(self) -> Any:
        return self.properties


def test_extraction_and_writer_record_properties_and_a_failed_attempt_keeps_its_extractions() -> None:
    sink = RecordingSink(properties={"etag": "b"})
    state = run_unit(RecordingSource(((GOOD,) * 4,)), sink=sink)
    assert state.properties == {"source": {"offset": 14}, "main.writer": {"etag": "b"}}
    failed = run_unit(RecordingSource(((GOOD,),), SourceError("lost")), sink=sink)
    assert (failed.outcome, failed.properties) == (TaskOutcome.FAILED, {"source": {"offset": 11}})


@pytest.mark.parametrize("properties", [{"large": "x" * 5000}, {"list": []}, {"key" * 50: 1}])
def test_property_that_cannot_be_stored_fails_the_work_unit(properties: dict[str, Any]) -> None:
    sink = RecordingSink(properties=properties)
    state = run_unit(RecordingSource(((GOOD,) * 4,)), sink=sink)
    assert (state.outcome, infos(state)) == (TaskOutcome.FAILED, [])
    assert "TASK_PROPERTY_INVALID" in state.error
    assert "construct=main.writer" in state.error
    assert state.properties == {"source": {"offset": 14}}
    assert sink.notes[-1] == "abort"
