"""States as a run gives them that reads again by itself what could not be read."""

from __future__ import annotations

from collections.abc import Mapping

from distcommit.core.interfaces.source import SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.core.records.read_failures import ReadFailure
from distcommit.core.watermark import Watermark


class ReadingAgain(SourceState):
    """What is to be read again before anything newer."""

    def to_read_again(self, urn: str) -> Watermark | None:
        left = self[urn].unread if urn in self else None
        return left.expected_high if left else None


def states_of(watermarks: Mapping[str, Watermark], again: Mapping[str, Watermark]) -> ReadingAgain:
    """States of datasets that were read so far, or of which the last run could not read what ends there."""
    left = {urn: ReadFailure(1, 1, high, "SourceError: gone") for urn, high in again.items()}
    urns = [*watermarks, *(urn for urn in again if urn not in watermarks)]
    return ReadingAgain({urn: DatasetState(urn, watermark=watermarks.get(urn), unread=left.get(urn)) for urn in urns})
