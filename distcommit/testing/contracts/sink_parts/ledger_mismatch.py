"""Contract of sinks with a ledger if store and target disagree; a part of `contracts.sink`."""

from __future__ import annotations

import uuid
from pathlib import Path

from distcommit.core.errors import ConflictError
from distcommit.core.interfaces.committer import AlreadyCommitted, CommitRequest, Committed, FailedForGood
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.sink import Filtered, Origin
from distcommit.core.work_units import MAIN_BRANCH, SkippedRange
from distcommit.sinks.files.offset_sets import offsets_of, parsed
from distcommit.testing.contracts.sink_parts.sink_under_test import SinkUnderTest, batch_of

_ORIGIN = Origin(Provenance("partition", "offset"), incarnation="topic-1")


class LedgerMismatch(SinkUnderTest):
    """Contract of requests whose `bases`, the epochs that the store expects at the target, differ from the ledger."""

    def has_ledger(self, folder: Path) -> bool:
        """Return whether the sink has a ledger for the audit. If not, the test does not apply."""
        if self.sink(folder).abilities.audit:
            return True
        self.report_not_applicable("it cannot be audited")
        return False

    def test_target_older_than_the_store_is_rejected(self, tmp_path: Path) -> None:
        """The target was restored from a copy or emptied, and lacks commits that the store knows."""
        if not self.has_ledger(tmp_path):
            return
        assert self.commit(tmp_path, self.prepare(tmp_path, "a", 1, [0], bases=(0,))) == [Committed()]
        older, emptied = (self.prepare(tmp_path, urn, 4, [1], bases=(3,)) for urn in ("a", "b"))
        other = self.prepare(tmp_path, "c", 4, [2], bases=(0,))
        for _ in range(2):
            one, another = self.commit(tmp_path, older, emptied)
            assert isinstance(one, FailedForGood)
            assert isinstance(another, FailedForGood)
        assert self.commit(tmp_path, other) == [Committed()], "other requests are unharmed"
        assert self.visible_records(tmp_path) == [("a", 0), ("c", 2)], "nothing was written"
        assert self.ledger(tmp_path) == {"a": (1, 1), "c": (4, 1)}

    def test_store_older_than_the_target_is_rejected(self, tmp_path: Path) -> None:
        """The store was restored from a copy. The target has commits that the store does not know, perhaps with an
        epoch that the store uses again."""
        if not self.has_ledger(tmp_path):
            return
        for epoch, base in ((1, 0), (3, 1)):
            request = self.prepare(tmp_path, "a", epoch, [epoch], bases=(base,))
            assert self.commit(tmp_path, request) == [Committed()]
        for epoch in (3, 4):
            (outcome,) = self.commit(tmp_path, self.prepare(tmp_path, "a", epoch, [9], bases=(1,)))
            assert isinstance(outcome, FailedForGood), epoch
        assert self.visible_records(tmp_path) == [("a", 1), ("a", 3)], "nothing was written"
        accepted = self.prepare(tmp_path, "a", 5, [5], bases=(2, 3))  # either base is valid
        assert self.commit(tmp_path, accepted) == [Committed()]
        assert self.ledger(tmp_path) == {"a": (5, 3)}

    def test_commit_with_a_lost_outcome_is_found_in_the_ledger(self, tmp_path: Path) -> None:
        """The store does not know of the commit, and repeats the request with the same base, alone or with others."""
        if not self.has_ledger(tmp_path):
            return
        for epoch, base in ((1, 0), (2, 1)):
            request = self.prepare(tmp_path, "a", epoch, [epoch], bases=(base,))
            other = self.prepare(tmp_path, "b", epoch, [epoch], bases=(base,))
            self.commit(tmp_path, request)  # the outcome is lost
            assert self.commit(tmp_path, request, other) == [AlreadyCommitted(), Committed()]
            assert self.commit(tmp_path, request) == [AlreadyCommitted()]
        assert self.visible_records(tmp_path) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]

    def test_zombie_of_an_older_run_changes_nothing(self, tmp_path: Path) -> None:
        """The zombie was paused before the newer run started. Its outcome is ignored."""
        if not self.has_ledger(tmp_path):
            return
        old, unknown = self.prepare(tmp_path, "a", 1, [0], bases=(0,)), self.prepare(tmp_path, "a", 1, [0])
        new = self.prepare(tmp_path, "a", 2, [1], bases=(0,))
        assert self.commit(tmp_path, new) == [Committed()]
        for zombie in (old, unknown):
            (outcome,) = self.commit(tmp_path, zombie)
            assert isinstance(outcome, AlreadyCommitted | FailedForGood)
            assert self.visible_records(tmp_path) == [("a", 1)]
        assert self.commit(tmp_path, new) == [AlreadyCommitted()]
        assert self.ledger(tmp_path) == {"a": (2, 1)}

    def test_ledger_records_covered_and_filtered_positions(self, tmp_path: Path) -> None:
        """The audit and rebuilds read these positions. The ledger must have those of all committed requests, and of no
        others.
        """
        if not self.has_ledger(tmp_path):
            return
        self._check_holes_without_records(tmp_path)
        first = self._request_with_positions(tmp_path, 1, (0, 3), hole=1, filtered=2)
        assert self.commit(tmp_path, first) == [Committed()]
        self._check_covered(tmp_path, {0, 3}, holes={1}, filtered={2})
        second = self._request_with_positions(tmp_path, 2, (4,), hole=5, filtered=6)
        self._check_covered(tmp_path, {0, 3}, holes={1}, filtered={2})
        for outcome in (Committed(), AlreadyCommitted()):
            assert self.commit(tmp_path, second) == [outcome]
            self._check_covered(tmp_path, {0, 3, 4}, holes={1, 5}, filtered={2, 6})
        try:
            self.abandon(tmp_path, second)
        except ConflictError:
            return
        self._check_covered(tmp_path, {0, 3}, holes={1}, filtered={2})

    def _check_holes_without_records(self, folder: Path) -> None:
        """Check that a writer without records returns its holes in `Prepared.holes`, because there is no commit info
        for them.
        """
        hole, writer = SkippedRange("0", 7, 9, "a hole", True, "topic-1"), self.writer(folder, "a", 1, origin=_ORIGIN)
        writer.note_holes([hole])
        prepared = writer.prepare_commit()
        assert not prepared.infos
        assert [*prepared.holes] == [hole]

    def _request_with_positions(
        self, folder: Path, epoch: int, offsets: tuple[int, ...], *, hole: int, filtered: int
    ) -> CommitRequest:
        """Return a request of an attempt whose writer received these positions of partition 0."""
        attempt = uuid.uuid4().hex
        writer = self.writer(folder, "a", epoch, attempt, origin=_ORIGIN)
        for offset in offsets:
            writer.write(batch_of(offset))
        writer.note_holes([SkippedRange("0", hole, hole + 1, "a hole", True, "topic-1")])
        assert writer.note_filtered(Filtered({MAIN_BRANCH: _text(filtered)}, {"a filter": 1})), (
            "no other writer stores it"
        )
        infos = tuple(writer.prepare_commit().infos)
        return self.stored(folder, CommitRequest("a", epoch, infos, bases=(epoch - 1,), attempts=(attempt,)))

    def _check_covered(self, folder: Path, offsets: set[int], *, holes: set[int], filtered: set[int]) -> None:
        (row,) = self.ledger_rows(folder)
        assert isinstance(row, LedgerRow)
        (part,) = row.covered
        assert part.incarnation == "topic-1"
        assert parsed(part.offsets).to_text() == _text(*offsets)
        assert parsed(part.holes).to_text() == _text(*holes)
        assert parsed(part.filtered.get(MAIN_BRANCH, "")).to_text() == _text(*filtered)
        assert (part.rows, part.duplicates) == (len(offsets), 0)


def _text(*offsets: int) -> str:
    return offsets_of([SkippedRange("0", offset, offset + 1, "") for offset in offsets]).to_text()
