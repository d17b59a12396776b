"""Ledgers: a target's record of its commits, one row for each store, dataset and branch.

A row changes in one transaction with the data. It proves the newest committed epoch, which replay checks, and lists the
source positions of all committed data, which the audit and `rebuild` read. The size of a ledger does not depend on the
number of runs.
"""

from __future__ import annotations

import msgspec

from distcommit.core.work_units import MAIN_BRANCH


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """Input records that the target's rows of one branch cover, for one incarnation of the source and one flow.

    Attributes:
        incarnation: the object that the positions count in (a Kafka topic id); empty if the source has none.
        branches: all branches of the flow, without error branches. Branches that are not listed need not have the
            records.
        offsets: the input records that rows were made of, as text of `OffsetSets`; empty for none.
        holes: positions without a record, as text of `OffsetSets`.
        filtered: filtered input records by branch, as text of `OffsetSets`. One branch of an attempt records the
            filtered records of all branches.
        rows: the number of rows written.
        duplicates: the number of `offsets` that earlier commits already covered.
        makes_several: whether a construct may have made several rows of one input record.
    """

    incarnation: str = ""
    branches: tuple[str, ...] = (MAIN_BRANCH,)
    offsets: str = ""
    holes: str = ""
    filtered: dict[str, str] = {}
    rows: int = 0
    duplicates: int = 0
    makes_several: bool = False


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """The committed state of a dataset and branch at a target.

    Attributes:
        dataset_urn: the dataset.
        branch: the branch.
        epoch: the newest committed epoch; 0 for none.
        base: the committed epoch before `epoch`, which becomes the newest after a rollback; 0 for none.
        revoked: the newest epoch that was rolled back, committed or not. It can never be committed again.
        commit_id: the id of the commit of `epoch` (`sinks.base.idempotent_commit.commit_id`); empty if it is not known.
        covered: the input records of all committed rows, by incarnation and flow, the newest entry last.
    """

    dataset_urn: str
    branch: str
    epoch: int = 0
    base: int = 0
    revoked: int = 0
    commit_id: str = ""
    covered: tuple[Covered, ...] = ()
