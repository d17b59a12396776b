"""Optional members of a custom source or sink are forwarded by the `python` wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from distcommit import Extractor, Source
from distcommit.app.job_file.built_in_types import validated
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Lag, Planned, SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.sinks.python.sink import PythonSink
from distcommit.sources.python.source import PythonSource


class Behind(Source):
    """A source without records to read that reports a lag."""

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        return iter(())

    def open(self) -> Extractor:
        raise NotImplementedError

    def lags(self, states: Mapping[str, DatasetState]) -> Iterable[Lag]:
        return [Lag(urn, records=5) for urn in states]


def test_lag_of_a_custom_source_is_forwarded() -> None:
    source = validated("source", {"type": "python", "class": f"{__name__}:Behind"})
    assert list(source.lags({"a": DatasetState("a")})) == [Lag("a", records=5)]


@pytest.mark.parametrize(
    ("kind", "named", "left_out"),
    [
        (Source, PythonSource, {"named_by", "current_name"}),  # `rebucket` can't rename its datasets
        (Sink, PythonSink, set()),
    ],
)
def test_all_members_of_the_custom_class_are_forwarded(kind: type, named: type, left_out: set[str]) -> None:
    assert {name for name in vars(kind) if not name.startswith("_")} - set(vars(named)) == left_out
