"""The example sink fulfills the sink contract, and sinks with one flaw each fail it."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    FailedForGood,
    RetryLater,
    SinkCommitter,
)
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea
from distcommit.sinks.base import idempotent_commit
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.testing.contracts import SinkContract
from distcommit.testing.fakes.sqlite_sink import SqliteCommitter, SqliteSink, SqliteWriter
from tests.integration.parts.partial_sink import IN_PARTS, PartialCommitter, PartialSink


class TestSqliteSink(SinkContract):
    def make_sink(self, folder: Path) -> CommitterSink:
        return SqliteSink(str(folder / "rows.db"))

    def observe(self, folder: Path) -> Sequence[tuple[str, int]]:
        if not (folder / "rows.db").exists():
            return []
        with sqlite3.connect(folder / "rows.db") as db:
            is_made = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'records'").fetchone() == (1,)
            rows = db.execute("SELECT dataset, columns FROM records").fetchall() if is_made else []
        db.close()
        return [(urn, msgspec.json.decode(columns)["offset"]) for urn, columns in rows]

    def lose(self, folder: Path, request: CommitRequest) -> bool:
        (folder / "staging" / request.infos[-1]["path"]).unlink()
        return True

    def cut_off(self, folder: Path) -> bool:
        with sqlite3.connect(folder / "rows.db") as db:
            db.execute("DROP TABLE ledger")
            db.execute("CREATE VIEW ledger AS SELECT 's' AS store, 'a' AS dataset, 'main' AS branch, '{}' AS row")
        db.close()
        return True


class TestPartialSink(TestSqliteSink):
    """A sink whose committer may commit one row for each call."""

    def make_sink(self, folder: Path) -> CommitterSink:
        return PartialSink(str(folder / "rows.db"), str(folder))

    def commit_in_part(self, folder: Path, request: CommitRequest) -> bool:
        (folder / IN_PARTS).touch()
        return True


class ForgetsParts(PartialCommitter):
    """A committer that trusts the infos of the request alone."""

    def _load_part(self, request: CommitRequest, info: dict[str, Any]) -> bool:
        self._db.execute("DELETE FROM parts")
        return super()._load_part(request, info)


class KeepsInfos(PartialCommitter):
    """A committer that returns the infos without a change."""

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        outcome = super()._commit(request)
        return dataclasses.replace(outcome, infos=list(request.infos)) if isinstance(outcome, RetryLater) else outcome


class WithdrawsMarkedParts(PartialCommitter):
    """A committer that rolls back only the parts that the infos mark as done."""

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        super().withdraw([request for request in requests if any(info["is_done"] for info in request.infos)])


def test_committer_that_trusts_the_infos_to_roll_back_fails_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(sink: PartialSink, context: CommitterContext) -> SinkCommitter:
        return WithdrawsMarkedParts(sink, context)

    monkeypatch.setattr(PartialSink, "open_committer", opened)
    with pytest.raises(AssertionError):
        TestPartialSink().test_partial_commit_is_rolled_back_with_older_infos(tmp_path)


@pytest.mark.parametrize("flawed", [ForgetsParts, KeepsInfos])
def test_committer_with_a_flaw_in_its_parts_fails_the_contract(
    flawed: type[PartialCommitter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(sink: PartialSink, context: CommitterContext) -> SinkCommitter:
        return flawed(sink, context)

    monkeypatch.setattr(PartialSink, "open_committer", opened)
    with pytest.raises(AssertionError):
        TestPartialSink().test_partial_commit_is_finished_once_with_older_and_changed_infos(
            tmp_path, "with older infos"
        )


class Forgetful(SqliteCommitter):
    """A committer without a ledger."""

    def _row(self, request: CommitRequest) -> LedgerRow | None:
        return None


class ShortSighted(SqliteCommitter):
    """A committer that knows only the newest epoch."""

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        row = self._row(request)
        if row is not None and 0 < request.epoch < row.epoch:
            with self._transaction():
                self._load(request)
            return Committed()
        return super()._commit(request)


class InTwoTransactions(SqliteCommitter):
    """A committer that updates its ledger after the rows."""

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        row = self._row(request)
        if idempotent_commit.answered(row, request) is not None:
            return super()._commit(request)
        with self._transaction():
            self._load(request)
        with self._transaction():
            self._put(request, idempotent_commit.committed(row, request, ()))
        return Committed()


class LooksTooEarly(SqliteCommitter):
    """A committer that reads the ledger before its transaction; all committers read at once."""

    meeting = threading.Barrier(8)

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        row = self._row(request)
        if threading.current_thread() is not threading.main_thread():
            self.meeting.wait(20)
        if idempotent_commit.answered(row, request) is not None:
            return super()._commit(request)
        with self._transaction():
            self._load(request)
            self._put(request, idempotent_commit.committed(row, request, ()))
        return Committed()


class KnowsNoBases(SqliteCommitter):
    """A committer that accepts any newer epoch without comparing its base."""

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        return super()._commit(dataclasses.replace(request, bases=()))


class LooksAtBasesFirst(SqliteCommitter):
    """A committer that rejects a finished commit because it is not a base of itself."""

    def _commit(self, request: CommitRequest) -> CommitOutcome:
        row = self._row(request)
        if request.bases and (row.epoch if row is not None else 0) not in request.bases:
            return FailedForGood("another target")
        return super()._commit(request)


class ForgetsWhatWasFiltered(SqliteCommitter):
    """A committer whose ledger contains only the origins of rows."""

    def _put(self, request: CommitRequest, row: LedgerRow) -> None:
        super()._put(request, replace(row, covered=tuple(replace(part, filtered={}) for part in row.covered)))


class CoversAllThatIsPrepared(SqliteCommitter):
    """A committer that removes nothing from its ledger on rollback."""

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        before = [self._row(request) for request in requests]
        super().withdraw(requests)
        for request, old in zip(requests, before, strict=True):
            if old is not None:
                self._put(request, replace(old, epoch=old.base, revoked=old.epoch))


class TakesNothingBack(SqliteCommitter):
    """A committer that reports a rollback without executing it."""

    def withdraw(self, requests: Sequence[CommitRequest]) -> None:
        pass


class ForgetsWhatItTookBack(SqliteCommitter):
    """A committer that removes rolled-back rows but would commit them again."""

    def _put(self, request: CommitRequest, row: LedgerRow) -> None:
        super()._put(request, replace(row, revoked=0))


class TakesLostForCommitted(SqliteCommitter):
    """A committer that ignores missing staged files."""

    def _load(self, request: CommitRequest) -> None:
        root = Path(self._context.staging_root)
        there = tuple(info for info in request.infos if (root / info["path"]).exists())
        super()._load(CommitRequest(request.dataset_urn, request.epoch, there))


class LeavesOneOut(SqliteCommitter):
    """A committer that omits the outcome of its last request."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        return super().commit(requests)[:1]


class SaysNothing(SqliteCommitter):
    """A committer that reports a target as available if it can be opened."""

    def probe(self) -> None:
        pass


class TriesWithRows(SqliteCommitter):
    """A committer that probes its target with a visible row."""

    def probe(self) -> None:
        self._db.execute("INSERT INTO records VALUES ('', 'a', 'main', 0, '{\"offset\": 0}')")


class Eager(SqliteWriter):
    """A writer whose rows are visible immediately."""

    committer: SqliteCommitter
    attempt: AttemptIdentity

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        super().write(batch, origins)
        rows = [("", self.attempt.dataset_urn, "main", 1, msgspec.json.encode(row)) for row in batch.to_pylist()]
        self.committer._db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)


class InTuples(SqliteWriter):
    """A writer whose commit infos are not plain data."""

    def prepare_commit(self) -> Prepared:
        return Prepared([tuple(info.items()) for info in super().prepare_commit().infos])


@dataclass(frozen=True, slots=True)
class FlawedSink(SqliteSink):
    """The example sink with one part replaced."""

    committer: type[SqliteCommitter] = SqliteCommitter
    writer: type[SqliteWriter] = SqliteWriter

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        writer = self.writer(area, origin)
        if isinstance(writer, Eager):
            context = CommitterContext(area.fs, "", area.output_root, "")
            writer.attempt, writer.committer = attempt, SqliteCommitter(self.path, context)
        return writer

    def open_committer(self, context: CommitterContext) -> SqliteCommitter:
        return self.committer(self.path, context)


class _Suite(TestSqliteSink):
    """A suite that pytest does not collect; the test below runs it."""

    __test__ = False

    def __init__(self, committer: type[SqliteCommitter], writer: type[SqliteWriter]) -> None:
        self.parts = committer, writer

    def make_sink(self, folder: Path) -> CommitterSink:
        return FlawedSink(str(folder / "rows.db"), *self.parts)


Test = Callable[[_Suite, Path], None]
FLAWS: list[tuple[type[SqliteCommitter] | type[SqliteWriter], Test]] = [
    (Forgetful, _Suite.test_repeated_commit_changes_nothing),
    (ShortSighted, _Suite.test_repeated_commit_after_later_epochs_changes_nothing),
    (InTwoTransactions, _Suite.test_commit_killed_at_any_line_is_committed_by_the_next),
    (LooksTooEarly, _Suite.test_concurrent_commits_commit_once),
    (KnowsNoBases, _Suite.test_target_older_than_the_store_is_rejected),
    (KnowsNoBases, _Suite.test_store_older_than_the_target_is_rejected),
    (LooksAtBasesFirst, _Suite.test_commit_with_a_lost_outcome_is_found_in_the_ledger),
    (ShortSighted, _Suite.test_zombie_of_an_older_run_changes_nothing),
    (ForgetsWhatWasFiltered, _Suite.test_ledger_records_covered_and_filtered_positions),
    (CoversAllThatIsPrepared, _Suite.test_ledger_records_covered_and_filtered_positions),
    (
        TakesNothingBack,
        lambda suite, place: suite.test_rolled_back_request_is_gone_and_cannot_be_committed(place, True),
    ),
    (
        ForgetsWhatItTookBack,
        lambda suite, place: suite.test_rolled_back_request_is_gone_and_cannot_be_committed(place, False),
    ),
    (TakesLostForCommitted, _Suite.test_lost_output_never_counts_as_committed),
    (LeavesOneOut, _Suite.test_each_request_of_a_batch_has_its_own_outcome),
    (SaysNothing, _Suite.test_probe_raises_during_an_outage),
    (TriesWithRows, _Suite.test_probe_changes_nothing),
    (Eager, _Suite.test_nothing_is_visible_before_commit),
    (Eager, _Suite.test_failed_dead_and_losing_attempts_leave_nothing_visible),
    (InTuples, _Suite.test_prepared_request_is_the_same_after_storing),
]


@pytest.mark.parametrize(("flawed", "test"), FLAWS, ids=lambda part: getattr(part, "__name__", None))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # some flawed writers are never closed
def test_each_flaw_fails_its_test(
    flawed: type[SqliteCommitter] | type[SqliteWriter], test: Test, tmp_path: Path
) -> None:
    suite = _Suite(SqliteCommitter, flawed) if issubclass(flawed, SqliteWriter) else _Suite(flawed, SqliteWriter)
    with pytest.raises((AssertionError, CorruptError)):
        test(suite, tmp_path)


class ByFirstLetter(SqliteSink):
    grouped_by: ClassVar[str] = "first letter"

    def commit_group(self, dataset_urn: str) -> str:
        return dataset_urn[0]


class ByHash(ByFirstLetter):
    """A sink whose groups differ between processes."""

    def commit_group(self, dataset_urn: str) -> str:
        return str(hash(dataset_urn) % 1_000_003)


class ByTurns(ByFirstLetter):
    """A sink whose groups depend on earlier calls."""

    asked: ClassVar[set[str]] = set()

    def commit_group(self, dataset_urn: str) -> str:
        self.asked.add(dataset_urn)
        return min(self.asked)


class Unsaid(ByFirstLetter):
    grouped_by: ClassVar[str] = "dataset"


class InBytes(ByFirstLetter):
    def commit_group(self, dataset_urn: str) -> str:
        return dataset_urn.encode()  # type: ignore[return-value]


class _Grouped(TestSqliteSink):
    """A suite that pytest does not collect; the test below runs it."""

    __test__ = False

    def __init__(self, kind: type[SqliteSink]) -> None:
        self.kind = kind

    def make_sink(self, folder: Path) -> CommitterSink:
        return self.kind(str(folder / "rows.db"))


def test_groups_that_depend_only_on_the_name_pass(tmp_path: Path) -> None:
    _Grouped(ByFirstLetter).test_commit_group_is_the_same_in_every_process(tmp_path)


@pytest.mark.parametrize("kind", [ByHash, ByTurns, Unsaid, InBytes])
def test_invalid_groups_fail(kind: type[SqliteSink], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ConfigurationError)):
        _Grouped(kind).test_commit_group_is_the_same_in_every_process(tmp_path)


class UploadingWriter(SqliteWriter):
    """A writer that leaves a file beside the database for its committer to delete."""

    upload: Path

    def prepare_commit(self) -> Prepared:
        self.upload.parent.mkdir(exist_ok=True)
        self.upload.touch()
        return super().prepare_commit()


class UploadingCommitter(SqliteCommitter):
    """A committer that deletes uploads when they are committed or lost."""

    uploads: Path

    def _put(self, request: CommitRequest, row: LedgerRow) -> None:
        super()._put(request, row)
        if row.epoch == request.epoch:
            for info in request.infos:
                (self.uploads / info["path"].partition("/")[0]).unlink(missing_ok=True)

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        for attempt in aborted_attempts:
            (self.uploads / attempt.attempt).unlink(missing_ok=True)


class KeepsWhatIsTakenBack(UploadingCommitter):
    """A committer that deletes nothing of an abandoned dataset."""

    def abort(self, aborted_attempts: Sequence[AbortedAttempt]) -> None:
        revoked = {row.revoked for row in self.ledger()}
        super().abort([attempt for attempt in aborted_attempts if attempt.epoch not in revoked])


@dataclass(frozen=True, slots=True)
class UploadingSink(SqliteSink):
    """The example sink, whose writers leave a file at the target."""

    committer: type[UploadingCommitter] = UploadingCommitter
    prepares_at_target: ClassVar[bool] = True

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        writer = UploadingWriter(area, origin)
        writer.upload = Path(self.path).parent / "uploads" / attempt.attempt
        return writer

    def open_committer(self, context: CommitterContext) -> SqliteCommitter:
        committer = self.committer(self.path, context)
        committer.uploads = Path(self.path).parent / "uploads"
        return committer


class _Uploading(TestSqliteSink):
    """A suite that pytest does not collect; the test below runs it."""

    __test__ = False

    def __init__(self, committer: type[UploadingCommitter]) -> None:
        self.committer = committer

    def make_sink(self, folder: Path) -> CommitterSink:
        return UploadingSink(str(folder / "rows.db"), self.committer)

    def in_doubt(self, place: Path) -> int:
        return len([*(place / "uploads").iterdir()])


def test_files_left_at_the_target_after_a_rollback_fail_the_contract(tmp_path: Path) -> None:
    _Uploading(UploadingCommitter).test_rolled_back_before_commit_nothing_remains_at_the_target(tmp_path / "good")
    with pytest.raises(AssertionError, match="in_doubt"):
        _Uploading(KeepsWhatIsTakenBack).test_rolled_back_before_commit_nothing_remains_at_the_target(
            tmp_path / "flawed"
        )
