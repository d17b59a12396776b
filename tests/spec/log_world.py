"""Logs, files and actors of the log's scenarios, and what an actor's move may change.

Log 0 is the job log; logs 1.. are buckets with one dataset each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.spec.log_model import Fold, Log, Rec, Switches, fold

HIGH = 2
"""The end of the source, which holds records 0 and 1."""


class Ident(NamedTuple):
    """The identity of one file: its dataset, epoch, attempt and records."""

    d: int
    e: int
    a: str
    lo: int
    hi: int
    gen: int


File = tuple[tuple[Any, ...], Ident]
"""A path and the file there."""


class Proc(NamedTuple):
    """An actor, and where it is in its work."""

    id: str
    kind: str
    e: int
    pc: str
    x: Any
    phase: Any
    plan: Any
    did: Any
    want: Any


class State(NamedTuple):
    """A state. `rows`: the task states, each with its files."""

    logs: tuple[Log, ...]
    staged: frozenset[File]
    final: frozenset[File]
    rows: frozenset[tuple[Ident, ...]]
    procs: tuple[Proc, ...]
    bad: str


class Scen(NamedTuple):
    """A scenario.

    Attributes:
        flat: sequences do not move the watermark.
        held: sequences wait for the decision on the whole job.
        slow: actors that list a log in one move and read it in a later one.
        fails, leaves, unread, changes: actors that may give up a sequence, may leave it pending, cannot read, may
            change a sequence's infos.
        stale: the newest epoch that the store has lost.
        loose: epochs with at-least-once delivery.
    """

    name: str
    buckets: tuple[int, ...]
    flat: bool
    held: bool
    slow: tuple[str, ...]
    fails: tuple[str, ...]
    leaves: tuple[str, ...]
    stale: int
    loose: tuple[int, ...]
    unread: tuple[str, ...]
    v: Switches
    init: State
    changes: tuple[str, ...] = ()


Moves = Iterator[tuple[str, State]]


def staged_path(file: Ident, v: Switches) -> tuple[Any, ...]:
    return (file.d, file.lo) if "same_staged" in v else ("s", *file)


def final_path(file: Ident, v: Switches) -> tuple[Any, ...]:
    return (file.d, "part", file.lo if file.e == 1 else 0) if "same_final" in v else ("f", *file)


def show(r: Rec) -> str:
    match r.kind:
        case "CUT":
            root = "" if r.arg.root == r.arg.heads else ", root stays"
            return f"CUT({r.e}) {[head.number for head in r.arg.heads]}{root}"
        case "HEAD":
            return f"HEAD({r.arg[0].bucket}) {[head.number for head in r.arg]}"
        case "INTENT" | "PUBLISHED":
            more = f" {r.arg.files[0].a}"
        case _:
            more = f" of {r.arg}" if isinstance(r.arg, int) and r.arg else ""
    return r.kind + (f"({r.e})" if r.e else "") + more


class Mover:
    """The next possible moves of one actor. `view`: the logs as the actor sees them."""

    def __init__(self, s: State, i: int, scen: Scen, view: tuple[Log, ...] = ()) -> None:
        self.s, self.i, self.p, self.scen, self.v = s, i, s.procs[i], scen, scen.v
        self.view = view or s.logs

    def go(
        self,
        label: str,
        pc: str = "look",
        *,
        logs: tuple[Log, ...] | None = None,
        staged: frozenset[File] | None = None,
        final: frozenset[File] | None = None,
        rows: frozenset[tuple[Ident, ...]] | None = None,
        bad: str = "",
        **actor: Any,
    ) -> tuple[str, State]:
        s, moved = self.s, self.p._replace(pc=pc, **{"x": (), **actor})
        return f"{self.p.id}: {label}", State(
            s.logs if logs is None else logs,
            s.staged if staged is None else staged,
            s.final if final is None else final,
            s.rows if rows is None else rows,
            (*s.procs[: self.i], moved, *s.procs[self.i + 1 :]),
            bad or s.bad,
        )

    def seen(self, log: int) -> tuple[Fold, int]:
        """Return the fold of a log that the actor sees, and the next number."""
        f, number, _ = fold(self.view[log], self.v)
        return f, number

    def append(self, log: int, r: Rec, following: tuple[Any, ...] = (), **actor: Any) -> tuple[str, State]:
        """Decide on a record; `following`: the sequence to execute after it."""
        return self.go(f"decides {show(r)}", "put", x=(log, self.seen(log)[1], r, following), **actor)


def is_stale(s: State, scen: Scen, f: Fold) -> bool:
    """Return whether the output's markers forbid a run: by the newest run of a lost store or an unfinished rebuild."""
    marks = [(other.e, other.phase == "ended") for other in s.procs if other.kind == "rebuilder" and other.e]
    began = max((e for e, _ in marks), default=0)
    ended = max((e for e, end in marks if end), default=0)
    return scen.stale > f.fence or began > ended
