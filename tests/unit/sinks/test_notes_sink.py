"""The example sink of the guide fulfills the sink contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.testing.contracts import SinkContract
from distcommit.testing.fakes.notes_sink import NotesSink


class TestNotesSink(SinkContract):
    def make_sink(self, folder: Path) -> NotesSink:
        return NotesSink(f"{folder}/notes.db")

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        if not (folder / "notes.db").exists():
            return []
        db = sqlite3.connect(folder / "notes.db")
        tables = db.execute("SELECT name FROM sqlite_master WHERE name = 'notes'").fetchall()
        notes = db.execute("SELECT dataset, note FROM notes").fetchall() if tables else []
        db.close()
        return [(dataset, msgspec.json.decode(note)["offset"]) for dataset, note in notes]

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        (folder / "staging" / request.infos[0]).unlink()
        return True

    def cut_off(self, folder: Path) -> bool:
        (folder / "notes.db").unlink()
        (folder / "notes.db").mkdir()
        return True
