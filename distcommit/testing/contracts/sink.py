"""What a sink has to keep, as a pytest class to subclass; see `testing.contracts`."""

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
from distcommit.testing.contracts.killed import SHARED, Nursery, commit_all, nursery
from distcommit.testing.contracts.known_bases import KnownBases
from distcommit.testing.contracts.taken_back import TakenBack
from distcommit.testing.contracts.tried_sink import batch_of

_MANY = 8


_SEEN = [(urn, offset) for urn in ("a", "b") for offset in (0, 1, 2)]
"""What the two requests come to that committers are killed with."""
_KILLS_BESIDE = 8
_NAMES = ["orders", "orders/0", "orders.eu", "a", "ä b", "x" * 1000]


class SinkContract(KnownBases, TakenBack):
    """Nothing is visible before commit, and each request once after it, however often and by whomever it is committed.

    class TestMySink(SinkContract):
        def make_sink(self, place):                    # `place`: an empty folder; the same target for the same place
            return MySink(f"{place}/target")

        def observe(self, place):                      # (dataset, offset) of each record that readers of the target see
            return [...]

    Records have the columns `partition`, `offset` and `value`. Needs a system with `fork`: committers are killed.
    """

    # -- commit groups

    def test_a_dataset_has_the_same_commit_group_in_every_process(self, tmp_path: Path) -> None:
        sink = self.sink(tmp_path)
        here = [sink.commit_group(urn) for urn in _NAMES]
        if sink.grouped_by == BY_DATASET:
            assert here == _NAMES, "a sink that names groups says by what, in `grouped_by`"
            return
        assert sink.grouped_by
        assert isinstance(sink.grouped_by, str)
        assert here == [CommitGroups(sink).group_of(urn) for urn in _NAMES]
        assert here[::-1] == [self.sink(tmp_path).commit_group(urn) for urn in _NAMES[::-1]], "in any order"
        assert here == _groups_elsewhere(sink), "in a process that hashes texts in its own way"

    def test_a_whole_commit_group_is_committed_at_once_or_not_at_all(self, tmp_path: Path) -> None:
        """Of a sink that names commit groups."""
        sink = self.sink(tmp_path)
        urns = [urn for urn in ("a", "b", "c") if sink.commit_group(urn) == sink.commit_group("a")]
        if len(urns) == 1:
            self.passes_over("it names no commit groups")
            return
        requests = {urn: self.prepare(tmp_path, urn, 4, [0], [1]) for urn in urns}
        if self.lose(tmp_path, requests["a"]):
            lost, *held = self.commit_whole(tmp_path, *requests.values())
            assert isinstance(lost, FailedForGood)
            assert held == [HeldBack("a")] * len(held)
            assert self.seen(tmp_path) == []
            del requests["a"]
        assert self.commit_whole(tmp_path, *requests.values()) == [Committed()] * len(requests)
        assert self.commit_whole(tmp_path, *requests.values()) == [AlreadyCommitted()] * len(requests)
        assert self.seen(tmp_path) == [(urn, offset) for urn in requests for offset in (0, 1)]

    # -- before commit

    def test_nothing_is_visible_before_commit(self, tmp_path: Path) -> None:
        writer = self.writer(tmp_path, "a", 1)
        for offset in range(3):
            writer.write(batch_of(offset))
            assert self.seen(tmp_path) == []
        request = CommitRequest("a", 1, tuple(writer.prepare_commit().infos))
        assert self.seen(tmp_path) == []
        assert self.commit(tmp_path, request) == [Committed()]
        assert self.seen(tmp_path) == [("a", 0), ("a", 1), ("a", 2)]

    def test_what_was_prepared_is_the_same_after_storing(self, tmp_path: Path) -> None:
        writer = self.writer(tmp_path, "a", 1)
        writer.write(batch_of(0))
        request = CommitRequest("a", 1, tuple(writer.prepare_commit().infos))
        assert self.stored(tmp_path, request) == request
        assert self.sink(tmp_path).name == self.make_sink(tmp_path).name

    def test_attempts_that_fail_die_or_lose_leave_nothing_visible(self, tmp_path: Path) -> None:
        failed, dead, loser = (self.writer(tmp_path, "a", 1) for _ in range(3))
        for writer in (failed, dead, loser):
            writer.write(batch_of(0))
        failed.abort()
        loser.prepare_commit()
        winner = self.prepare(tmp_path, "a", 1, [0])
        assert self.seen(tmp_path) == []
        assert self.commit(tmp_path, winner) == [Committed()]
        assert self.seen(tmp_path) == [("a", 0)]
        dead.abort()
        assert self.seen(tmp_path) == [("a", 0)]

    def test_an_attempt_that_wrote_nothing_can_be_aborted_or_committed(self, tmp_path: Path) -> None:
        self.writer(tmp_path, "a", 1).abort()
        request = self.prepare(tmp_path, "a", 1, [])
        if request.infos:
            assert self.commit(tmp_path, request) == [Committed()]
        assert self.seen(tmp_path) == []

    def test_what_lost_is_taken_away_and_nothing_of_what_is_to_be_committed(self, tmp_path: Path) -> None:
        """Of a sink with `discards`: of attempts that are not chosen, and of those that died."""
        if not self.sink(tmp_path).discards:
            self.passes_over("its writers leave nothing at the target")
            return
        lost = [self.lost(tmp_path, "a", 1, died=died) for died in (False, True)]
        chosen, waiting = self.prepare(tmp_path, "a", 1, [0]), self.prepare(tmp_path, "b", 1, [1])
        assert self.commit(tmp_path, chosen) == [Committed()]
        assert self.in_doubt(tmp_path) >= len(lost)
        for some in (lost[:1], lost, lost):  # once more after a crash half-way, and with nothing left to take away
            self.discard(tmp_path, *some)
        assert self.commit(tmp_path, waiting) == [Committed()]
        assert self.in_doubt(tmp_path) == 0
        assert self.seen(tmp_path) == [("a", 0), ("b", 1)]
        committed = self.lost(tmp_path, "a", 2, died=False)  # so says a store that was put back from a copy
        request = CommitRequest("a", 2, committed.infos, attempts=(committed.attempt,))
        assert self.commit(tmp_path, self.stored(tmp_path, request)) == [Committed()]
        self.discard(tmp_path, committed)
        self.discard(tmp_path, replace(committed, infos=()))
        assert self.seen(tmp_path) == [("a", 0), ("a", 0), ("b", 1)]

    # -- commit, again and again

    def test_committed_again_it_changes_nothing(self, tmp_path: Path) -> None:
        request = self.prepare(tmp_path, "a", 1, [0, 1], [2])
        assert self.commit(tmp_path, request) == [Committed()]
        before = self.seen(tmp_path)
        assert before == [("a", 0), ("a", 1), ("a", 2)]
        assert self.commit(tmp_path, request) == [AlreadyCommitted()]
        assert self.seen(tmp_path) == before

    def test_committed_again_after_its_staged_files_are_gone_it_changes_nothing(self, tmp_path: Path) -> None:
        request = self.prepare(tmp_path, "a", 1, [0, 1])
        assert self.commit(tmp_path, request) == [Committed()]
        shutil.rmtree(tmp_path / "staging")
        assert self.commit(tmp_path, request) == [AlreadyCommitted()]
        assert self.seen(tmp_path) == [("a", 0), ("a", 1)]

    def test_committed_again_after_later_epochs_it_changes_nothing(self, tmp_path: Path) -> None:
        requests = [self.prepare(tmp_path, "a", epoch, [epoch]) for epoch in (2, 3, 7)]
        for request in requests:
            assert self.commit(tmp_path, request) == [Committed()]
        for request in requests:  # who asks for what is long done may be told anything
            (outcome,) = self.commit(tmp_path, request)
            assert isinstance(outcome, AlreadyCommitted | FailedForGood)
        assert self.seen(tmp_path) == [("a", 2), ("a", 3), ("a", 7)]

    def test_each_request_of_a_batch_has_its_own_outcome(self, tmp_path: Path) -> None:
        a, b, c = (self.prepare(tmp_path, urn, 4, [0], [1]) for urn in ("a", "b/ü", "c"))
        assert self.commit(tmp_path, b) == [Committed()]
        assert self.commit(tmp_path, a, b, c) == [Committed(), AlreadyCommitted(), Committed()]
        assert self.commit(tmp_path) == []
        assert self.seen(tmp_path) == [(urn, offset) for urn in ("a", "b/ü", "c") for offset in (0, 1)]

    def test_killed_at_any_line_it_is_committed_by_the_next(self, tmp_path: Path) -> None:
        """Before each line of the committer's module that a commit of two datasets, of two infos each, comes to; and
        before some of all lines that it comes to in the modules beside it, and in those that sinks share."""
        self.kill_before_lines(tmp_path)

    def kill_before_lines(self, tmp_path: Path, apart: int = 1, module: str = "") -> None:
        """The test before this; `apart`: only before each line of so many; `module`: the file of another module than
        the committer's, and of no more than that."""
        with nursery(self.preloaded) as processes:
            for line in itertools.count(1, apart):
                place = tmp_path / str(line)
                place.mkdir(parents=True)
                places = [module] if module else [self.committers_file(place), *self.committer_bases]
                if not self._is_committed_after_a_kill(processes, line, place, places):
                    assert line > 1, "no line of the committer's module was traced"
                    break
                shutil.rmtree(place)
            if not module:
                self._kill_beside(processes, tmp_path / "beside", _KILLS_BESIDE)

    def _kill_beside(self, processes: Nursery, folder: Path, kills: int) -> None:
        """Kills before so many lines, of all to which a whole commit comes in the committer's folder and in that of
        what sinks share: for each class of tests the same ones in each run."""
        whole = folder / "whole"
        whole.mkdir(parents=True)
        places = [*self.committers_folders(whole), *SHARED]
        requests = tuple(self._to_commit(whole))
        lines = processes.lines_of(places, commit_all, self.sink(whole), self.context(whole), requests)
        assert self.seen(whole) == _SEEN
        chosen = random.Random(type(self).__name__).sample(range(1, lines + 1), min(kills, lines))
        for line in sorted(chosen):
            place = folder / str(line)
            place.mkdir()
            self._is_committed_after_a_kill(processes, line, place, places)
            shutil.rmtree(place)

    def _to_commit(self, place: Path) -> list[CommitRequest]:
        return [self.prepare(place, urn, 1, [0], [1, 2]) for urn in ("a", "b")]

    def _is_committed_after_a_kill(self, processes: Nursery, line: int, place: Path, modules: Collection[str]) -> bool:
        """Whether it came to that line."""
        requests = self._to_commit(place)
        died = processes.killed_at(line, modules, commit_all, self.sink(place), self.context(place), tuple(requests))
        assert len(set(self.seen(place))) == len(self.seen(place))
        again = self.commit(place, *requests)
        assert all(isinstance(outcome, Committed | AlreadyCommitted) for outcome in again), (line, again)
        assert self.seen(place) == _SEEN, line
        return died

    def test_its_ledger_says_which_epoch_of_each_dataset_is_committed_and_how_many_rows(self, tmp_path: Path) -> None:
        """Of a sink that can be audited by its ledger."""
        if not self.sink(tmp_path).abilities.audit:
            self.passes_over("it can't be audited")
            return
        assert self.ledger(tmp_path) == {}
        urns = [f"{urn}/{number}" for urn in ("a", "b/ü") for number in range(4)]
        self.commit(tmp_path, *(self.prepare(tmp_path, urn, 2, [0], [1, 2]) for urn in urns))
        self.prepare(tmp_path, "c", 2, [0])
        assert self.ledger(tmp_path) == dict.fromkeys(urns, (2, 3))
        self.commit(tmp_path, self.prepare(tmp_path, urns[0], 5, [3]))
        assert self.ledger(tmp_path) == {**dict.fromkeys(urns, (2, 3)), urns[0]: (5, 4)}

    def test_committed_by_many_at_once_it_is_done_once(self, tmp_path: Path) -> None:
        requests = [self.prepare(tmp_path, urn, 1, [0], [1]) for urn in ("a", "b", "c")]
        with ThreadPoolExecutor(_MANY) as pool:
            answers = list(pool.map(lambda _: self.commit(tmp_path, *requests), range(_MANY)))
        for outcomes in zip(*answers, strict=True):
            assert all(isinstance(outcome, Committed | AlreadyCommitted | RetryLater) for outcome in outcomes), outcomes
            assert outcomes.count(Committed()) <= 1
        self.commit(tmp_path, *requests)
        assert self.commit(tmp_path, *requests) == [AlreadyCommitted()] * 3
        assert self.seen(tmp_path) == [(urn, offset) for urn in ("a", "b", "c") for offset in (0, 1)]

    def test_what_is_lost_is_never_taken_for_committed(self, tmp_path: Path) -> None:
        request, other = self.prepare(tmp_path, "a", 1, [0], [1]), self.prepare(tmp_path, "b", 1, [0])
        if not self.lose(tmp_path, request):
            self.passes_over("what was prepared can't be lost")
            return
        for _ in range(2):
            (outcome,) = self.commit(tmp_path, request)
            assert isinstance(outcome, FailedForGood)
            assert outcome.reason
            assert self.seen(tmp_path) == []
        assert isinstance(self.commit(tmp_path, request, other)[1], Committed), "others are unharmed"
        assert self.seen(tmp_path) == [("b", 0)]

    # -- whether it works

    def test_asked_whether_it_works_it_changes_nothing(self, tmp_path: Path) -> None:
        self.probe(tmp_path)
        first, second = self.prepare(tmp_path, "a", 1, [0]), self.prepare(tmp_path, "a", 2, [1])
        self.probe(tmp_path)
        assert self.seen(tmp_path) == []
        assert self.commit(tmp_path, first) == [Committed()]
        self.probe(tmp_path)
        assert self.seen(tmp_path) == [("a", 0)]
        assert self.commit(tmp_path, first, second) == [AlreadyCommitted(), Committed()]
        assert self.seen(tmp_path) == [("a", 0), ("a", 1)]

    def test_asked_whether_it_works_in_an_outage_it_raises(self, tmp_path: Path) -> None:
        self.commit(tmp_path, self.prepare(tmp_path, "a", 1, [0]))
        if not self.cut_off(tmp_path):
            self.passes_over("nothing cuts its target off")
            return
        for _ in range(2):
            try:
                self.probe(tmp_path)
            except Exception:  # noqa: BLE001 - whatever it is
                continue
            raise AssertionError("the target does not work, and its probe says nothing")


def _groups_elsewhere(sink: CommitterSink) -> list[str]:
    """The commit groups of the same datasets, as a new process finds them."""
    asked = "import pickle, sys; sink, names = pickle.load(sys.stdin.buffer); print([*map(sink.commit_group, names)])"
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        input=pickle.dumps((sink, _NAMES)),
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: list[str] = ast.literal_eval(done.stdout.decode())
    return found
