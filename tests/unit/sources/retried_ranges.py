"""Source states for tests: states with read failures that a run retries separately."""

from __future__ import annotations

from collections.abc import Mapping

from distcommit.core.interfaces.source import SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.read_failure_records import ReadFailure
from distcommit.core.watermark import Watermark


class ReadingAgain(SourceState):
    """A state whose read failures are to be read again before newer records."""

    def to_read_again(self, urn: str) -> Watermark | None:
        failure = self[urn].read_failure if urn in self else None
        return failure.expected_high if failure else None


def states_of(watermarks: Mapping[str, Watermark], again: Mapping[str, Watermark]) -> ReadingAgain:
    """Return states of datasets read so far; `again` has the end of the last run's read failure."""
    failures = {urn: ReadFailure(1, 1, high, "SourceError: gone") for urn, high in again.items()}
    urns = [*watermarks, *(urn for urn in again if urn not in watermarks)]
    return ReadingAgain(
        {urn: DatasetState(urn, watermark=watermarks.get(urn), read_failure=failures.get(urn)) for urn in urns}
    )
