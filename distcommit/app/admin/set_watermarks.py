"""Set watermarks on an operator's request, after a check against the store and the source."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from distcommit.core.dataset_urn import check_urn
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.source import Source, negative_positions
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.storable_check import storable
from distcommit.core.watermark import Position, Watermark
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.job_store import JobStore

_NAMED = 20


def set_watermark(
    store: JobStore, source: Source, urn: str, positions: Mapping[str, Position] | None, user: str, *, new: bool
) -> None:
    """Set the watermark of an idle dataset.

    Args:
        source: the job's source, which checks positions.
        positions: next position to read, by partition; None deletes the watermark.
        new: whether no run has read the dataset yet.

    Raises:
        ConfigurationError: if the store does not know the dataset (with `new`: knows it), a position is invalid, or a
            partition would lose its position; nothing was written.
        ConflictError: if the dataset has a sequence that is not done.
    """
    states = store.bucket_log(store.bucket_of(check_urn(urn))).refresh().datasets
    if (urn in states) is new:
        raise ConfigurationError(
            "the store knows this dataset already" if new else "the store knows no such dataset",
            id="DATASET_ALREADY_KNOWN" if new else "DATASET_UNKNOWN",
            dataset=urn,
            store=store.roots.store,
            todo="leave --new out"
            if new
            else "`distcommit status --all` lists those that it knows; --new (in Python"
            " new=True) sets the watermark of one that no run has read yet",
        )
    require_positions(source, states, {} if positions is None else {urn: positions})
    if positions is None:
        operator_actions.set_watermark(store, urn, None, user)
        return
    require_all_named(states, {urn: positions})
    incarnation = source.incarnations({urn: states.get(urn, DatasetState(urn))}).get(urn, "")
    operator_actions.set_watermark(store, urn, Watermark(dict(positions), incarnation), user)


def require_positions(
    source: Source,
    states: Mapping[str, DatasetState],
    requested: Mapping[str, Mapping[str, Position]],
    lines: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raise ConfigurationError, with the first twenty problems, unless all positions are valid for their datasets.

    Args:
        source: the job's source, which checks positions.
        states: stored states; a dataset's positions must keep their type.
        requested: positions by dataset and partition.
        lines: line of each dataset in the operator's file, for the problems.
    """
    problems = [*_unlike_stored(states, requested)]
    problems += negative_positions(requested) if not problems and source.provenance is not None else []
    problems += [] if problems else source.position_problems(requested)
    if problems:
        problems[:_NAMED] = [_with_line(problem, lines) for problem in problems[:_NAMED]]
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise ConfigurationError(
            "the positions are not valid for their datasets",
            id="POSITIONS_INVALID",
            expected="for each dataset the next position to read by partition, of the kind that its source counts in",
            found="; ".join(problems[:_NAMED]) + more,
            todo="correct them and give the command again; nothing was written",
        )


def require_all_named(states: Mapping[str, DatasetState], requested: Mapping[str, Mapping[str, Position]]) -> None:
    """Raise ConfigurationError if the request omits a known partition. An omitted partition would lose its position,
    and the next run would read it from its beginning.
    """
    unnamed: list[str] = []
    for urn, positions in requested.items():
        state = states.get(urn)
        stored = state.watermark.positions if state is not None and state.watermark is not None else {}
        if unnamed_positions := {partition: at for partition, at in stored.items() if partition not in positions}:
            unnamed.append(f"{urn!r}: {json.dumps(unnamed_positions)} have positions, and are not named")
    if unnamed:
        raise ConfigurationError(
            "the watermark must name all partitions: others would be read again from their beginning",
            id="POSITIONS_INVALID",
            expected="a position for each partition that has one",
            found="; ".join(unnamed[:_NAMED])
            + (f"; and {len(unnamed) - _NAMED} more" if len(unnamed) > _NAMED else ""),
            todo="add these partitions with their stored positions. If the source does not have a partition any more,"
            " set the watermark to null first. Nothing was written",
        )


def _with_line(problem: str, lines: Mapping[str, str]) -> str:
    line = next((line for urn, line in lines.items() if problem.startswith(repr(urn))), "")
    return f"{line}: {problem}" if line else problem


def _unlike_stored(
    states: Mapping[str, DatasetState], requested: Mapping[str, Mapping[str, Position]]
) -> Iterator[str]:
    for urn, named in requested.items():
        try:
            positions = storable(Watermark(dict(named))).positions
        except ValueError as error:
            yield f"{urn!r}: {error}"
            continue
        if not positions:
            yield f"{urn!r}: a position is missing (null deletes a watermark)"
        state = states.get(urn)
        stored = state.watermark.positions if state is not None and state.watermark is not None else {}
        for partition, position in positions.items():
            like = [
                stored_position
                for stored_position in stored.values()
                if isinstance(stored_position, tuple) is isinstance(position, tuple)
            ]
            expected = {_kind(stored[partition])} if partition in stored else set(map(_kind, like))
            if expected and _kind(position) not in expected:
                kind = f"{_kind(position)}, not {' or '.join(sorted(expected))} as what is stored"
                yield f"{urn!r}: {position!r}, for partition {partition!r}, is {kind}"


def _kind(position: Position) -> str:
    match position:
        case str():
            return "a text"
        case int():
            return "a whole number"
        case tuple():
            return f"a list of {', '.join(map(_kind, position)) or 'nothing'}"
        case _:
            return "a number"
