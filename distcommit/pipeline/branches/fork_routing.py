"""Route records to branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import ConfigurationError
from distcommit.pipeline.branches.chain import Rejection, rejection_error
from distcommit.pipeline.branches.source_order import in_source_order
from distcommit.pipeline.branches.traced_batch import TracedBatch
from distcommit.pipeline.task_flow import TaskFlow

_FORK = "fork"


def route_records(
    flow: TaskFlow, batches: Sequence[TracedBatch], rows: int, rejected: dict[int, Rejection], only: str = ""
) -> Mapping[str, list[TracedBatch]]:
    """Return the pieces for each branch. Add records that the fork sends to no branch to `rejected`.

    Args:
        flow: the job's task flow.
        batches: the records at the fork.
        rows: row count of the extractor's batch.
        rejected: rejections so far, by row.
        only: for reprocessed records, the branch that had rejected them; other branches have their copy. If the fork no
            longer sends a record to this branch, the record is rejected by this branch again.

    Raises:
        RecordError: if a rejected record must fail its work unit.
        ConfigurationError: if the operator breaks its contract.
    """
    fork, names = flow.fork, [branch.name for branch in flow.branches]
    if fork is None:
        return {names[0]: list(batches)}
    routed: dict[str, list[TracedBatch]] = {name: [] for name in names}
    for traced in batches if fork.groups_schemas else in_source_order(batches):
        accepting = [name for name in names if fork.accepts(name, traced.records.schema)]
        chosen = fork.choose(traced.records, accepting) if accepting else {}
        if strangers := sorted(str(name) for name in chosen if name not in names):
            raise _broken(", ".join(strangers), f"one of the branches {', '.join(names)}", "no branch of the job")
        somewhere = np.zeros(traced.records.num_rows, bool)
        for name in accepting:
            if name not in chosen:
                continue
            keep = _as_mask(chosen[name], len(somewhere), name)
            somewhere |= keep
            if keep.any():
                routed[name].append(traced.only(keep))
        _reject(flow, traced.origin_rows()[~somewhere], "no branch takes it", rejected)
    if only:
        elsewhere = row_mask(batches, rows) & ~row_mask(routed[only], rows)
        _reject(flow, np.flatnonzero(elsewhere), f"branch {only} does not take it any more", rejected)
    return routed


def row_mask(batches: Sequence[TracedBatch], rows: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the extractor's rows: true if the pieces contain a record that came from the row."""
    mask = np.zeros(rows, bool)
    for traced in batches:
        mask[traced.origin_rows()] = True
    return mask


def _reject(flow: TaskFlow, rows: npt.NDArray[np.int64], reason: str, rejected: dict[int, Rejection]) -> None:
    for row in rows.tolist():
        if flow.on_rejected == "fail":
            raise rejection_error(_FORK, reason)
        rejected.setdefault(row, Rejection(_FORK, reason))


def _as_mask(mask: pa.BooleanArray | None, rows: int, branch: str) -> npt.NDArray[np.bool_]:
    if mask is None:
        return np.ones(rows, bool)
    if len(mask) != rows or not pa.types.is_boolean(mask.type):
        raise _broken(branch, f"a boolean for each of {rows} records", f"{len(mask)} {mask.type}")
    filled: npt.NDArray[np.bool_] = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return filled


def _broken(branch: str, expected: str, actual: str) -> ConfigurationError:
    return ConfigurationError(
        "a fork operator breaks its contract",
        id="CONSTRUCT_CONTRACT_BROKEN",
        branch=branch,
        expected=expected,
        found=actual,
        todo="correct choose() of the fork operator",
    )
