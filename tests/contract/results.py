"""`python -m tests.contract.results [file-systems|sinks]`: runs a contract, or both; RESULTS.md is what came out."""

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
        kind: its class.
        title: the part's heading.
        where: what has run, in words.
        columns: how classes are shown, by module and name; others as they are called.
        tests: where its subclasses are, besides this folder.
        all_run: whether nothing is written if a test was skipped; else its reason is told.
    """

    kind: type[Any]
    title: str
    where: str
    columns: Mapping[str, str]
    tests: tuple[Path, ...] = ()
    all_run: bool = True

    def names(self) -> list[str]:
        """The contract's tests, in their order."""
        kinds = reversed(self.kind.__mro__)  # what a contract takes from another one is a part of it
        return [name for kind in kinds for name in vars(kind) if name.startswith("test_")]


CONTRACTS = {
    "file-systems": Contract(
        FileSystemContract,
        "What the file systems' contract says of each",
        f"from real servers (HDFS 3.4.2, Samba, {platform.system()}, Python {platform.python_version()})",
        {
            "test_file_systems.TestLocalFileSystem": "local disk",
            "test_file_systems.TestLocalFileSystemThatIsNotDurable": "local disk, `durability: none`",
            "test_file_systems.TestLocalFileSystemWithoutRenameat2": "local, without `renameat2` (as NFS)",
            "test_file_systems.TestSimulatedFileSystem": "the simulated disk of the checkers",
            "test_hdfs.TestHdfsFileSystem": "`hdfs://`",
            "test_hdfs.TestHdfsFileSystemOverHttp": "`webhdfs://`",
            "test_s3.TestS3FileSystem": "`s3://`, on moto's mock of S3",
            "test_smb.TestSmbFileSystem": "`smb://` by fsspec, on Samba",
        },
    ),
    "sinks": Contract(
        SinkContract,
        "What the sinks' contract says of each",
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
    """A pytest plugin that keeps what became of each test, by class and function, and why it tried nothing."""

    contract: Contract
    kinds: dict[str, type[Any]] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)
    _now: tuple[str, str] = ("", "")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves only tests of subclasses of the contract."""
        kept = [item for item in items if isinstance(item, pytest.Function) and self._is_of_contract(item.cls)]
        items[:] = kept
        for item in kept:
            self.kinds[key_of(item.cls)] = item.cls
            self._places[item.nodeid] = key_of(item.cls), item.originalname

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Notes which one it is."""
        self._now = self._places[item.nodeid]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps what came out, and why a test was skipped."""
        if report.when == "call" or report.outcome != "passed":
            self.outcomes.setdefault(self._places[report.nodeid], []).append(report.outcome)
        if report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[self._places[report.nodeid]] = report.longrepr[2].removeprefix("Skipped: ")

    def note(self, why: str) -> None:
        """The test that runs has nothing to try."""
        self.reasons[self._now] = why

    def _is_of_contract(self, kind: type | None) -> bool:
        return kind is not None and issubclass(kind, self.contract.kind)


def key_of(kind: type) -> str:
    """A class's module, without packages, and name."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def table(contract: Contract, results: ContractResults) -> str:
    """A Markdown table: a row for each test of the contract, a column for each of its subclasses."""
    columns = sorted(results.kinds, key=lambda name: [*contract.columns, name].index(name))
    notes: list[str] = []
    rows = [[_words(test), *(_cell(results, name, test, notes) for name in columns)] for test in contract.names()]
    head = ["", *(contract.columns.get(name, name.rpartition(".")[2].removeprefix("Test")) for name in columns)]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join([*lines, "", *(f"{place}. {note}" for place, note in enumerate(notes, 1)), ""])


def _cell(results: ContractResults, name: str, test: str, notes: list[str]) -> str:
    kind, listed = results.kinds[name], results.outcomes.get((name, test), [])
    passed, why = listed.count("passed"), results.reasons.get((name, test), "")
    own, is_slow = getattr(kind, test), _is_slow(getattr(kind, test))
    if not listed:
        text = "by `pytest -m slow`" if is_slow else "not run"
    elif passed == len(listed):
        text = "passes" if len(listed) == 1 else f"{passed} pass"
    elif listed.count("failed"):
        text = f"**{passed} of {len(listed)} pass**"
    else:
        text = "skipped"
    if why:
        text += _note(notes, f"Nothing to try: {why}." if passed else why)
    if own is not getattr(results.contract.kind, test) and not is_slow:
        text += _note(notes, f"A weaker test of its own. {(own.__doc__ or '').strip()}")
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
    """What the file has of each contract, by its name, without the heading."""
    text = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    found = dict(re.findall(r"^# (.+)\n\n((?:(?!^# ).*\n)*)", text, re.MULTILINE))
    return {name: found[contract.title] for name, contract in CONTRACTS.items() if contract.title in found}


def _run(name: str, contract: Contract) -> tuple[int, str]:
    """pytest's exit code, and the contract's part of the file; empty if it is not to be written."""
    results = ContractResults(contract)
    SinkContract.report_not_applicable = lambda _, why: results.note(why)  # type: ignore[method-assign, assignment]
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = int(pytest.main([*options, str(TABLE.parent), *map(str, contract.tests)], plugins=[results]))
    skipped = sum(outcomes.count("skipped") for outcomes in results.outcomes.values())
    if (contract.all_run and (code or skipped)) or not results.outcomes:
        sys.stderr.write(f"{name} not written: pytest ends with {code}, {skipped} tests were skipped\n")
        return code or 1, ""
    kind = contract.kind.__name__
    said = f"Written by `python -m tests.contract.results {name}`, {contract.where}. The tests are those of `{kind}` in"
    return code, f"{said} `distcommit.testing.contracts`.\n\n{table(contract, results)}\n"


def main() -> int:
    """Runs the contracts; pytest's exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("contract", nargs="*", choices=[[], *CONTRACTS])
    wanted = parser.parse_args().contract or list(CONTRACTS)
    codes: list[int] = []
    for name in wanted:
        code, part = _run(name, CONTRACTS[name])
        codes.append(code)
        if part:
            written = {**parts(), name: part}
            texts = [f"# {CONTRACTS[name].title}\n\n{written[name]}" for name in CONTRACTS if name in written]
            TABLE.write_text("\n\n".join(text.rstrip() for text in texts) + "\n", encoding="utf-8")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
