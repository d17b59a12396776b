"""Rows of one commit are sent so that the newest of each key comes last."""

from __future__ import annotations

import pyarrow as pa

from distcommit.core.provenance import Provenance
from distcommit.sinks.databases.newest_row import PART, POSITION, oldest_first
from distcommit.sources.files.source import FilesSource
from distcommit.sources.kafka.source import KafkaSource
from distcommit.sources.rest.source import RestSource


def test_rows_of_a_partition_change_places_among_themselves_and_others_stay() -> None:
    parts, positions = [7, 8, 7, 8, 7], [3, 1, 1, 2, 2]
    rows = pa.record_batch({PART: parts, POSITION: positions})
    (ordered,) = oldest_first([rows], "")
    assert ordered.column(PART).to_pylist() == parts
    assert ordered.column(POSITION).to_pylist() == [1, 1, 2, 2, 3]


def test_rows_without_a_version_come_before_all_others() -> None:
    rows = pa.record_batch({"v": [2, None, 1, None], "n": [1, 2, 3, 4]})
    (ordered,) = oldest_first([rows.slice(0, 2), rows.slice(2)], "v")
    assert ordered.column("n").to_pylist() == [2, 4, 3, 1]


def test_files_and_lists_number_what_is_read_and_topics_do_not() -> None:
    said: list[Provenance | None] = [FilesSource.provenance, RestSource.provenance, KafkaSource.provenance]
    assert [each is not None and each.counts_reading for each in said] == [True, True, False]
