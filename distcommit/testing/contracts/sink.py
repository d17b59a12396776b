"""Contract of sinks, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import ast
import itertools
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.interfaces.committer import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    FailedForGood,
    HeldBack,
    RetryLater,
)
from distcommit.core.interfaces.sink import BY_DATASET
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.testing.contracts.killed_processes import SHARED, ForkServer, commit_all, fork_server
from distcommit.testing.contracts.sink_parts.changed_commit_infos import ChangedInfos
from distcommit.testing.contracts.sink_parts.ledger_mismatch import LedgerMismatch
from distcommit.testing.contracts.sink_parts.roll_backs import RollBacks
from distcommit.testing.contracts.sink_parts.sink_under_test import batch_of

_MANY = 8


_SEEN = [(urn, offset) for urn in ("a", "b") for offset in (0, 1, 2)]
"""The records of the two requests whose committers are killed."""
_KILLS_BESIDE = 8
_NAMES = ["orders", "orders/0", "orders.eu", "a", "ä b", "x" * 1000]


class SinkContract(ChangedInfos, LedgerMismatch, RollBacks):
    """Contract of sinks: records are not visible before their commit, and exactly once after it. Repeated and
    concurrent commits of a request change nothing.

    class TestMySink(SinkContract):
        def make_sink(self, folder):                   # an empty folder; the same folder gives the same target
            return MySink(f"{folder}/target")

        def observe(self, folder):                     # (dataset, offset) of each record that readers of the target see
            return [...]

    Records have the columns `partition`, `offset` and `value`. Committers are killed, which needs a system with `fork`.
    """

    # -- commit groups

    def test_commit_group_is_the_same_in_every_process(self, tmp_path: Path) -> None:
        sink = self.sink(tmp_path)
        here = [sink.commit_group(urn) for urn in _NAMES]
        if sink.grouped_by == BY_DATASET:
            assert here == _NAMES, "a sink with commit groups must describe them in `grouped_by`"
            return
        assert sink.grouped_by
        assert isinstance(sink.grouped_by, str)
        assert here == [CommitGroups(sink).group_of(urn) for urn in _NAMES]
        assert here[::-1] == [self.sink(tmp_path).commit_group(urn) for urn in _NAMES[::-1]], "in any order"
        assert here == _groups_elsewhere(sink), "in a process with another hash seed"

    def test_atomic_commit_group_is_committed_completely_or_not_at_all(self, tmp_path: Path) -> None:
        """Applies to sinks with commit groups."""
        sink = self.sink(tmp_path)
        urns = [urn for urn in ("a", "b", "c") if sink.commit_group(urn) == sink.commit_group("a")]
        if len(urns) == 1:
            self.report_not_applicable("it has no commit groups")
            return
        requests = {urn: self.prepare(tmp_path, urn, 4, [0], [1]) for urn in urns}
        if self.lose(tmp_path, requests["a"]):
            lost, *held_back = self.commit_atomically(tmp_path, *requests.values())
            assert isinstance(lost, FailedForGood)
            assert held_back == [HeldBack("a")] * len(held_back)
            assert self.visible_records(tmp_path) == []
            del requests["a"]
        assert self.commit_atomically(tmp_path, *requests.values()) == [Committed()] * len(requests)
        assert self.commit_atomically(tmp_path, *requests.values()) == [AlreadyCommitted()] * len(requests)
        assert self.visible_records(tmp_path) == [(urn, offset) for urn in requests for offset in (0, 1)]

    # -- before commit

    def test_nothing_is_visible_before_commit(self, tmp_path: Path) -> None:
        writer = self.writer(tmp_path, "a", 1)
        for offset in range(3):
            writer.write(batch_of(offset))
            assert self.visible_records(tmp_path) == []
        request = CommitRequest("a", 1, tuple(writer.prepare_commit().infos))
        assert self.visible_records(tmp_path) == []
        assert self.commit(tmp_path, request) == [Committed()]
        assert self.visible_records(tmp_path) == [("a", 0), ("a", 1), ("a", 2)]

    def test_prepared_request_is_the_same_after_storing(self, tmp_path: Path) -> None:
        writer = self.writer(tmp_path, "a", 1)
        writer.write(batch_of(0))
        request = CommitRequest("a", 1, tuple(writer.prepare_commit().infos))
        assert self.stored(tmp_path, request) == request
        assert self.sink(tmp_path).name == self.make_sink(tmp_path).name

    def test_failed_dead_and_losing_attempts_leave_nothing_visible(self, tmp_path: Path) -> None:
        failed, dead, loser = (self.writer(tmp_path, "a", 1) for _ in range(3))
        for writer in (failed, dead, loser):
            writer.write(batch_of(0))
        failed.abort()
        loser.prepare_commit()
        winner = self.prepare(tmp_path, "a", 1, [0])
        assert self.visible_records(tmp_path) == []
        assert self.commit(tmp_path, winner) == [Committed()]
        assert self.visible_records(tmp_path) == [("a", 0)]
        dead.abort()
        assert self.visible_records(tmp_path) == [("a", 0)]

    def test_empty_attempt_can_be_aborted_or_committed(self, tmp_path: Path) -> None:
        self.writer(tmp_path, "a", 1).abort()
        request = self.prepare(tmp_path, "a", 1, [])
        if request.infos:
            assert self.commit(tmp_path, request) == [Committed()]
        assert self.visible_records(tmp_path) == []

    def test_aborted_attempts_leave_nothing_and_others_are_kept(self, tmp_path: Path) -> None:
        """Applies to sinks with `prepares_at_target`, for attempts that were not chosen and attempts that died."""
        if not self.sink(tmp_path).prepares_at_target:
            self.report_not_applicable("its writers leave nothing at the target")
            return
        aborted = [self.lost(tmp_path, "a", 1, died=died) for died in (False, True)]
        chosen, waiting = self.prepare(tmp_path, "a", 1, [0]), self.prepare(tmp_path, "b", 1, [1])
        assert self.commit(tmp_path, chosen) == [Committed()]
        assert self.in_doubt(tmp_path) >= len(aborted)
        for some in (aborted[:1], aborted, aborted):  # repeated after a partial call, and with nothing left
            self.abort(tmp_path, *some)
        assert self.commit(tmp_path, waiting) == [Committed()]
        assert self.in_doubt(tmp_path) == 0
        assert self.visible_records(tmp_path) == [("a", 0), ("b", 1)]
        committed = self.lost(tmp_path, "a", 2, died=False)  # as by a store restored from a copy
        request = CommitRequest("a", 2, committed.infos, attempts=(committed.attempt,))
        assert self.commit(tmp_path, self.stored(tmp_path, request)) == [Committed()]
        self.abort(tmp_path, committed)
        self.abort(tmp_path, replace(committed, infos=()))
        assert self.visible_records(tmp_path) == [("a", 0), ("a", 0), ("b", 1)]

    # -- commit, again and again

    def test_repeated_commit_changes_nothing(self, tmp_path: Path) -> None:
        request = self.prepare(tmp_path, "a", 1, [0, 1], [2])
        assert self.commit(tmp_path, request) == [Committed()]
        before = self.visible_records(tmp_path)
        assert before == [("a", 0), ("a", 1), ("a", 2)]
        assert self.commit(tmp_path, request) == [AlreadyCommitted()]
        assert self.visible_records(tmp_path) == before

    def test_repeated_commit_without_staged_files_changes_nothing(self, tmp_path: Path) -> None:
        request = self.prepare(tmp_path, "a", 1, [0, 1])
        assert self.commit(tmp_path, request) == [Committed()]
        shutil.rmtree(tmp_path / "staging")
        assert self.commit(tmp_path, request) == [AlreadyCommitted()]
        assert self.visible_records(tmp_path) == [("a", 0), ("a", 1)]

    def test_repeated_commit_after_later_epochs_changes_nothing(self, tmp_path: Path) -> None:
        requests = [self.prepare(tmp_path, "a", epoch, [epoch]) for epoch in (2, 3, 7)]
        for request in requests:
            assert self.commit(tmp_path, request) == [Committed()]
        for request in requests:  # a request that is long done may get any outcome
            (outcome,) = self.commit(tmp_path, request)
            assert isinstance(outcome, AlreadyCommitted | FailedForGood)
        assert self.visible_records(tmp_path) == [("a", 2), ("a", 3), ("a", 7)]

    def test_each_request_of_a_batch_has_its_own_outcome(self, tmp_path: Path) -> None:
        a, b, c = (self.prepare(tmp_path, urn, 4, [0], [1]) for urn in ("a", "b/ü", "c"))
        assert self.commit(tmp_path, b) == [Committed()]
        assert self.commit(tmp_path, a, b, c) == [Committed(), AlreadyCommitted(), Committed()]
        assert self.commit(tmp_path) == []
        assert self.visible_records(tmp_path) == [(urn, offset) for urn in ("a", "b/ü", "c") for offset in (0, 1)]

    def test_commit_killed_at_any_line_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Commit two datasets of two infos each. The committer is killed before each line of its module that it
        executes, and before some lines of neighboring modules and of modules that sinks share."""
        self.kill_before_lines(tmp_path)

    def kill_before_lines(self, tmp_path: Path, apart: int = 1, module: str = "") -> None:
        """Kill the committer before every `apart`th line of its module, or of `module` alone if it is given."""
        with fork_server(self.preloaded) as processes:
            for line in itertools.count(1, apart):
                folder = tmp_path / str(line)
                folder.mkdir(parents=True)
                locations = [module] if module else [self.committers_file(folder), *self.committer_bases]
                if not self._is_committed_after_a_kill(processes, line, folder, locations):
                    assert line > 1, "no line of the committer's module was executed"
                    break
                shutil.rmtree(folder)
            if not module:
                self._kill_beside(processes, tmp_path / "beside", _KILLS_BESIDE)

    def _kill_beside(self, processes: ForkServer, folder: Path, kills: int) -> None:
        """Kill the committer before some lines of its folder and the shared folders, the same lines in each run of a
        test class."""
        complete = folder / "whole"
        complete.mkdir(parents=True)
        locations = [*self.committers_folders(complete), *SHARED]
        requests = tuple(self._to_commit(complete))
        lines = processes.lines_of(locations, commit_all, self.sink(complete), self.context(complete), requests)
        assert self.visible_records(complete) == _SEEN
        chosen = random.Random(type(self).__name__).sample(range(1, lines + 1), min(kills, lines))
        for line in sorted(chosen):
            location = folder / str(line)
            location.mkdir()
            self._is_committed_after_a_kill(processes, line, location, locations)
            shutil.rmtree(location)

    def _to_commit(self, folder: Path) -> list[CommitRequest]:
        return [self.prepare(folder, urn, 1, [0], [1, 2]) for urn in ("a", "b")]

    def _is_committed_after_a_kill(
        self, processes: ForkServer, line: int, folder: Path, modules: Collection[str]
    ) -> bool:
        """Return whether the committer reached that line."""
        requests = self._to_commit(folder)
        died = processes.killed_at(line, modules, commit_all, self.sink(folder), self.context(folder), tuple(requests))
        assert len(set(self.visible_records(folder))) == len(self.visible_records(folder))
        again = self.commit(folder, *requests)
        assert all(isinstance(outcome, Committed | AlreadyCommitted) for outcome in again), (line, again)
        assert self.visible_records(folder) == _SEEN, line
        return died

    def test_ledger_records_the_committed_epoch_and_rows_of_each_dataset(self, tmp_path: Path) -> None:
        """Applies to sinks whose ledger can be audited."""
        if not self.sink(tmp_path).abilities.audit:
            self.report_not_applicable("it cannot be audited")
            return
        assert self.ledger(tmp_path) == {}
        urns = [f"{urn}/{number}" for urn in ("a", "b/ü") for number in range(4)]
        self.commit(tmp_path, *(self.prepare(tmp_path, urn, 2, [0], [1, 2]) for urn in urns))
        self.prepare(tmp_path, "c", 2, [0])
        assert self.ledger(tmp_path) == dict.fromkeys(urns, (2, 3))
        self.commit(tmp_path, self.prepare(tmp_path, urns[0], 5, [3]))
        assert self.ledger(tmp_path) == {**dict.fromkeys(urns, (2, 3)), urns[0]: (5, 4)}

    def test_concurrent_commits_commit_once(self, tmp_path: Path) -> None:
        requests = [self.prepare(tmp_path, urn, 1, [0], [1]) for urn in ("a", "b", "c")]
        with ThreadPoolExecutor(_MANY) as pool:
            answers = list(pool.map(lambda _: self.commit(tmp_path, *requests), range(_MANY)))
        for outcomes in zip(*answers, strict=True):
            assert all(isinstance(outcome, Committed | AlreadyCommitted | RetryLater) for outcome in outcomes), outcomes
            assert outcomes.count(Committed()) <= 1
        self.commit(tmp_path, *requests)
        assert self.commit(tmp_path, *requests) == [AlreadyCommitted()] * 3
        assert self.visible_records(tmp_path) == [(urn, offset) for urn in ("a", "b", "c") for offset in (0, 1)]

    def test_lost_output_never_counts_as_committed(self, tmp_path: Path) -> None:
        request, other = self.prepare(tmp_path, "a", 1, [0], [1]), self.prepare(tmp_path, "b", 1, [0])
        if not self.lose(tmp_path, request):
            self.report_not_applicable("prepared output cannot be lost")
            return
        for _ in range(2):
            (outcome,) = self.commit(tmp_path, request)
            assert isinstance(outcome, FailedForGood)
            assert outcome.reason
            assert self.visible_records(tmp_path) == []
        assert isinstance(self.commit(tmp_path, request, other)[1], Committed), "other requests are unharmed"
        assert self.visible_records(tmp_path) == [("b", 0)]

    # -- probes

    def test_probe_changes_nothing(self, tmp_path: Path) -> None:
        self.probe(tmp_path)
        first, second = self.prepare(tmp_path, "a", 1, [0]), self.prepare(tmp_path, "a", 2, [1])
        self.probe(tmp_path)
        assert self.visible_records(tmp_path) == []
        assert self.commit(tmp_path, first) == [Committed()]
        self.probe(tmp_path)
        assert self.visible_records(tmp_path) == [("a", 0)]
        assert self.commit(tmp_path, first, second) == [AlreadyCommitted(), Committed()]
        assert self.visible_records(tmp_path) == [("a", 0), ("a", 1)]

    def test_probe_raises_during_an_outage(self, tmp_path: Path) -> None:
        self.commit(tmp_path, self.prepare(tmp_path, "a", 1, [0]))
        if not self.cut_off(tmp_path):
            self.report_not_applicable("its target cannot be made unusable")
            return
        for _ in range(2):
            try:
                self.probe(tmp_path)
            except Exception:  # noqa: BLE001 - any error counts
                continue
            raise AssertionError("the target is unusable, and its probe does not raise")


def _groups_elsewhere(sink: CommitterSink) -> list[str]:
    """Return the commit groups of the datasets `_NAMES`, as a new process computes them."""
    program = "import pickle, sys; sink, names = pickle.load(sys.stdin.buffer); print([*map(sink.commit_group, names)])"
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((sink, _NAMES)),
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    groups: list[str] = ast.literal_eval(done.stdout.decode())
    return groups
