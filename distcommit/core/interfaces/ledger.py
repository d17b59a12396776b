"""Ledgers: what a target says of what was committed to it, one row for each store, dataset and branch.

A row changes in one transaction with the data. It says that an epoch was committed (the proof that replay asks for),
and what of the source all committed data stands for (what the audit and `rebuild` ask for); so it does not grow with
runs.
"""

from __future__ import annotations

import msgspec

from distcommit.core.work import MAIN_BRANCH


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """What input records output rows stand for, in one branch: of one incarnation of the source, as one flow made them.

    Attributes:
        incarnation: what the positions count in (a Kafka topic id); empty if the source has none.
        branches: all branches that the flow had, without those of errors; others are not owed these input records.
        offsets: the input records that rows were made of, as text of `OffsetSets`; empty for none.
        holes: positions that were passed and had no record, likewise.
        filtered: input records that nothing was written of, on purpose, by branch, likewise. One of an attempt's
            branches has them for all.
        rows: how many were written.
        twice: how many of `offsets` were there already when more was committed: duplicates.
        makes_several: whether a construct may have made several rows of one input record.
    """

    incarnation: str = ""
    branches: tuple[str, ...] = (MAIN_BRANCH,)
    offsets: str = ""
    holes: str = ""
    filtered: dict[str, str] = {}
    rows: int = 0
    twice: int = 0
    makes_several: bool = False


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset and branch, as the target has them.

    Attributes:
        epoch: the newest one that is committed; 0: none.
        base: the one before it, which taking it back leaves; 0: none.
        revoked: the newest epoch that was taken back, before or after it was committed: it never can be again.
        commit_id: which commit that epoch was (`sinks.base.ledgers.commit_id`); empty: nobody knows.
        covered: what all committed rows stand for, an entry for each incarnation and flow, the newest one last.
    """

    dataset_urn: str
    branch: str
    epoch: int = 0
    base: int = 0
    revoked: int = 0
    commit_id: str = ""
    covered: tuple[Covered, ...] = ()
