"""`python -m tests.contract.results [file-systems|sinks]`: run one contract or both, and write the outcomes to
RESULTS.md."""

from __future__ import annotations

import argparse
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from distcommit.testing.contracts import FileSystemContract, SinkContract

TABLE = Path(__file__).parent / "RESULTS.md"


@dataclass(frozen=True)
class Contract:
    """A contract whose results are a part of the file.

    Attributes:
        kind: The contract's class.
        title: The heading of the part.
        where: The environment of the run, in words.
        columns: Column titles by module and class name; other classes are shown by their own names.
        tests: Folders with subclasses of the contract, besides this one.
        all_run: Whether nothing is written if a test was skipped; otherwise the table has the reason.
    """

    kind: type[Any]
    title: str
    where: str
    columns: Mapping[str, str]
    tests: tuple[Path, ...] = ()
    all_run: bool = True

    def names(self) -> list[str]:
        """Return the contract's tests in order."""
        kinds = reversed(self.kind.__mro__)  # a contract includes the tests of its base contracts
        return [name for kind in kinds for name in vars(kind) if name.startswith("test_")]


CONTRACTS = {
    "file-systems": Contract(
        FileSystemContract,
        "Results of the file system contract",
        f"from real servers (Azurite, HDFS 3.4.2, Samba, {platform.system()}, Python {platform.python_version()})",
        {
            "test_file_systems.TestLocalFileSystem": "local disk",
            "test_file_systems.TestLocalFileSystemThatIsNotDurable": "local disk, `durability: none`",
            "test_file_systems.TestLocalFileSystemWithoutRenameat2": "local, without `renameat2` (as NFS)",
            "test_file_systems.TestSimulatedFileSystem": "the simulated disk of the checkers",
            "test_hdfs.TestHdfsFileSystem": "`hdfs://`",
            "test_hdfs.TestHdfsFileSystemOverHttp": "`webhdfs://`",
            "test_s3.TestS3FileSystem": "`s3://`, on moto's mock of S3",
            "test_blob_stores.TestBlobFileSystem": "`az://`, on Azurite",
            "test_blob_stores.TestGoogleFileSystem": "`gs://`, on a server of these tests",
            "test_smb.TestSmbFileSystem": "`smb://` by fsspec, on Samba",
        },
    ),
    "sinks": Contract(
        SinkContract,
        "Results of the sink contract",
        f"from real servers ({platform.system()}, Python {platform.python_version()})",
        {
            "test_postgresql_sink.TestATableForEach": "`postgresql`, append",
            "test_postgresql_sink.TestTwoPhase": "`postgresql`, two-phase",
            "test_postgresql_sink.TestTwoPhaseWithTags": "`postgresql`, two-phase, one table, tags",
            "test_postgresql_sink.TestUpsert": "`postgresql`, upsert",
            "test_postgresql_sink.TestOneTableWithTags": "`postgresql`, one table, tags",
            "test_mariadb_sink.TestATableForEach": "`mariadb`, append",
            "test_mariadb_sink.TestXa": "`mariadb`, XA",
            "test_mariadb_sink.TestUpsert": "`mariadb`, upsert",
            "test_mariadb_sink.TestOneTableWithTags": "`mariadb`, one table, tags",
            "test_sqlite_sink.TestATableForEach": "`sqlite`, append",
            "test_sqlite_sink.TestUpsert": "`sqlite`, upsert",
            "test_sqlite_sink.TestOneTableWithTags": "`sqlite`, one table, tags",
            "test_iceberg.TestSqliteCatalog": "`iceberg`, catalog in SQLite",
            "test_iceberg.TestPostgresCatalog": "`iceberg`, catalog in PostgreSQL",
            "test_iceberg.TestRestCatalog": "`iceberg`, REST catalog",
            "test_iceberg.TestNessieCatalog": "`iceberg`, Nessie",
            "test_iceberg.TestOneTable": "`iceberg`, one table",
            "test_iceberg.TestWarehouseOnS3": "`iceberg`, warehouse on moto's mock of S3",
            "test_delta.TestDeltaSink": "`delta`, on a local disk",
            "test_delta.TestOneTable": "`delta`, one table",
            "test_delta.TestDeltaOnS3": "`delta`, on moto's mock of S3",
            "test_kafka_sink.TestKafkaSink": "`kafka`",
            "test_sinks.TestSqliteSink": "the example `sqlite_sink.py`",
            "test_notes_sink.TestNotesSink": "the example `notes_sink.py`",
        },
        tests=(TABLE.parent.parent / "unit" / "sinks" / "test_notes_sink.py",),
        all_run=False,
    ),
}


@dataclass(eq=False)
class ContractResults:
    """A pytest plugin that records the outcome of each test by class and function, and the reason if it had nothing to
    try."""

    contract: Contract
    kinds: dict[str, type[Any]] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)
    _now: tuple[str, str] = ("", "")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep only tests of subclasses of the contract."""
        contract_items = [
            item for item in items if isinstance(item, pytest.Function) and self._is_of_contract(item.cls)
        ]
        items[:] = contract_items
        for item in contract_items:
            self.kinds[key_of(item.cls)] = item.cls
            self._places[item.nodeid] = key_of(item.cls), item.originalname

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Record the running test."""
        self._now = self._places[item.nodeid]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome, and the reason of a skipped test."""
        if report.when == "call" or report.outcome != "passed":
            self.outcomes.setdefault(self._places[report.nodeid], []).append(report.outcome)
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[self._places[report.nodeid]] = report.longrepr[2].removeprefix("Skipped: ")

    def note(self, why: str) -> None:
        """Record that the running test has nothing to try."""
        self.reasons[self._now] = why

    def _is_of_contract(self, kind: type | None) -> bool:
        return kind is not None and issubclass(kind, self.contract.kind)


def key_of(kind: type) -> str:
    """Return a class's module without packages, and its name."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def table(contract: Contract, results: ContractResults) -> str:
    """Return a Markdown table with a row for each test of the contract and a column for each subclass."""
    columns = sorted(results.kinds, key=lambda name: [*contract.columns, name].index(name))
    notes: list[str] = []
    rows = [[_words(test), *(_cell(results, name, test, notes) for name in columns)] for test in contract.names()]
    head = ["", *(contract.columns.get(name, name.rpartition(".")[2].removeprefix("Test")) for name in columns)]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join([*lines, "", *(f"{place}. {note}" for place, note in enumerate(notes, 1)), ""])


def _cell(results: ContractResults, name: str, test: str, notes: list[str]) -> str:
    kind, listed = results.kinds[name], results.outcomes.get((name, test), [])
    passed, reason = listed.count("passed"), results.reasons.get((name, test), "")
    own, is_slow = getattr(kind, test), _is_slow(getattr(kind, test))
    if not listed:
        text = "by `pytest -m slow`" if is_slow else "not run"
    elif passed == len(listed):
        text = "passes" if len(listed) == 1 else f"{passed} pass"
    elif listed.count("failed"):
        text = f"**{passed} of {len(listed)} pass**"
    else:
        text = "skipped"
    if reason:
        text += _note(notes, f"Nothing to try: {reason}." if passed else reason)
    if own is not getattr(results.contract.kind, test) and not is_slow:
        text += _note(notes, f"Replaced by a weaker test. {(own.__doc__ or '').strip()}")
    if getattr(kind, "REFUSED_NAMES", ()) and test == results.contract.names()[0]:
        text += _note(notes, f"Refused, with an error: names like {', '.join(f'`{n}`' for n in kind.REFUSED_NAMES)}.")
    return text


def _is_slow(function: Any) -> bool:
    return any(mark.name == "slow" for mark in getattr(function, "pytestmark", ()))


def _note(notes: list[str], text: str) -> str:
    if text not in notes:
        notes.append(text)
    return f" ({notes.index(text) + 1})"


def _words(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def parts() -> dict[str, str]:
    """Return the file's text of each contract by name, without the heading."""
    text = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    texts = dict(re.findall(r"^# (.+)\n\n((?:(?!^# ).*\n)*)", text, re.MULTILINE))
    return {name: texts[contract.title] for name, contract in CONTRACTS.items() if contract.title in texts}


def _run(name: str, contract: Contract) -> tuple[int, str]:
    """Return pytest's exit code and the contract's part of the file; the part is empty if it must not be written."""
    results = ContractResults(contract)
    SinkContract.report_not_applicable = lambda _, reason: results.note(reason)  # type: ignore[method-assign, assignment]
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = int(pytest.main([*options, str(TABLE.parent), *map(str, contract.tests)], plugins=[results]))
    skipped = sum(outcomes.count("skipped") for outcomes in results.outcomes.values())
    if (contract.all_run and (code or skipped)) or not results.outcomes:
        sys.stderr.write(f"{name} not written: pytest ends with {code}, {skipped} tests were skipped\n")
        return code or 1, ""
    kind = contract.kind.__name__
    header = (
        f"Written by `python -m tests.contract.results {name}`, {contract.where}. The tests are those of `{kind}` in"
    )
    return code, f"{header} `distcommit.testing.contracts`.\n\n{table(contract, results)}\n"


def main() -> int:
    """Run the contracts and return pytest's exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("contract", nargs="*", choices=[[], *CONTRACTS])
    requested = parser.parse_args().contract or list(CONTRACTS)
    codes: list[int] = []
    for name in requested:
        code, part = _run(name, CONTRACTS[name])
        codes.append(code)
        if part:
            written = {**parts(), name: part}
            texts = [f"# {CONTRACTS[name].title}\n\n{written[name]}" for name in CONTRACTS if name in written]
            TABLE.write_text("\n\n".join(text.rstrip() for text in texts) + "\n", encoding="utf-8")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
