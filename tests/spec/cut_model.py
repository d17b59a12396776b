"""Executable model of cuts: who writes snapshot manifests, which of them count, and what may be deleted when.

    python -m tests.spec.cut_model                    the table: every scenario and every naive variant
    python -m tests.spec.cut_model job half_a_job     one scenario (with naive switches), history in full

Model: a job log and two buckets with one dataset each, whose publisher replaces. So the file of a dataset's done epoch
is live, and files of older epochs are superseded. Epoch 1 has ended with its cut. Runs overtake each other, and each
becomes a zombie of the next. A run takes these steps:

1. It fences the job log and the buckets. It finishes pending sequences (or leaves them, or can't read the bucket).
2. It reports each bucket, with a snapshot delta (piece) if the dataset has moved since the previous cut.
3. It puts a snapshot manifest (root) and records CUT 1.
4. It deletes older manifests, then deltas, then superseded files.
5. It seals, decides (for a whole job at once) and closes.
6. It reports, puts its second manifest and records CUT 2.

A bucket's delta chain is a base and at most one delta. A reader takes the newest cut that counts, lists the files of
one dataset and then of the other, and checks that the manifest still exists.

The log's own rules (`log_model`) apply: a record of a fenced epoch is invalid. One action is one effect. A process
that never moves again has crashed. A manifest counts if its CUT is the newest in the job log, or if it is the parent of
one that counts.

Invariants, in every state:

- The newest CUT has a manifest.
- Each manifest that counts can be read, with all deltas of its chains and all files that are live at it.
- It has the state of each dataset when its bucket was reported, and no dataset is behind the previous cut.
- If a job publishes all or nothing, both datasets have the same epoch.
- A reader that succeeded has seen the contents of its cut.

Not modelled: power loss (the explorer covers it), several datasets in a bucket, readers of older cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.spec import search
from tests.spec.model_command import model_command

BUCKETS, KEPT, LONGEST = (0, 1), 2, 2


class Piece(NamedTuple):
    e: int
    bucket: int
    number: int
    done: int


class Entry(NamedTuple):
    """A bucket in a snapshot manifest: its delta chain, and the epoch that reported it."""

    chain: tuple[Piece, ...]
    e: int


class Root(NamedTuple):
    name: tuple[int, int]
    parent: tuple[int, int]
    entries: tuple[Entry, ...]
    repeats: bool = False


class Log(NamedTuple):
    """A bucket's log: its fence, the done epoch, the pending epoch, and the number of records."""

    fence: int = 1
    done: int = 1
    pending: int = 0
    number: int = 1


class Proc(NamedTuple):
    id: str
    kind: str = "run"
    e: int = 0
    phase: str = "begin"
    x: tuple[Any, ...] = ()
    entries: tuple[Entry | None, ...] = (None, None)
    open: bool = False  # a decided sequence is still open


class State(NamedTuple):
    fence: int
    cuts: tuple[tuple[int, int], ...]
    decided: frozenset[int]
    logs: tuple[Log, ...]
    roots: frozenset[Root]
    pieces: frozenset[Piece]
    files: frozenset[tuple[int, int]]
    procs: tuple[Proc, ...]
    bad: str = ""


class Scen(NamedTuple):
    name: str
    v: frozenset[str]
    init: State
    job: bool = False


Moves = Iterator[tuple[str, State]]


# ---- what counts
def by_name(s: State) -> dict[tuple[int, int], Root]:
    return {root.name: root for root in s.roots}


def newest(s: State) -> tuple[int, int]:
    return s.cuts[-1]


def chain_of(s: State, start: tuple[int, int]) -> list[Root]:
    """Return the manifest of that cut and its ancestors, as far as they exist."""
    there, manifests, name = by_name(s), list[Root](), start
    while name in there:
        manifests.append(there[name])
        name = there[name].parent
    return manifests


def done_at(root: Root) -> tuple[int, ...]:
    return tuple(entry.chain[-1].done for entry in root.entries)


def check(s: State, scen: Scen, last: bool) -> str:
    if s.bad:
        return s.bad
    roots = chain_of(s, newest(s))
    if not roots:
        return "THE NEWEST CUT HAS NO MANIFEST"
    for place, root in enumerate(roots):
        at = done_at(root)
        if any(piece not in s.pieces for entry in root.entries for piece in entry.chain):
            return "A DELTA IS MISSING"
        if any((bucket, done) not in s.files for bucket, done in zip(BUCKETS, at, strict=True)):
            return "A LIVE FILE IS MISSING"
        if scen.job and len(set(at)) > 1:
            return "HALF A JOB IS VISIBLE"
        if place and any(now < before for now, before in zip(done_at(roots[place - 1]), at, strict=True)):
            return "A DATASET IS BEHIND THE PREVIOUS CUT"
    return ""


# ---- actors
class Mover:
    def __init__(self, s: State, i: int, scen: Scen) -> None:
        self.s, self.i, self.p, self.v, self.scen = s, i, s.procs[i], scen.v, scen

    def go(self, label: str, phase: str, p: dict[str, Any] | None = None, **changes: Any) -> tuple[str, State]:
        q = self.p._replace(phase=phase, **(p or {}))
        return f"{self.p.id}: {label}", self.s._replace(
            procs=(*self.s.procs[: self.i], q, *self.s.procs[self.i + 1 :]), **changes
        )

    def log(self, bucket: int, **changes: Any) -> tuple[Log, ...]:
        logs = list(self.s.logs)
        logs[bucket] = logs[bucket]._replace(number=logs[bucket].number + 1, **changes)
        return tuple(logs)


def before(m: Mover) -> Root | None:
    """Return the manifest that is the parent of the run's next one."""
    s, p = m.s, m.p
    name = max((cut for cut in s.cuts if cut[0] <= p.e), default=(0, 0))
    return by_name(s).get(name)


def reported(m: Mover, bucket: int) -> tuple[Entry, frozenset[Piece]]:
    """Return an executor's report of a bucket, with the present deltas."""
    log, former = m.s.logs[bucket], before(m)
    chain = former.entries[bucket].chain if former else ()
    if chain and chain[-1].done == log.done:
        return Entry(chain, m.p.e), m.s.pieces
    piece = Piece(m.p.e, bucket, log.number, log.done)
    chain = (*chain, piece) if 0 < len(chain) < LONGEST and all(one in m.s.pieces for one in chain) else (piece,)
    return Entry(chain, m.p.e), m.s.pieces | {piece}


def reports(m: Mover, bucket: int, after: str) -> Moves:
    entry, pieces = reported(m, bucket)
    log, entries = m.s.logs[bucket], list(m.p.entries)
    entries[bucket] = entry
    is_open = m.p.open or log.pending in m.s.decided
    yield m.go(f"reports bucket {bucket}", after, {"entries": tuple(entries), "open": is_open}, pieces=pieces)


def root_of(m: Mover, phase: int) -> Root | None:
    former = before(m)
    if former is None:
        return None
    missing = [b for b in BUCKETS if m.p.entries[b] is None]
    entries = tuple(entry or former.entries[b] for b, entry in zip(BUCKETS, m.p.entries, strict=True))
    repeats = m.p.open and "half_a_job" not in m.v
    if missing and "unread_ignored" not in m.v:
        unsure = any(e >= former.entries[b].e for b in missing for e in m.s.decided)
        repeats = repeats or former.repeats or unsure
    return Root((m.p.e, phase), former.name, former.entries if repeats else entries, repeats)


def puts_root(m: Mover, phase: int, after: str) -> Moves:
    root = root_of(m, phase)
    there = root is None or root.name in by_name(m.s)
    if root is None:
        yield m.go("finds no parent manifest: fenced", "over")
        return
    yield m.go(f"puts manifest {root.name}", after, roots=m.s.roots if there else m.s.roots | {root})


def cuts(m: Mover, phase: int, after: str) -> Moves:
    if m.s.fence != m.p.e and "cut_unfenced" not in m.v:
        yield m.go("is fenced", "over")
    else:
        yield m.go(f"CUT{m.p.e, phase}", after, cuts=(*m.s.cuts, (m.p.e, phase)))


def kept(m: Mover) -> tuple[list[Root], list[Root]]:
    """Return the manifests that this run keeps, and those that it deletes, the oldest first."""
    counted = chain_of(m.s, max(cut for cut in m.s.cuts if cut[0] <= m.p.e))
    stay = counted[:KEPT]
    deletable = [root for root in m.s.roots if root not in stay and root.name[0] < m.p.e]
    return stay, sorted(deletable)


def forgets(m: Mover) -> Moves:
    stay, deletable = kept(m)
    if not stay and "own_gone" not in m.v:
        yield m.go("finds its own manifest missing: fenced", "over")
        return
    named = {piece for root in stay for entry in root.entries for piece in entry.chain}
    old = [p for p in sorted(m.s.pieces) if p not in named and (p.e < m.p.e or "any_piece" in m.v)]
    if deletable and "roots_last" not in m.v:
        yield m.go(f"deletes manifest {deletable[0].name}", "forgets", roots=m.s.roots - {deletable[0]})
    else:
        yield m.go("has deleted older manifests", "forgets pieces", {"x": tuple(old)})


def forgets_pieces(m: Mover) -> Moves:
    if m.p.x:
        yield m.go(f"deletes {m.p.x[0]}", "forgets pieces", {"x": m.p.x[1:]}, pieces=m.s.pieces - {m.p.x[0]})
        return
    shown = done_at(kept(m)[0][-1] if "roots_last" in m.v and kept(m)[0] else min(m.s.roots))
    if "no_horizon" in m.v:
        shown = tuple(log.done for log in m.s.logs)
    superseded = tuple(file for file in sorted(m.s.files) if file[1] < shown[file[0]])
    yield m.go(f"finds {superseded} superseded", "retires", {"x": superseded})


def retires(m: Mover) -> Moves:
    if m.p.x:
        yield m.go(f"deletes file {m.p.x[0]}", "retires", {"x": m.p.x[1:]}, files=m.s.files - {m.p.x[0]})
    else:
        yield m.go("has deleted superseded files", "seal 0")


def recovers(m: Mover, bucket: int, after: str) -> Moves:
    log, p = m.s.logs[bucket], m.p
    if log.fence > p.e:
        yield m.go("is fenced", "over")
        return
    yield m.go(f"can't read bucket {bucket}", after)
    if log.fence < p.e:
        yield m.go(f"fences bucket {bucket}", f"recover {bucket}", logs=m.log(bucket, fence=p.e))
        return
    if log.pending and m.scen.job and log.pending not in m.s.decided:
        yield m.go(f"drops the held sequence of {bucket}", f"recover {bucket}", logs=m.log(bucket, pending=0))
        return
    if log.pending:
        files = m.s.files | {(bucket, log.pending)}
        yield m.go(
            f"finishes bucket {bucket}",
            f"recover {bucket}",
            logs=m.log(bucket, pending=0, done=log.pending),
            files=files,
        )
    yield from reports(m, bucket, after)


def seals(m: Mover, bucket: int, after: str) -> Moves:
    log, p = m.s.logs[bucket], m.p
    if log.fence > p.e:
        yield m.go("is fenced", "over")
    elif log.fence < p.e or log.pending or p.entries[bucket] is None:
        yield m.go(f"leaves bucket {bucket} alone", after if not m.scen.job else "drained 0")
    else:
        yield m.go(f"seals in bucket {bucket}", after, logs=m.log(bucket, pending=p.e))


def closes(m: Mover, bucket: int, after: str) -> Moves:
    log, p = m.s.logs[bucket], m.p
    if log.fence > p.e:
        yield m.go("is fenced", "over")
    elif log.pending != p.e:
        yield m.go(f"has no sequence in bucket {bucket}", after)
    else:
        files = m.s.files | {(bucket, p.e)}
        yield m.go(f"closes bucket {bucket}", after, logs=m.log(bucket, pending=0, done=p.e), files=files)
        yield m.go(f"leaves bucket {bucket} pending", after)


def decides(m: Mover) -> Moves:
    if not m.scen.job:
        yield m.go("has nothing to decide", "close 0")
    elif m.s.fence != m.p.e:
        yield m.go("is fenced", "over")
    else:
        yield m.go("decides", "close 0", decided=m.s.decided | {m.p.e})


def begins(m: Mover) -> Moves:
    e = m.s.fence + 1
    yield m.go(f"FENCE({e})", "recover 0", {"e": e}, fence=e)


def drained(m: Mover, bucket: int, after: str) -> Moves:
    """Report a bucket after the drain, or fail and report nothing."""
    clean = m.p._replace(open=False) if bucket == 0 else m.p
    cleaned = Mover(m.s._replace(procs=(*m.s.procs[: m.i], clean, *m.s.procs[m.i + 1 :])), m.i, m.scen)
    yield from reports(cleaned, bucket, after)
    entries = list(clean.entries)
    entries[bucket] = None
    yield cleaned.go(f"reports nothing for bucket {bucket}", after, {"entries": tuple(entries)})


def run(m: Mover) -> Moves:
    match m.p.phase.split():
        case ["begin"]:
            yield from begins(m)
        case ["recover", "0"]:
            yield from recovers(m, 0, "recover 1")
        case ["recover", "1"]:
            yield from recovers(m, 1, "root 1")
        case ["root", phase]:
            late = "root_late" in m.v
            yield from cuts(m, int(phase), f"late {phase}") if late else puts_root(m, int(phase), f"cut {phase}")
        case ["late", phase]:
            yield from puts_root(m, int(phase), "forgets" if phase == "1" else "over")
        case ["cut", phase]:
            yield from cuts(m, int(phase), "forgets" if phase == "1" else "over")
        case ["forgets"]:
            yield from forgets(m)
        case ["forgets", "pieces"]:
            yield from forgets_pieces(m)
        case ["retires"]:
            yield from retires(m)
        case ["seal", "0"]:
            yield from seals(m, 0, "seal 1")
        case ["seal", "1"]:
            yield from seals(m, 1, "decide")
        case ["decide"]:
            yield from decides(m)
        case ["close", "0"]:
            yield from closes(m, 0, "close 1")
        case ["close", "1"]:
            yield from closes(m, 1, "drained 0")
        case ["drained", "0"]:
            yield from drained(m, 0, "drained 1")
        case ["drained", "1"]:
            yield from drained(m, 1, "root 2")


def reader(m: Mover) -> Moves:
    s, p = m.s, m.p
    if p.phase == "begin":
        root = by_name(s)[newest(s)]
        yield m.go(f"takes {root.name}", "list 0", {"x": (root,)})
        return
    root = p.x[0]
    if p.phase in ("list 0", "list 1"):
        bucket = int(p.phase[-1])
        seen = (bucket, done_at(root)[bucket]) in s.files
        yield m.go(f"lists {bucket}", "list 1" if bucket == 0 else "look", {"x": (*p.x, seen)})
    elif root in s.roots or "no_look" in m.v:
        wrong = "" if all(p.x[1:]) else "A PART WAS READ"
        yield m.go("succeeds", "over", bad=wrong)
    else:
        yield m.go("is told that the cut was deleted", "over")


def moves(s: State, scen: Scen) -> Moves:
    for i, p in enumerate(s.procs):
        if p.phase != "over":
            yield from (reader if p.kind == "reader" else run)(Mover(s, i, scen))


# ---- scenarios
def scenario(name: str, switches: str = "") -> Scen:
    first = tuple(Piece(1, bucket, 1, 1) for bucket in BUCKETS)
    entries = tuple(Entry((piece,), 1) for piece in first)
    root = Root((1, 2), (0, 0), entries)
    planning = Proc("A", e=2, phase="root 1", entries=tuple(entry._replace(e=2) for entry in entries))
    procs = {
        "runs": (planning, Proc("B")),
        "job": (planning, Proc("B")),
        "reader": (planning, Proc("B"), Proc("R", "reader")),
        "job of three": (planning, Proc("B"), Proc("C")),
    }[name]
    logs = tuple(Log(fence=2, number=2) for _ in BUCKETS)
    files = frozenset((bucket, 1) for bucket in BUCKETS)
    init = State(2, ((1, 2),), frozenset(), logs, frozenset((root,)), frozenset(first), files, procs)
    return Scen(name, frozenset(switches.split()), init, name.startswith("job"))


DESIGN = ("runs", "job", "reader", "job of three")
NAIVE = (
    ("runs", "root_late", "the manifest is put after CUT"),
    ("job", "cut_unfenced", "CUT of a fenced run counts"),
    ("job", "half_a_job", "a manifest moves on while a decided sequence is open"),
    ("job", "unread_ignored", "a manifest moves on though an unread bucket may be behind a decision"),
    ("runs", "any_piece", "deltas that no retained manifest names are deleted, whichever run put them"),
    ("job of three", "own_gone", "a run whose own manifest is missing deletes all deltas as unreferenced"),
    ("runs", "no_horizon", "superseded files are deleted once their sequence is done"),
    ("runs", "roots_last", "superseded files are deleted before the manifests that need them"),
    ("reader", "no_look", "a reader does not check the manifest again"),
)


def explore(name: str, switches: str = "", limit: int = 400_000, walks: int = 3_000) -> tuple[str, int, list[str]]:
    """Return the violation (`none`: none in any state; `none*`: none up to the limit and on walks from there), the
    number of states, and a history that leads to the violation.
    """
    scen = scenario(name, switches)
    return search.explore(scen, scen.init, limit, walks, 1, moves, check)


if __name__ == "__main__":
    model_command(explore, DESIGN, NAIVE)
