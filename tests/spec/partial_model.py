"""Executable model of policy `partial`: prefixes of failed attempts, beside the rules of `log_model`.

    python -m tests.spec.partial_model                      the table: every scenario and every naive variant
    python -m tests.spec.partial_model twins merge          one scenario (with naive switches), history in full

Model: one dataset of two source partitions, two branches, one log. The first work unit has two records of each
partition, the second the third record of partition 0. Attempts read batch by batch, one record each, in different
orders (A begins with partition 0, B with partition 1). Each batch goes to branch x and then to branch y. An attempt may
fail between two batches, or when only x has taken one. Then it puts one row with its prefix, or none if only one branch
has a batch. An attempt that reads everything puts a success.

The driver ends ingest at any time, so that rows may come late. Committers read the rows, decide, seal, publish file by
file, close and clean up. The next run fences, finishes pending sequences, sweeps, plans from the watermark, and reads
the rest.

In the scenarios `resumed` the first run is killed before its driver ends ingest. The next run has two attempts at its
recovery task (N and T). Each seals, with the first run's epoch, what that run has finished. N leaves the first run's
files in staging, then plans and reads the rest. The run after it (M) sweeps them.

One action is one effect. An actor that never moves again has crashed; an actor that continues after a newer fence is a
zombie.

Invariants, in every state:

- Each record below the watermark is published once in each branch, and no other record is.
- The files of a pending sequence are staged or published.
- No prefix is sealed if a success was present at the end of ingest, or if another prefix had read more.
- When no actor can move any more, no sequence is pending.

Not modelled: power loss, several datasets, abandon and quarantine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from tests.spec import log_model, search
from tests.spec.log_model import DS, Fold, Rec, Unread
from tests.spec.model_command import model_command

ENDS = (3, 2)
BRANCHES = ("x", "y")
Record = tuple[int, int]  # partition, offset
ORDERS: dict[str, tuple[Record, ...]] = {
    "A": ((0, 0), (0, 1), (1, 0), (1, 1)),
    "B": ((1, 0), (1, 1), (0, 0), (0, 1)),
    "C": ((0, 2),),
}
"""The records that attempts read, in order; C reads the second work unit."""


class File(NamedTuple):
    e: int
    wrote: str
    branch: str
    records: tuple[Record, ...]


class Row(NamedTuple):
    """A row. `high`: its end by partition."""

    wrote: str
    whole: bool
    high: tuple[int, int]
    files: tuple[File, ...]

    @property
    def read(self) -> int:
        return sum(self.high)


class Proc(NamedTuple):
    id: str
    kind: str
    e: int = 1
    phase: str = "begin"
    x: tuple[Any, ...] = ()


class State(NamedTuple):
    """A state. `ended`: the rows that existed at the end of ingest, or None before it."""

    log: tuple[Any, ...]
    rows: frozenset[Row]
    staged: frozenset[File]
    output: frozenset[File]
    ended: frozenset[Row] | None
    procs: tuple[Proc, ...]


class Scen(NamedTuple):
    name: str
    v: frozenset[str]
    init: State


Moves = Iterator[tuple[str, State]]


class Sealed(NamedTuple):
    """A sequence in the form of `log_model`. `first`: its attempt at the first work unit."""

    d: int
    e: int
    files: tuple[File, ...]
    lo: tuple[int, int]
    to: tuple[int, int]
    gen: int
    held: bool
    first: Row | None
    left_out: str = ""
    schemas: None = None
    unread: Unread | None = None


@cache
def fold(log: tuple[Rec, ...], v: frozenset[str]) -> Fold:
    """Return a fold in which epoch 1 has fenced and planned from the beginning."""
    f = Fold(1, "R1", frozenset(), DS((0, 0), 0, None, "idle", 0, 0, (0, 0)))
    for r in log:
        f = log_model.apply(r, f) if log_model.valid(r, f, v) else f
    return f


def reached(records: tuple[Record, ...]) -> tuple[int, int]:
    return sum(p == 0 for p, _ in records), sum(p == 1 for p, _ in records)


def check(s: State, scen: Scen, last: bool) -> str:
    t = fold(s.log, scen.v).ds
    pending = t.seq.files if t.seq else ()
    for branch in BRANCHES:
        places = Counter(record for file in s.output if file.branch == branch for record in file.records)
        below = {(p, offset) for p, end in enumerate(t.wm) for offset in range(end)}
        sealed = {record for file in pending if file.branch == branch for record in file.records}
        if any(count > 1 for count in places.values()):
            return "PUBLISHED TWICE"
        if not below <= places.keys():
            return "WATERMARK AHEAD OF DATA"
        if not places.keys() <= below | sealed:
            return "PUBLISHED, NOT SEALED"
    if any(file not in s.staged | s.output for file in pending):
        return "NEEDED FILE GONE"
    first = next((r.arg.first for r in s.log if r.kind == "INTENT" and r.arg.e == 1), None)
    if s.ended and first and not first.whole:
        others = [row for row in s.ended if row.wrote != "C"]
        if any(row.whole for row in others):
            return "A SUCCESS WAS IGNORED"
        if any(row.read > first.read for row in others):
            return "A LONGER PREFIX WAS IGNORED"
    return "STUCK" if last and t.state == "pending" else ""


# ---- actors
class Mover:
    """The next possible actions of one actor."""

    def __init__(self, s: State, i: int, scen: Scen) -> None:
        self.s, self.i, self.p, self.v = s, i, s.procs[i], scen.v
        self.f = fold(s.log, scen.v)
        self.t = self.f.ds

    def go(self, label: str, phase: str = "", x: tuple[Any, ...] = (), e: int = 0, **changes: Any) -> tuple[str, State]:
        q = self.p._replace(phase=phase or self.p.phase, x=x, e=e or self.p.e)
        procs = (*self.s.procs[: self.i], q, *self.s.procs[self.i + 1 :])
        return f"{self.p.id}: {label}", self.s._replace(procs=procs, **changes)

    def put(self, kind: str, arg: Any, phase: str, **changes: Any) -> tuple[str, State]:
        log = (*self.s.log, Rec(kind, changes.get("e", self.p.e), arg))
        return self.go(f"puts {kind}", phase, log=log, **changes)

    def can_fence(self, e: int) -> bool:
        return log_model.valid(Rec("FENCE", e, self.p.id), self.f, self.v)

    def can(self, kind: str, arg: Any) -> bool:
        return log_model.valid(Rec(kind, self.p.e, arg), self.f, self.v)


def attempt(m: Mover) -> Moves:
    """Yield the actions of an attempt. Its position is the number of batches that it has read. If a newer run has swept
    its folder, it can write nothing.
    """
    p, order, read = m.p, ORDERS[m.p.id], len(m.p.x)
    if p.phase == "deletes":
        yield m.go("deletes what it has staged", "over", staged=frozenset(f for f in m.s.staged if f.wrote != p.id))
    elif m.f.fence > (2 if "resumed" in m.v else 1):
        yield m.go("finds its folder swept", "over")
    elif read == len(order):
        yield leave(m, "succeeds", dict.fromkeys(BRANCHES, order), whole=True)
    else:
        yield m.go(f"reads {order[read]}", x=order[: read + 1])
        if p.id != "C":
            yield leave(m, f"fails after {read}", dict.fromkeys(BRANCHES, order[:read]), whole=False)
            if "uneven" in m.v:
                took = {"x": order[: read + 1], "y": order[:read]}
                yield leave(m, f"fails as y takes {order[read]}", took, whole=False)
            else:
                yield m.go(f"fails as y takes {order[read]}", "over")


def leave(m: Mover, label: str, took: dict[str, tuple[Record, ...]], *, whole: bool) -> tuple[str, State]:
    files = tuple(File(1, m.p.id, branch, records) for branch, records in took.items())
    high = reached(took["x"])
    if m.p.id == "C":
        high = ENDS[0], 0
    row = Row(m.p.id, whole, high, files)
    phase = "deletes" if "deletes" in m.v and not whole else "over"
    return m.go(f"{label} and puts its row", phase, rows=m.s.rows | {row}, staged=m.s.staged | set(files))


def driver(m: Mover) -> Moves:
    yield m.go("ends ingest", "over", ended=m.s.rows)


def decided(m: Mover, *, resumes: bool = False) -> Sealed | None:
    """Return a committer's decision on the present rows. A run that has fenced them knows that ingest has ended."""
    ended = resumes or m.s.ended is not None or "early" in m.v
    firsts = [row for row in sorted(m.s.rows) if row.wrote != "C" and set(row.files) <= m.s.staged | m.s.output]
    whole = [row for row in firsts if row.whole]
    prefixes = sorted((row for row in firsts if not row.whole and row.read), key=lambda row: -row.read)
    if "first" in m.v:
        prefixes.sort()
    if not whole and not ended:
        return None
    order = [*prefixes, *whole] if "prefix_first" in m.v else [*whole, *prefixes]
    if not order:
        return None
    first, files = order[0], order[0].files
    to = first.high
    if "merge" in m.v and not first.whole:
        to = (max(row.high[0] for row in prefixes), max(row.high[1] for row in prefixes))
    second = next((row for row in m.s.rows if row.wrote == "C" and set(row.files) <= m.s.staged), None)
    if second is None and not ended:
        return None
    if second is not None and (to[0] == 2 or "follows" in m.v):
        files, to = (*files, *second.files), (ENDS[0], to[1])
    return Sealed(1, 1, files, (0, 0), to, 0, False, first)


def publish(m: Mover, after: str) -> Moves:
    """Publish one of the files in its hands, whatever the log contains by now."""
    for file in m.p.x:
        remaining = tuple(other for other in m.p.x if other != file)
        if file in m.s.staged:
            yield m.go(f"publishes {file.branch} of {file.wrote}", after if not remaining else "", remaining,
                       staged=m.s.staged - {file}, output=m.s.output | {file})  # fmt: skip
        else:
            yield m.go(f"finds {file.branch} of {file.wrote} moved", after if not remaining else "", remaining)


def close(m: Mover, after: str) -> Moves:
    if m.t.seq is not None and m.can("DONE", m.t.seq.e) and set(m.t.seq.files) <= m.s.output:
        yield m.put("DONE", m.t.seq.e, after)
    else:
        yield m.go("finds it closed, or is fenced", after)


def committer(m: Mover) -> Moves:
    match m.p.phase:
        case "looks":
            sequence = decided(m)
            if m.t.state == "pending" and m.t.sequence.e == 1:
                yield m.go("takes the sealed sequence of another committer", "publishes", m.t.sequence.files)
            elif sequence is not None and m.can("INTENT", sequence):
                yield m.go(f"decides for {sequence.first and sequence.first.wrote}", "seals", (sequence,))
        case "seals":
            (sequence,) = m.p.x
            if m.can("INTENT", sequence):
                name, state = m.put("INTENT", sequence, "publishes")
                q = state.procs[m.i]._replace(x=sequence.files)
                yield name, state._replace(procs=(*state.procs[: m.i], q, *state.procs[m.i + 1 :]))
            elif "own" in m.v:
                yield m.go("keeps its own choice", "publishes", sequence.files)
            else:
                yield m.go("may not seal its choice", "looks")
        case "publishes":
            yield from publish(m, "closes")
        case "closes":
            yield from close(m, "cleans up")
        case "cleans up":
            done = m.t.done >= 1
            yield m.go("cleans up", "over", staged=frozenset(f for f in m.s.staged if f.e > 1 or not done))


def resumes(m: Mover, after: str) -> Moves:
    """Seal, in the killed run's place, what it has finished. A late attempt may do so until it is fenced."""
    sequence = m.p.x[0] if m.p.x else decided(m, resumes=True)
    if m.p.phase == "decides" and sequence is not None and m.t.state == "idle":
        yield m.go(f"decides for {sequence.first and sequence.first.wrote}", "seals", (sequence,))
    elif m.p.phase == "seals" and m.can("INTENT", sequence):
        yield m.put("INTENT", sequence, after)
    else:
        yield m.go("has nothing to seal", after)


def recovery(m: Mover) -> Moves:
    """Yield the actions of another attempt at the recovery of epoch 2, which only seals."""
    if m.f.fence >= 2:
        yield from resumes(m, "over")


def next_run(m: Mover) -> Moves:
    e = 3 if m.p.id == "M" else 2
    kept = 1 if m.p.id == "N" and "resumed" in m.v and "sweeps" not in m.v else 0
    match m.p.phase:
        case "begin":
            follows = m.p.id != "M" or m.f.fence >= 2
            if follows and m.can_fence(e):
                yield m.put("FENCE", m.p.id, "decides" if m.p.id == "N" and "resumed" in m.v else "replays", e=e)
        case "decides" | "seals":
            yield from resumes(m, "replays")
        case "replays":
            if m.t.state == "pending":
                yield m.go("takes over the pending sequence", "publishes older", m.t.sequence.files)
            else:
                yield m.go("sweeps", "plans", staged=frozenset(f for f in m.s.staged if f.e >= e or f.e == kept))
        case "publishes older":
            yield from publish(m, "closes older")
        case "closes older":
            yield from close(m, "replays")
        case "plans":
            low = (0, 0) if "old_low" in m.v else m.t.wm
            rest = tuple((p, offset) for p in (0, 1) for offset in range(low[p], ENDS[p]))
            files = tuple(File(e, m.p.id, branch, rest) for branch in BRANCHES)
            if m.t.wm == ENDS:
                yield m.go("has nothing to read", "over")
            elif m.s.staged & set(files) or not m.can("INTENT", Sealed(1, e, files, m.t.wm, ENDS, 0, False, None)):
                yield m.go("may not seal what it has read", "over")
            else:
                sequence = Sealed(1, e, files, m.t.wm, ENDS, 0, False, None)
                name, state = m.put("INTENT", sequence, "publishes")
                q = state.procs[m.i]._replace(x=files)
                procs = (*state.procs[: m.i], q, *state.procs[m.i + 1 :])
                yield name, state._replace(procs=procs, staged=state.staged | set(files))
        case "publishes":
            yield from publish(m, "closes")
        case "closes":
            yield from close(m, "over")


ACTORS = {"attempt": attempt, "driver": driver, "committer": committer, "run": next_run, "recovery": recovery}


def moves(s: State, scen: Scen) -> Moves:
    for i, p in enumerate(s.procs):
        if p.phase != "over":
            yield from ACTORS[p.kind](Mover(s, i, scen))


# ---- scenarios
def scenario(name: str, switches: str = "") -> Scen:
    a, b, c = (Proc(each, "attempt") for each in "ABC")
    ends, one, two, then = (
        Proc("D", "driver"),
        Proc("W", "committer", phase="looks"),
        Proc("V", "committer", phase="looks"),
        Proc("N", "run"),
    )
    procs: dict[str, tuple[Proc, ...]] = {
        "attempts": (a, b, ends, one),
        "follows": (a, c, ends, one, then),
        "twins": (a, b, ends, one, two),
        "next run": (a, b, ends, one, then),
        "all": (a, b, c, ends, one, two, then),
        "resumed": (a, then, Proc("T", "recovery", 2, "decides"), Proc("M", "run")),
        "resumed twins": (a, c, one, then, Proc("T", "recovery", 2, "decides"), Proc("M", "run")),
    }
    init = State((), frozenset(), frozenset(), frozenset(), None, procs[name])
    if "C" not in {p.id for p in procs[name]}:  # the second work unit was read before all others
        init = next(state for label, state in _second(init))
    return Scen(name, frozenset((*switches.split(), *(("resumed",) if name.startswith("resumed") else ()))), init)


def _second(s: State) -> Moves:
    files = tuple(File(1, "C", branch, ORDERS["C"]) for branch in BRANCHES)
    row = Row("C", True, (ENDS[0], 0), files)
    yield "C: is there", s._replace(rows=frozenset({row}), staged=frozenset(files))


DESIGN = ("attempts", "follows", "twins", "next run", "all", "resumed", "resumed twins")
NAIVE = (
    ("attempts", "early", "a prefix is chosen before ingest has ended"),
    ("attempts", "prefix_first", "a prefix beats a success"),
    ("attempts", "first", "the first of several prefixes by attempt"),
    ("attempts", "merge", "files of one attempt, watermark of several"),
    ("attempts", "deletes", "a failed attempt deletes its files once its row is put"),
    ("attempts", "uneven", "a prefix reaches as far as its furthest branch"),
    ("follows", "follows", "work units behind a prefix do not wait"),
    ("follows", "old_low", "the next run begins at the work unit's old low"),
    ("twins", "own", "a committer that lost the race for the seal keeps its own choice"),
    ("next run", "no_fence", "INTENT and DONE of a fenced epoch count"),
    ("resumed", "sweeps", "the run that resumes deletes the killed run's files"),
    ("resumed", "no_closed no_wm", "a killed run's work is sealed although its records were read again"),
)


def explore(name: str, switches: str = "", limit: int = 400_000, walks: int = 3_000) -> tuple[str, int, list[str]]:
    """Return the violation (`none`: none in any state; `none*`: none up to the limit and on walks from there), the
    number of states, and a history that leads to the violation.
    """
    scen = scenario(name, switches)
    return search.explore(scen, scen.init, limit, walks, 1, moves, check)


if __name__ == "__main__":
    model_command(explore, DESIGN, NAIVE)
