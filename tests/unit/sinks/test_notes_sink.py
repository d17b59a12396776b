"""The example sink of the guide fulfills the sink contract and has the stated length."""

from __future__ import annotations

import ast
import inspect
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.testing.contracts import SinkContract
from distcommit.testing.fakes import notes_sink
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


def test_notes_sink_has_at_most_fifty_statements() -> None:
    """Docstrings and imports do not count."""
    tree = ast.parse(inspect.getsource(notes_sink))
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    docs = [n for n in statements if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    imports = [node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(statements) - len(docs) - len(imports) <= 50
