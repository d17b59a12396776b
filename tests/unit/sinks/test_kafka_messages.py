"""What the writer of messages keeps of what it is told, where no broker is asked."""

from __future__ import annotations

from pathlib import Path

from distcommit.fs.local import LocalFileSystem
from distcommit.model.provenance import Provenance
from distcommit.model.sink import Origin, StagingArea
from distcommit.model.work import SkippedRange
from distcommit.sinks.kafka.messages import KafkaWriter, Mapping


def test_holes_beside_which_there_is_no_message_are_for_the_log_to_keep(tmp_path: Path) -> None:
    mapping = Mapping("bytes", "key", "value", "", "", "")
    area = StagingArea(LocalFileSystem(), str(tmp_path), "attempt", str(tmp_path / "output"))
    writer = KafkaWriter(mapping, area, Origin(Provenance("partition", "offset"), incarnation="topic-id"), "ledger-id")
    hole = SkippedRange("0", 3, 9, "no record", True, "topic-id")
    writer.note_holes([hole])
    prepared = writer.prepare_commit()
    assert not prepared.infos
    assert list(prepared.holes) == [hole]
