"""Routing of records by the fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import ForkOperator
from distcommit.pipeline.branches.construct_chain import Rejection, Tally, rejection_error
from distcommit.pipeline.branches.restore_source_order import in_source_order
from distcommit.pipeline.branches.traced_batch import TracedBatch
from distcommit.pipeline.task_flow import DROP, REJECT, TaskFlow

_FORK = "fork"


class Router:
    """Router of one attempt's records to the branches that the flow's fork chooses.

    Attributes:
        names: `["fork"]` if the fork drops records, which are then counted under this name; otherwise empty.
        tallies: the counts, one for each name.
    """

    def __init__(self, flow: TaskFlow) -> None:
        self._flow = flow
        self._branches = [branch.name for branch in flow.branches if branch.name != flow.unmatched]
        self.names = [_FORK] if flow.fork is not None and flow.unmatched == DROP else []
        self.tallies = [Tally() for _ in self.names]

    def route(
        self, batches: Sequence[TracedBatch], rows: int, rejected: dict[int, Rejection], only: str = ""
    ) -> Mapping[str, list[TracedBatch]]:
        """Return the pieces for each branch. Add records that the fork rejects to `rejected`.

        Args:
            batches: the records at the fork.
            rows: row count of the extractor's batch.
            rejected: rejections so far, by row.
            only: for reprocessed records, the branch that had rejected them; other branches have their copy. If the
                fork no longer sends a record to this branch, the record is rejected by this branch again.

        Raises:
            RecordError: if a rejected record must fail its work unit.
            ConfigurationError: if the operator breaks its contract.
        """
        flow = self._flow
        if flow.fork is None:
            return {flow.branches[0].name: list(batches)}
        routed: dict[str, list[TracedBatch]] = {branch.name: [] for branch in flow.branches}
        dropped = np.zeros(rows, bool)
        for traced in batches if flow.fork.groups_schemas else in_source_order(batches):
            unmatched = self._send(flow.fork, traced, routed)
            if not unmatched.any():
                continue
            if flow.unmatched == REJECT:
                _reject(flow, traced.origin_rows()[unmatched], "no branch takes it", rejected)
            elif flow.unmatched == DROP:
                dropped[traced.origin_rows()[unmatched]] = True
                self._count_dropped(int(np.count_nonzero(unmatched)))
            else:
                routed[flow.unmatched].append(traced.only(unmatched))
        for tally in self.tallies:
            tally.records_in += sum(traced.records.num_rows for traced in batches)
            tally.records_out += sum(traced.records.num_rows for pieces in routed.values() for traced in pieces)
        if only:
            elsewhere = row_mask(batches, rows) & ~row_mask(routed[only], rows) & ~dropped
            _reject(flow, np.flatnonzero(elsewhere), f"branch {only} does not take it any more", rejected)
        return routed

    def _send(
        self, fork: ForkOperator, traced: TracedBatch, routed: Mapping[str, list[TracedBatch]]
    ) -> npt.NDArray[np.bool_]:
        """Add records to the chosen branches; return a mask of records without a branch."""
        names = self._branches
        accepting = [name for name in names if fork.accepts(name, traced.records.schema)]
        chosen = fork.choose(traced.records, accepting) if accepting else {}
        if strangers := sorted(str(name) for name in chosen if name not in names):
            raise _broken(", ".join(strangers), f"one of the branches {', '.join(names)}", "no branch of the job")
        unmatched = np.ones(traced.records.num_rows, bool)
        for name in accepting:
            if name not in chosen:
                continue
            keep = _as_mask(chosen[name], len(unmatched), name)
            unmatched &= ~keep
            if keep.any():
                routed[name].append(traced.only(keep))
        return unmatched

    def _count_dropped(self, records: int) -> None:
        for tally in self.tallies:
            tally.filtered += records


def row_mask(batches: Sequence[TracedBatch], rows: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the extractor's rows that have a record in the batches."""
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
