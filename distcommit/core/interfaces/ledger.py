"""Ledgers: a target's record of its commits, one row for each store, dataset and branch.

A row changes in one transaction with the data. The row proves the newest committed epoch, which replay checks, and
lists the source positions of all committed data, which the audit and `rebuild` read. The size of a ledger does not
depend on the number of runs.

A ledger has a format version, which each reader checks before it uses the rows.
"""

from __future__ import annotations

import msgspec

from distcommit.core.errors import UnknownVersionError
from distcommit.core.support.decoding import from_json
from distcommit.core.work_units import MAIN_BRANCH

LEDGER_VERSION = 1


class _Version(msgspec.Struct):
    version: int = LEDGER_VERSION
    """Format version, which is read before any other field."""


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


def check_json_version(data: bytes | str, **subject: str) -> None:
    """Check the version of a JSON text of a ledger, which is 1 if the text does not name it.

    Args:
        data: the text.
        subject: names of the ledger and its part, for the error.

    Raises:
        UnknownVersionError: if it is another version.
        msgspec.DecodeError: if the text is not a JSON object, or its version is not a number; also UnicodeDecodeError,
            RecursionError.
    """
    check_version(from_json(data, _Version).version, **subject)


def check_version(version: int, **subject: str) -> None:
    if version != LEDGER_VERSION:
        raise UnknownVersionError(
            "a ledger has an unknown format version",
            expected=f"version {LEDGER_VERSION}",
            found=f"version {version}",
            todo="run the version of distcommit that wrote it. Nothing was written",
            **subject,
        )
