"""Order of a commit's rows: the newest row of each key is sent last."""

from __future__ import annotations

import pyarrow as pa

from distcommit.core.interfaces.provenance import Provenance
from distcommit.sinks.databases.newer_rows import PART, POSITION, oldest_first
from distcommit.sources.files.source import FilesSource
from distcommit.sources.kafka.source import KafkaSource
from distcommit.sources.rest.source import RestSource


def test_rows_are_reordered_only_within_their_partition() -> None:
    parts, positions = [7, 8, 7, 8, 7], [3, 1, 1, 2, 2]
    rows = pa.record_batch({PART: parts, POSITION: positions})
    (ordered,) = oldest_first([rows], "")
    assert ordered.column(PART).to_pylist() == parts
    assert ordered.column(POSITION).to_pylist() == [1, 1, 2, 2, 3]


def test_rows_without_a_version_come_first() -> None:
    rows = pa.record_batch({"v": [2, None, 1, None], "n": [1, 2, 3, 4]})
    (ordered,) = oldest_first([rows.slice(0, 2), rows.slice(2)], "v")
    assert ordered.column("n").to_pylist() == [2, 4, 3, 1]


def test_files_and_lists_count_reading_and_topics_do_not() -> None:
    provenances: list[Provenance | None] = [FilesSource.provenance, RestSource.provenance, KafkaSource.provenance]
    assert [provenance is not None and provenance.counts_reading for provenance in provenances] == [True, True, False]
