"""Cases for every database with prepared transactions: a class to subclass, with a fixture `target`."""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from distcommit.core.errors import ConfigurationError, ConflictError, FencedError, TransientError
from distcommit.core.interfaces.committer import (
    AbortedAttempt,
    AlreadyCommitted,
    CommitOutcome,
    CommitRequest,
    Committed,
    CommitterContext,
    HeldBack,
    RetryLater,
)
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.sinks.databases.table_sink import TableSink
from distcommit.sinks.databases.two_phase_commit import prepared_transactions
from distcommit.sinks.databases.two_phase_commit.prepared_transactions import Name, TwoPhaseCommitter
from distcommit.testing.contracts.killed_processes import fork_server
from tests.servers.lossy_proxy import LossyProxy
from tests.unit.sinks.databases.commit_steps import numbers, refused
from tests.unit.sinks.databases.table_sink_cases import ServerTarget

_PROOFS = "SELECT what, epoch FROM distcommit_prepared ORDER BY 1, 2"


class PreparingTarget(ServerTarget):
    """A database whose server prepares transactions."""

    prepare_sent: ClassVar[bytes]
    modules: ClassVar[Sequence[str]]
    """Files of the modules that writers go through."""
    preloaded: ClassVar[Sequence[str]]
    """Modules that writers import as they are used."""
    apart: ClassVar[int] = 3
    """Writers are killed before each line of so many."""

    @abstractmethod
    def prepared(self) -> list[str]:
        """Return the names of prepared transactions in any order; each ends with its attempt's id."""

    @abstractmethod
    def end(self, name: str, *, commit: bool) -> None:
        """Commit or roll back a prepared transaction, as an operator does."""

    @abstractmethod
    def plain(self, **settings: Any) -> TableSink:
        """Return a sink without two-phase commit."""

    def writer(self, sink: TableSink, epoch: int, attempt: str, urn: str = "a", store: str = "store") -> SinkWriter:
        folder = self.folder / attempt
        folder.mkdir(exist_ok=True)
        area = StagingArea(LocalFileSystem(), str(folder), attempt, str(self.folder / "output"))
        identity = AttemptIdentity(f"run-{epoch}", epoch, urn, "unit", attempt, store_id=store)
        return sink.open_writer(identity, area, Origin())

    def of_units(self, sink: TableSink, urn: str, epoch: int, *units: pa.RecordBatch, **more: Any) -> CommitRequest:
        """Return a request of several work units."""
        parts = [self.prepare(sink, urn, epoch, unit, **more) for unit in units]
        infos, attempts = (
            tuple(value for part in parts for value in getattr(part, of)) for of in ("infos", "attempts")
        )
        return CommitRequest(urn, epoch, infos, bases=parts[0].bases, attempts=attempts)

    def name_of(self, request: CommitRequest, unit: int = 0) -> str:
        (name,) = [name for name in self.prepared() if name.endswith(request.attempts[unit])]
        return name

    def opened(self, sink: TableSink, store: str = "store") -> TwoPhaseCommitter:
        context = CommitterContext(LocalFileSystem(), str(self.folder), str(self.folder / "output"), store)
        committer = sink.open_committer(context)
        assert isinstance(committer, TwoPhaseCommitter)
        return committer

    def abort(self, sink: TableSink, *attempts: str, epoch: int = 1) -> None:
        committer = self.opened(sink)
        try:
            committer.abort([AbortedAttempt(epoch, "unit", attempt, attempt) for attempt in attempts])
        finally:
            committer.close()


class TwoPhaseCases:
    """Cases to subclass where the fixture `target` is a `PreparingTarget`."""

    # -- what proves

    def test_prepared_transaction_survives_a_restart_and_is_committed_by_name(self, target: PreparingTarget) -> None:
        sink = target.sink()
        request = target.of_units(sink, "a", 1, numbers(1, 2), numbers(3))
        assert len(target.prepared()) == 2
        target.server.restart()
        assert len(target.prepared()) == 2
        assert target.rows("a") == []
        assert target.commit(sink, request) == [Committed()]
        assert target.rows("a") == [(1,), (2,), (3,)]
        assert target.prepared() == []
        assert target.ledger() == [("a", 1)]
        assert target.commit(sink, request, request) == [AlreadyCommitted()] * 2

    def test_each_transaction_is_logged_by_its_name_from_its_start_to_its_end(
        self, target: PreparingTarget, caplog: pytest.LogCaptureFixture
    ) -> None:
        sink, committed, aborted = target.sink(), "1" * 32, "2" * 32
        with caplog.at_level(logging.INFO, prepared_transactions.__name__):
            writers = [target.writer(sink, 1, attempt) for attempt in (committed, aborted)]
            infos: list[Any] = []
            for writer in writers:
                writer.write(numbers(1))
                infos += writer.prepare_commit().infos
            names = {name[-32:]: name for name in target.prepared()}
            assert target.commit(sink, CommitRequest("a", 1, (infos[0],), attempts=(committed,))) == [Committed()]
            target.abort(sink, aborted)
        logged = [record.getMessage() for record in caplog.records if record.name == prepared_transactions.__name__]
        of_both = [line.removeprefix("transaction ") for line in logged]
        for attempt, end in ((committed, "committed"), (aborted, "rolled back")):
            own = [line.partition(": ") for line in of_both if attempt in line]
            assert [state for _, _, state in own] == ["started, dataset a", "prepared", end]
            assert {name for name, _, _ in own} == {names[attempt].replace("|", "-")}

    def test_missing_prepared_transaction_is_lost_and_nothing_of_its_dataset_is_committed(
        self, target: PreparingTarget
    ) -> None:
        sink = target.sink()
        request = target.of_units(sink, "a", 1, numbers(1), numbers(2))
        target.end(target.name_of(request, 1), commit=False)
        refused(target.beside_others(sink, request), "neither prepared nor committed", request.attempts[1])
        assert target.rows("a") == []
        target.withdraw(sink, request)
        assert target.prepared() == []

    def test_missing_prepared_transaction_with_a_proof_is_committed(self, target: PreparingTarget) -> None:
        """Models a committer killed between two prepared transactions, or before it wrote the ledger."""
        sink = target.sink()
        for epoch, done in ((1, [0]), (2, [0, 1])):
            request = target.of_units(sink, "a", epoch, numbers(epoch), numbers(10 * epoch))
            for unit in done:
                target.end(target.name_of(request, unit), commit=True)
            assert target.commit(sink, request) == [Committed()]
            assert target.commit(sink, request) == [AlreadyCommitted()]
        assert target.rows("a") == [(1,), (2,), (10,), (20,)]
        assert target.prepared() == []

    def test_proofs_are_deleted_with_the_ledger_s_update_so_that_nothing_grows(self, target: PreparingTarget) -> None:
        sink = target.sink()
        for epoch in range(1, 5):
            lost = target.prepare(sink, "a", epoch, numbers(0))
            assert target.commit(sink, target.prepare(sink, "a", epoch, numbers(epoch))) == [Committed()]
            target.abort(sink, *lost.attempts, epoch=epoch)
            assert target.sql(_PROOFS) == [("barred", epoch), ("newest", epoch)]
        assert target.rows("a") == [(1,), (2,), (3,), (4,)]

    def test_proofs_of_a_partly_accepted_commit_are_deleted_after_a_later_epoch(self, target: PreparingTarget) -> None:
        """For a quarantined sequence that an operator released: no committer processes it again."""
        sink = target.sink()
        accepted, open_one = (target.of_units(sink, urn, 1, numbers(1), numbers(2)) for urn in ("a", "b"))
        for request in (accepted, open_one):
            target.end(target.name_of(request), commit=True)
        target.end(target.name_of(accepted, 1), commit=False)
        assert target.commit(sink, target.prepare(sink, "a", 2, numbers(3), bases=(0, 1))) == [Committed()]
        proofs = "SELECT dataset, epoch FROM distcommit_prepared WHERE what = 'proof' ORDER BY 1"
        assert target.sql(proofs) == [("a", 1), ("b", 1)]
        target.writer(sink, 3, "of the next run").abort()
        assert target.sql(proofs) == [("b", 1)], "b is pending, and only its proof records that"
        assert target.commit(sink, open_one) == [Committed()]
        assert target.rows("b") == [(1,), (2,)]
        assert target.sql(proofs) == []

    def test_lost_answer_to_a_commit_is_recovered_from_the_proof(self, target: PreparingTarget) -> None:
        with LossyProxy(target.server.port) as proxy:
            sink = target.sink(url=target.url.replace(f":{target.server.port}/", f":{proxy.port}/"))
            request = target.prepare(sink, "a", 1)
            proxy.lose_answer_to(target.commit_sent)
            with suppress(target.raised):  # both results are the same to the caller
                assert isinstance(target.commit(sink, request)[0], RetryLater)
            assert proxy.wait_for_loss()
            assert target.commit(sink, request) == [Committed()]
        assert target.rows("a") == [(1,), (2,), (3,)]

    def test_lost_answer_to_prepare_leaves_nothing(self, target: PreparingTarget) -> None:
        with LossyProxy(target.server.port) as proxy:
            sink = target.sink(url=target.url.replace(f":{target.server.port}/", f":{proxy.port}/"))
            target.sql("CREATE TABLE a (n bigint)")
            writer = target.writer(sink, 1, "attempt")
            writer.write(numbers(1))
            proxy.lose_answer_to(target.prepare_sent)
            with pytest.raises(TransientError, match="could not prepare"):
                writer.prepare_commit()
            assert proxy.wait_for_loss()
            assert len(target.prepared()) == 1, "the transaction is prepared although the writer got an error"
            with suppress(TransientError):  # the server may still count the writer as connected
                writer.abort()
        target.abort(target.sink(), "attempt")
        assert target.prepared() == []
        assert target.rows("a") == []

    def test_missing_transaction_holds_back_all_requests_of_its_table(self, target: PreparingTarget) -> None:
        sink = target.sink(table="shared")
        first, gone, last = (target.of_units(sink, urn, 1, numbers(1), numbers(2)) for urn in ("a", "b", "c"))
        target.end(target.name_of(gone, 1), commit=False)
        one, refusal, other = target.commit_atomically(sink, first, gone, last)
        assert one == other == HeldBack("b")
        refused(refusal, "neither prepared nor committed")
        assert target.rows("shared") == []
        assert len(target.prepared()) == 5
        assert target.commit_atomically(sink, first, last) == [Committed()] * 2
        assert len(target.rows("shared")) == 4
        target.withdraw(sink, gone)
        assert target.prepared() == []

    # -- another target, or another store

    @pytest.mark.parametrize("harm", ["older target", "older store"])
    def test_older_target_or_store_is_rejected_before_anything_is_committed(
        self, target: PreparingTarget, harm: str
    ) -> None:
        sink = target.sink()
        for epoch, bases in ((1, (0,)), (2, (1,))):
            assert target.commit(sink, target.prepare(sink, "a", epoch, bases=bases)) == [Committed()]
        if harm == "older target":
            target.sql("UPDATE distcommit_ledger SET epoch = 1, base = 0")
            request = target.of_units(sink, "a", 3, numbers(7), numbers(8), bases=(2,))
        else:  # the store has lost its newest epoch and repeats its number
            request = target.of_units(sink, "a", 2, numbers(7), numbers(8), bases=(1,))
        refused(target.commit(sink, request)[0], "not the target that the store knows")
        assert len(target.prepared()) == 2
        assert len(target.rows("a")) == 6
        target.withdraw(sink, request) if harm == "older target" else target.abort(sink, *request.attempts, epoch=2)
        assert target.prepared() == []

    def test_recreated_table_is_rejected_before_the_commit(self, target: PreparingTarget) -> None:
        sink = target.sink()
        assert target.commit(sink, target.prepare(sink, "a", 1)) == [Committed()]
        target.sql("DROP TABLE a", "CREATE TABLE a (n bigint)")
        with pytest.raises(ConfigurationError, match="was dropped and recreated"):
            target.prepare(sink, "a", 2)
        assert target.prepared() == []
        target.sql(f"UPDATE distcommit_ledger SET {target.forgotten} = NULL")
        assert target.commit(sink, target.prepare(sink, "a", 3)) == [Committed()]

    # -- zombies, and what lost

    def test_committer_of_an_older_run_changes_nothing(self, target: PreparingTarget) -> None:
        sink = target.sink()
        old = target.prepare(sink, "a", 1, bases=(0,))
        new = target.prepare(sink, "a", 2, numbers(9), bases=(0,))
        assert target.commit(sink, new) == [Committed()]
        refused(target.commit(sink, old)[0])
        assert target.rows("a") == [(9,)]
        target.abort(sink, *old.attempts)
        assert target.prepared() == []

    def test_writer_of_an_older_run_prepares_nothing_more(self, target: PreparingTarget) -> None:
        sink = target.sink()
        late = target.writer(sink, 1, "late")
        late.write(numbers(1))
        target.writer(sink, 2, "newer")
        with pytest.raises(FencedError, match="a newer run"):
            late.prepare_commit()
        again = target.opened(sink)
        with pytest.raises(FencedError, match="a newer run"):
            again.begin(1)
        again.close()
        assert target.prepared() == []
        other = target.writer(sink, 1, "of another store", store="other")
        other.write(numbers(1))
        assert other.prepare_commit().infos
        target.abort(sink, "of another store")

    def test_aborted_attempt_is_never_prepared(self, target: PreparingTarget) -> None:
        sink = target.sink()
        late, given_up = target.writer(sink, 1, "late"), target.writer(sink, 1, "given up")
        for writer in (late, given_up):
            writer.write(numbers(1))
        for _ in range(2):
            target.abort(sink, "given up", "that nobody knows")
        again = target.opened(sink)
        again.begin(1)  # as another process of the same run
        again.close()
        with pytest.raises(FencedError, match="was aborted"):
            given_up.prepare_commit()
        assert late.prepare_commit().infos, "other attempts are unaffected"
        target.abort(sink, "late")
        assert target.prepared() == []

    def test_aborted_attempt_is_not_prepared_after_a_newer_run_has_cleaned_up(
        self, target: PreparingTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The writer is paused right before it writes its proof or checks for a newer run, whichever comes first."""
        sink = target.sink()
        others: list[Callable[[], object]] = [
            lambda: target.abort(sink, "late"),
            lambda: target.writer(sink, 2, "newer"),
        ]
        late = target.writer(sink, 1, "late")
        late.write(numbers(1))
        opened = target.opened(sink)
        kind = type(opened)
        opened.close()
        proves, is_own = kind.prove, threading.current_thread()

        def prove(committer: TwoPhaseCommitter, *asked: Any) -> bool:
            assert threading.current_thread() is is_own
            while others:
                others.pop(0)()
            return bool(proves(committer, *asked))

        monkeypatch.setattr(kind, "prove", prove)
        with pytest.raises(FencedError, match="a newer run"):
            late.prepare_commit()
        assert target.prepared() == []
        assert target.sql(_PROOFS) == [("newest", 2)]

    def test_writer_of_a_failed_attempt_rolls_back_its_prepared_transaction(self, target: PreparingTarget) -> None:
        """Another branch of the attempt may fail afterwards, and other attempts would wait for its locks."""
        sink = target.sink()
        writer = target.writer(sink, 1, "failed")
        writer.write(numbers(1))
        writer.prepare_commit()
        assert len(target.prepared()) == 1
        writer.abort()
        assert target.prepared() == []

    def test_transaction_being_prepared_can_not_be_aborted(
        self, target: PreparingTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The abort waits and raises, so that its record stays and the next run cleans up."""
        sink, errors = target.sink(), list[BaseException]()
        writer = target.writer(sink, 1, "slow")
        writer.write(numbers(1))
        looks, is_own = TwoPhaseCommitter._require_newest, threading.current_thread()

        def look(committer: TwoPhaseCommitter, epoch: int) -> None:
            if threading.current_thread() is is_own:
                with pytest.raises(Exception, match=r"lock|Lock") as caught:
                    target.abort(sink, "slow")
                errors.append(caught.value)
            looks(committer, epoch)

        monkeypatch.setattr(TwoPhaseCommitter, "_require_newest", look)
        assert writer.prepare_commit().infos
        assert len(errors) == 1
        assert len(target.prepared()) == 1
        target.abort(sink, "slow")
        assert target.prepared() == []

    def test_only_aborted_attempts_are_rolled_back(self, target: PreparingTarget) -> None:
        sink = target.sink()
        lost, waiting = (target.of_units(sink, urn, 1, numbers(1), numbers(2)) for urn in ("a", "b"))
        other = target.writer(sink, 1, "of another store", store="other")
        other.write(numbers(1))
        other.prepare_commit()
        target.abort(sink, *lost.attempts)
        assert len(target.prepared()) == 3
        for urn, branch in (("a", "main"), ("b", "another"), ("c", "main")):
            target.withdraw(sink, CommitRequest(urn, 9, (), branch))
        assert len(target.prepared()) == 3
        assert target.commit(sink, waiting) == [Committed()]
        assert len(target.prepared()) == 1
        target.abort(sink, "of another store")

    def test_failed_rollback_does_not_prevent_other_rollbacks(
        self, target: PreparingTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Models a transaction that another role has prepared."""
        sink = target.sink()
        lost = [target.prepare(sink, urn, 1) for urn in ("a", "b", "c")]
        attempts, held = [request.attempts[0] for request in lost], target.name_of(lost[1])
        opened = target.opened(sink)
        kind = type(opened)
        opened.close()
        ends = kind.end_prepared

        def end_prepared(committer: TwoPhaseCommitter, name: Name, *, commit: bool) -> bool:
            if name.attempt == attempts[1]:
                raise PermissionError("permission denied to finish prepared transaction")
            return bool(ends(committer, name, commit=commit))

        with monkeypatch.context() as patched:
            patched.setattr(kind, "end_prepared", end_prepared)
            with pytest.raises(TransientError, match=f"names=[^,]*{attempts[1]}]"):
                target.abort(sink, *attempts)
        assert target.prepared() == [held]
        assert target.sql(_PROOFS) == [("barred", 1), ("barred", 1), ("newest", 1)]
        target.abort(sink, *attempts)
        assert target.prepared() == []

    def test_writers_killed_at_any_line_leave_nothing_after_they_are_aborted(self, target: PreparingTarget) -> None:
        sink = target.sink()
        target.sql("CREATE TABLE a (n bigint)")
        kinds = set[bool]()
        with fork_server(["tests.unit.sinks.databases.two_phase_cases", *target.preloaded]) as processes:
            for module in target.modules:
                for line in itertools.count(1, target.apart):
                    attempt = uuid.uuid4().hex
                    died = processes.killed_at(line, [module], prepare_one, sink, target.folder, attempt)
                    kinds.add(bool(target.prepared()))
                    target.abort(sink, attempt)
                    assert target.prepared() == []
                    if not died:
                        assert line > 1, f"{module} was never reached"
                        break
        assert kinds == {True, False}, "some attempts were prepared when they were killed"
        assert target.rows("a") == []
        assert {what for what, _ in target.sql(_PROOFS)} == {"barred", "newest"}

    # -- taken back

    def test_rolled_back_request_has_no_prepared_transactions(self, target: PreparingTarget) -> None:
        sink = target.sink()
        request = target.of_units(sink, "a", 1, numbers(1), numbers(2))
        for _ in range(2):
            target.withdraw(sink, request)
            assert target.prepared() == []
        refused(target.commit(sink, request)[0], "was taken back")
        assert target.rows("a") == []

    def test_rebuild_without_attempts_removes_all_transactions_up_to_its_epoch(self, target: PreparingTarget) -> None:
        sink = target.sink()
        for epoch in (1, 2, 5):
            target.prepare(sink, "a", epoch, numbers(epoch))
        other = target.prepare(sink, "b", 5)
        target.withdraw(sink, CommitRequest("a", 4, ()))
        assert [name.rpartition("-")[0][-1] for name in target.prepared()] == ["5", "5"], "only epoch 5 is left"
        assert target.commit(sink, other) == [Committed()]
        target.withdraw(sink, CommitRequest("a", 5, ()))
        assert target.prepared() == []

    @pytest.mark.parametrize("unit", [0, 1])
    def test_partly_visible_commit_is_not_rolled_back_without_tags(self, target: PreparingTarget, unit: int) -> None:
        sink = target.sink()
        request = target.of_units(sink, "a", 1, numbers(1), numbers(2))
        target.end(target.name_of(request, unit), commit=True)
        with pytest.raises(ConflictError, match="can't be taken back"):
            target.withdraw(sink, request)
        assert len(target.prepared()) == 1
        assert target.commit(sink, request) == [Committed()]
        with pytest.raises(ConflictError, match="can't be taken back"):
            target.withdraw(sink, request)
        assert target.rows("a") == [(1,), (2,)]

    def test_late_committer_finds_the_first_transaction_missing_and_commits_none(
        self, target: PreparingTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The committer has listed the transactions and is paused before it commits; meanwhile the request is rolled
        back elsewhere."""
        sink = target.sink()
        request = target.of_units(sink, "a", 1, numbers(1), numbers(2))
        zombie = target.opened(sink)
        looks, first = zombie.in_doubt, [target.name_of(request)]

        def look() -> frozenset[Name]:
            prepared_names = looks()
            while first:  # the progress of the rollback so far
                target.end(first.pop(), commit=False)
            return prepared_names

        monkeypatch.setattr(zombie, "in_doubt", look)
        refused(zombie.commit([request])[0], "neither prepared nor committed", request.attempts[0])
        zombie.close()
        assert target.rows("a") == []
        target.withdraw(sink, request)
        assert target.prepared() == []

    def test_request_committed_during_its_rollback_is_not_half_rolled_back(
        self, target: PreparingTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = target.sink()
        request = target.of_units(sink, "a", 1, numbers(1), numbers(2))
        committer, first = target.opened(sink), [target.name_of(request)]
        ends = committer.end_prepared

        def end_prepared(name: Name, *, commit: bool) -> bool:
            while first:  # the progress of a zombie so far
                target.end(first.pop(), commit=True)
            return ends(name, commit=commit)

        monkeypatch.setattr(committer, "end_prepared", end_prepared)
        with pytest.raises(ConflictError, match="can't be taken back"):
            committer.withdraw([request])
        committer.close()
        assert len(target.prepared()) == 1
        assert target.commit(sink, request) == [Committed()], "the failed rollback changed nothing"
        assert target.rows("a") == [(1,), (2,)]

    def test_request_committed_by_another_process_during_the_lookup_is_not_reported_lost(
        self, target: PreparingTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink = target.sink()
        request = target.of_units(sink, "a", 1, numbers(1), numbers(2))
        committer, first = target.opened(sink), [target.name_of(request)]
        asks = committer.proven

        def ask(proofs: Collection[str]) -> set[str]:
            proven = asks(proofs)
            while first:
                target.end(first.pop(), commit=True)
            return proven

        monkeypatch.setattr(committer, "proven", ask)
        assert committer.commit([request]) == [Committed()]
        committer.close()
        assert target.rows("a") == [(1,), (2,)]

    # -- beside each other

    def test_work_units_of_a_new_dataset_do_not_wait_for_each_other(self, target: PreparingTarget) -> None:
        sink, failed = target.sink(), list[BaseException]()
        requests: list[CommitRequest] = []

        def prepare(unit: int) -> None:
            try:
                requests.append(target.prepare(sink, "a", 1, numbers(unit)))
            except BaseException as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=prepare, args=(unit,)) for unit in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        infos, attempts = (
            tuple(value for part in requests for value in getattr(part, of)) for of in ("infos", "attempts")
        )
        assert target.commit(sink, CommitRequest("a", 1, infos, attempts=attempts)) == [Committed()]
        assert target.rows("a") == [(0,), (1,), (2,), (3,)]

    def test_concurrent_committers_succeed_in_any_order_of_datasets(self, target: PreparingTarget) -> None:
        sink = target.sink(table="shared")
        requests = [target.of_units(sink, f"d{number}", 1, numbers(0), numbers(1)) for number in range(8)]
        answers: list[list[CommitOutcome]] = []
        both = [
            threading.Thread(target=lambda ordered=ordered: answers.append(target.commit(sink, *ordered)))
            for ordered in (requests, requests[::-1])
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert sum(outcome == Committed() for answer in answers for outcome in answer) == len(requests)
        assert len(target.rows("shared")) == 2 * len(requests)
        assert target.prepared() == []

    # -- bad input

    def test_rows_that_the_table_rejects_fail_the_attempt_and_leave_nothing(self, target: PreparingTarget) -> None:
        target.sql("CREATE TABLE a (n bigint NOT NULL, UNIQUE (n))", "CREATE TABLE b (m bigint)")
        sink = target.sink()
        bad = (
            ("a", numbers(7, 7), "[Dd]uplicate"),
            ("b", numbers(1), "has no column 'n'"),
            ("a", numbers(None), "null"),
        )
        for urn, rows, message in bad:
            with pytest.raises(ConfigurationError, match=message):
                target.prepare(sink, urn, 1, rows)
        assert target.prepared() == []
        assert target.rows("a") == []

    def test_settings_that_would_wait_for_locks_are_rejected(self, target: PreparingTarget) -> None:
        for settings in ({"mode": "upsert", "keys": ["n"]}, {"mode": "replace"}, {"evolve": "add_columns"}):
            with pytest.raises(ValueError, match=r"must (not be true with mode|be none with two_phase)"):
                target.sink(**settings)

    def test_attempt_without_a_store_is_rejected(self, target: PreparingTarget) -> None:
        with pytest.raises(ConfigurationError, match="has no store_id"):
            target.writer(target.sink(), 1, "attempt", store="")

    def test_two_phase_and_plain_sinks_do_not_share_sealed_commits(self, target: PreparingTarget) -> None:
        assert target.sink().name != target.plain().name
        assert target.sink().prepares_at_target
        assert not target.plain().prepares_at_target
        assert not target.sink().abilities.atomic
        assert target.plain().abilities.atomic


def prepare_one(sink: TableSink, folder: Path, attempt: str) -> None:
    """Run an attempt up to its prepare; the attempt is killed on the way."""
    (folder / attempt).mkdir()
    area = StagingArea(LocalFileSystem(), str(folder / attempt), attempt, str(folder / "output"))
    identity = AttemptIdentity("run-1", 1, "a", "unit", attempt, store_id="store")
    writer = sink.open_writer(identity, area, Origin())
    writer.write(numbers(1, 2))
    writer.prepare_commit()


SHARED: tuple[str, ...] = tuple(
    str(Path(prepared_transactions.__file__).with_name(name))
    for name in ("prepared_transactions.py", "two_phase_proofs.py", "prepared_row_writer.py")
)
"""Modules that writers of every database use."""
