"""`python -m tests.contract.results`: runs the contract of file systems, and writes what came out to RESULTS.md."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from distcommit.testing.contracts import FileSystemContract

TABLE = Path(__file__).parent / "RESULTS.md"
_COLUMNS = {
    "TestLocalFileSystem": "local disk",
    "TestLocalFileSystemThatIsNotDurable": "local disk, `durability: none`",
    "TestLocalFileSystemWithoutRenameat2": "local, without `renameat2` (as NFS)",
    "TestSimulatedFileSystem": "the simulated disk of the checkers",
    "TestHdfsFileSystem": "`hdfs://`",
    "TestHdfsFileSystemOverHttp": "`webhdfs://`",
    "TestS3FileSystem": "`s3://`, on moto's mock of S3",
    "TestSmbFileSystem": "`smb://` by fsspec, on Samba",
}
"""How classes are shown; others under their own names."""


@dataclass
class ContractResults:
    """A pytest plugin that keeps what became of each test, by class and function."""

    kinds: dict[str, type[FileSystemContract]] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves only tests of subclasses of the contract."""
        kept = [item for item in items if isinstance(item, pytest.Function) and _is_of_contract(item.cls)]
        items[:] = kept
        for item in kept:
            self.kinds[item.cls.__name__] = item.cls
            self._places[item.nodeid] = item.cls.__name__, item.originalname

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes.setdefault(self._places[report.nodeid], []).append(report.outcome)


def contract_tests() -> list[str]:
    """The contract's tests, in their order."""
    return [name for name in vars(FileSystemContract) if name.startswith("test_")]


def table(kinds: Mapping[str, type[FileSystemContract]], outcomes: Mapping[tuple[str, str], list[str]]) -> str:
    """A Markdown table: a row for each test of the contract, a column for each file system."""
    columns = sorted(kinds, key=lambda name: [*_COLUMNS, name].index(name))
    notes: list[str] = []
    rows = [
        [_words(test), *(_cell(kinds[name], test, outcomes.get((name, test), []), notes) for name in columns)]
        for test in contract_tests()
    ]
    head = ["", *(_COLUMNS.get(name, name.removeprefix("Test")) for name in columns)]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join([*lines, "", *(f"{place}. {note}" for place, note in enumerate(notes, 1)), ""])


def _cell(kind: type[FileSystemContract], test: str, outcomes: Iterable[str], notes: list[str]) -> str:
    listed = list(outcomes)
    passed = listed.count("passed")
    if not listed:
        text = "not run"
    elif passed == len(listed):
        text = "passes" if len(listed) == 1 else f"{passed} pass"
    else:
        text = f"**{passed} of {len(listed)} pass**"
    own = getattr(kind, test)
    if own is not vars(FileSystemContract)[test]:
        text += _note(notes, f"A weaker test of its own. {(own.__doc__ or '').strip()}")
    if kind.REFUSED_NAMES and test == contract_tests()[0]:
        text += _note(notes, f"Refused, with an error: names like {', '.join(f'`{n}`' for n in kind.REFUSED_NAMES)}.")
    return text


def _note(notes: list[str], text: str) -> str:
    if text not in notes:
        notes.append(text)
    return f" ({notes.index(text) + 1})"


def _words(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def _is_of_contract(kind: type | None) -> bool:
    return kind is not None and issubclass(kind, FileSystemContract)


def main() -> int:
    """Runs the contract on all file systems; pytest's exit code."""
    results = ContractResults()
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = int(pytest.main([*options, str(TABLE.parent)], plugins=[results]))
    skipped = sum(outcomes.count("skipped") for outcomes in results.outcomes.values())
    if code or skipped or not results.outcomes:
        sys.stderr.write(f"not written: pytest ends with {code}, {skipped} tests were skipped\n")
        return code or 1
    TABLE.write_text(
        "# What the file systems' contract says of each\n\n"
        "Written by `python -m tests.contract.results`, from real servers"
        f" (HDFS 3.4.2, Samba, {platform.system()}, Python {platform.python_version()}). The tests are those of"
        " `FileSystemContract` in `distcommit.testing.contracts`.\n\n" + table(results.kinds, results.outcomes),
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
