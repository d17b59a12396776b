"""Ledgers of tables that another version wrote: commits, rollbacks and audits refuse them by name and write nothing."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from deltalake import DeltaTable

from distcommit.core.errors import CorruptError, DistcommitError, TransientError, UnknownVersionError
from distcommit.core.interfaces.committer import AlreadyCommitted, Committed
from distcommit.sinks.delta.ledger import _number_of
from distcommit.sinks.table_formats import ledger_files
from tests.unit.sinks.delta import delta_target
from tests.unit.sinks.iceberg import iceberg_target

ROWS = delta_target.ids(1, 2)


def of_version(text: bytes | str, version: int) -> bytes:
    """Return a JSON object with this version, and with a field that no reader knows."""
    fields = msgspec.json.decode(text)
    return msgspec.json.encode({**fields, "version": version, "rows": "of another form", "text": 1})


def named(folder: Path, data: bytes, name: str) -> str:
    (folder / name).write_bytes(data)
    return name


class IcebergLedger:
    """The ledger of an Iceberg table."""

    parts: ClassVar = ("text", "base", "delta")

    def __init__(self, folder: Path) -> None:
        self.target = iceberg_target.Target(folder)

    def state(self) -> object:
        return self.target.table("t").metadata_location, [path.read_bytes() for path in self.target.ledgers()]

    def replace(self, part: str, change: Callable[[bytes | str], bytes]) -> None:
        """Change a part of the ledger, and name it as the writer does."""
        with self.target.open_table("t") as table:
            text = table.properties["distcommit.store-1"]
            text = (
                change(text).decode()
                if part == "text"
                else with_changed_file(self.target.ledgers(), text, part, change)
            )
            with table.transaction() as changed:
                changed.set_properties({"distcommit.store-1": text})


class DeltaLedger:
    """The ledger of a Delta table."""

    parts: ClassVar = ("transaction", "text", "base", "delta")

    def __init__(self, folder: Path) -> None:
        self.target = delta_target.Target(folder)

    def table(self) -> DeltaTable:
        return self.target.table("t")

    def state(self) -> object:
        return self.table().version(), [path.read_bytes() for path in self.target.ledgers()]

    def replace(self, part: str, change: Callable[[bytes | str], bytes]) -> None:
        committer, table = self.target.committer(self.target.sink()), self.table()
        number = table.transaction_version("distcommit.store-1") or 0
        folder = self.target.ledgers()[0].parent
        data = (folder / f"txn-{number:016x}.json").read_bytes()
        file: dict[str, Any] = msgspec.json.decode(data)
        if part == "transaction":
            data = change(data)
        else:
            text = file["text"]
            text = (
                change(text).decode()
                if part == "text"
                else with_changed_file(self.target.ledgers(), text, part, change)
            )
            data = msgspec.json.encode({**file, "text": text})
        number = _number_of(data)
        (folder / f"txn-{number:016x}.json").write_bytes(data)
        assert committer._tables.commit(table, [], ("distcommit.store-1", number), {})


def with_changed_file(files: list[Path], text: str, part: str, change: Callable[[bytes | str], bytes]) -> str:
    """Change the file that the text names as base or newest delta. Return the text that names the changed file."""
    fields = msgspec.json.decode(text)
    old = fields["base"] if part == "base" else fields["deltas"][-1]
    data = change((files[0].parent / old).read_bytes())
    new = named(files[0].parent, data, f"{sha256(data).hexdigest()}.json")
    return text.replace(old, new)


def prepared(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Commit two epochs of a dataset, so that the ledger has a text, a base and a delta. Return sink and request."""
    monkeypatch.setattr(ledger_files, "_INLINE_BYTES", 0)
    sink = ledger.target.sink()
    for epoch in (1, 2):
        request = ledger.target.prepare(sink, "t", epoch, ROWS, bases=(epoch - 1,))
        assert ledger.target.commit(sink, request) == [Committed()]
    return sink, request


CASES = [(kind, part) for kind in (IcebergLedger, DeltaLedger) for part in kind.parts]


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(("kind", "part"), CASES)
def test_ledger_of_another_version_is_refused_by_name_and_left_alone(
    kind: type[Any], part: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = kind(tmp_path)
    sink, request = prepared(ledger, monkeypatch)
    ledger.replace(part, lambda data: of_version(data, version))
    before = ledger.state()
    expected = rf"unknown format version \[(ledger|path)=.*expected version 1; found version {version}\b"
    other = ledger.target.prepare(sink, "another", 3, ROWS, bases=(0,))
    newer = ledger.target.prepare(sink, "t", 3, ROWS, bases=(2,))
    for requests in ([request], [newer], [other, newer]):
        with pytest.raises(UnknownVersionError, match=expected) as caught:
            ledger.target.commit(sink, *requests)
        assert caught.value.exit_code == 5
    assert ledger.target.commit(sink, other) == [AlreadyCommitted()], "other tables continue"
    with pytest.raises(UnknownVersionError, match=expected):
        ledger.target.committer(sink).withdraw([request])
    with pytest.raises(TransientError, match=f"FORMAT_VERSION_UNKNOWN: .*found version {version}"):
        [*ledger.target.committer(sink).ledger()]
    after = ledger.state()
    assert after[0] == before[0]
    assert set(before[1]) <= set(after[1]), "no file of the ledger was deleted"


@pytest.mark.parametrize(("kind", "part"), CASES)
def test_part_that_is_no_ledger_stays_damage(
    kind: type[Any], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = kind(tmp_path)
    sink, request = prepared(ledger, monkeypatch)
    ledger.replace(part, lambda data: b"[]" + (data if isinstance(data, bytes) else data.encode()))
    with pytest.raises(DistcommitError) as caught:
        ledger.target.committer(sink).withdraw([request])
    assert type(caught.value) is CorruptError
    assert caught.value.id == "LEDGER_CORRUPT"
