"""What a source or a sink of one's own may say reaches the job that names its class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from distcommit import Extractor, Source
from distcommit.app.job_file.built_in import validated
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Lag, Planned, SourceState
from distcommit.core.records.log_records import DatasetState
from distcommit.sinks.python.sink import PythonSink
from distcommit.sources.python.source import PythonSource


class Behind(Source):
    """Nothing to read, and far behind."""

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        return iter(())

    def open(self) -> Extractor:
        raise NotImplementedError

    def lags(self, states: Mapping[str, DatasetState]) -> Iterable[Lag]:
        return [Lag(urn, records=5) for urn in states]


def test_how_far_it_is_behind_is_asked() -> None:
    source = validated("source", {"type": "python", "class": f"{__name__}:Behind"})
    assert list(source.lags({"a": DatasetState("a")})) == [Lag("a", records=5)]


@pytest.mark.parametrize(
    ("kind", "named", "left_out"),
    [
        (Source, PythonSource, {"named_by", "named_now"}),  # no other names by `rebucket`
        (Sink, PythonSink, set()),
    ],
)
def test_all_that_its_class_may_say_is_handed_on(kind: type, named: type, left_out: set[str]) -> None:
    assert {name for name in vars(kind) if not name.startswith("_")} - set(vars(named)) == left_out
