"""Which branches records go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import ConfigurationError
from distcommit.pipeline.branches.chain import Rejection, turned_away
from distcommit.pipeline.branches.piece import Piece
from distcommit.pipeline.branches.source_order import in_source_order
from distcommit.pipeline.task_flow import TaskFlow

_FORK = "fork"


def forked(
    flow: TaskFlow, pieces: Sequence[Piece], rows: int, rejected: dict[int, Rejection], only: str = ""
) -> Mapping[str, list[Piece]]:
    """What goes to each branch; adds to the rejected ones those that go nowhere.

    Args:
        flow: the job's.
        pieces: what has come to the fork.
        rows: of the extractor's batch that they came from.
        rejected: what is turned away already, by row.
        only: the branch that had turned the records away, if they are fed again. What the fork does not send there any
            more is turned away by it: of the others it has been decided what they have.

    Raises:
        RecordError: if a record is turned away that is to fail its work unit.
        ConfigurationError: if the operator does not keep what it says.
    """
    fork, names = flow.fork, [branch.name for branch in flow.branches]
    if fork is None:
        return {names[0]: list(pieces)}
    found: dict[str, list[Piece]] = {name: [] for name in names}
    for piece in pieces if fork.groups_schemas else in_source_order(pieces):
        accepting = [name for name in names if fork.accepts(name, piece.records.schema)]
        chosen = fork.choose(piece.records, accepting) if accepting else {}
        if strangers := sorted(str(name) for name in chosen if name not in names):
            raise _broken(", ".join(strangers), f"one of the branches {', '.join(names)}", "no branch of the job")
        somewhere = np.zeros(piece.records.num_rows, bool)
        for name in accepting:
            if name not in chosen:
                continue
            keep = _as_mask(chosen[name], len(somewhere), name)
            somewhere |= keep
            if keep.any():
                found[name].append(piece.only(keep))
        _turn_away(flow, piece.origin_rows()[~somewhere], "no branch takes it", rejected)
    if only:
        gone = rows_in(pieces, rows) & ~rows_in(found[only], rows)
        _turn_away(flow, np.flatnonzero(gone), f"branch {only} does not take it any more", rejected)
    return found


def rows_in(pieces: Sequence[Piece], rows: int) -> npt.NDArray[np.bool_]:
    """Which rows of the extractor's batch anything in the pieces came from."""
    found = np.zeros(rows, bool)
    for piece in pieces:
        found[piece.origin_rows()] = True
    return found


def _turn_away(flow: TaskFlow, rows: npt.NDArray[np.int64], why: str, rejected: dict[int, Rejection]) -> None:
    for row in rows.tolist():
        if flow.on_rejected == "fail":
            raise turned_away(_FORK, why)
        rejected.setdefault(row, Rejection(_FORK, why))


def _as_mask(mask: pa.BooleanArray | None, rows: int, branch: str) -> npt.NDArray[np.bool_]:
    if mask is None:
        return np.ones(rows, bool)
    if len(mask) != rows or not pa.types.is_boolean(mask.type):
        raise _broken(branch, f"a boolean for each of {rows} records", f"{len(mask)} {mask.type}")
    found: npt.NDArray[np.bool_] = (pc.fill_null(mask, False) if mask.null_count else mask).to_numpy(
        zero_copy_only=False
    )
    return found


def _broken(branch: str, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        "a fork operator does not keep what it says",
        branch=branch,
        expected=expected,
        found=found,
        todo="mend the operator's choose()",
    )
