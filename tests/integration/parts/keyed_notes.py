"""A converter that notes the identity of each record by the keys that its source declares."""

from __future__ import annotations

from typing import Any

from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.core.interfaces.source_table import Extract
from distcommit.testing.fakes.notes_sink import NotesSink, NotesWriter


class KeyedNotes(NotesSink):
    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> NotesWriter:
        assert origin.extract is not None
        return KeyedWriter(area, origin.extract)


class KeyedWriter(NotesWriter):
    def __init__(self, area: StagingArea, extract: Extract) -> None:
        super().__init__(area)
        self._extract = extract

    def write_record(self, record: dict[str, Any]) -> None:
        keys = [record[name] for name in self._extract.keys]
        super().write_record({"table": f"{self._extract.namespace}.{self._extract.table}", "keys": keys})
