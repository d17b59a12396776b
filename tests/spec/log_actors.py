"""Actors on logs and files, for `log_scenarios`: committers, runs, operators, rebuilds and publishers of cuts.

Log 0 is the job log; logs 1.. are buckets with one dataset each. An actor's move is one atomic effect: fold and decide
| put | one rename | one delete. A crash needs no move: an actor that never moves again has crashed, and no invariant
waits for an actor. So "any actor takes its next move at any time" covers twins, zombies of older epochs and crashes at
any point.

At-least-once delivery: epochs in `Scen.loose` publish their files first. A record of these epochs may be published
twice, but is never missing.

Two publishers of one run's cuts and one of the next read bucket by bucket. A reader of a cut sees the sequences that
are DONE there or, if a whole job is published at once, at the cut's `root`.

A store that is older than its output: markers in the output record the newest epoch that has begun, and a rebuild that
has not ended. A run reads them before its fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.spec.log_model import BY_OPERATOR, DS, Cut, Fold, Head, Log, Rec, Seq, Switches, fold, valid

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
        fails, leaves, unread: actors that may give up a sequence, may leave it pending, cannot read.
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


Moves = Iterator[tuple[str, State]]


# ---- storage
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


def put(m: Mover) -> Moves:
    """The put itself: its answer decides nothing."""
    s, v, (log, number, r, following) = m.s, m.v, m.p.x
    if number in dict(s.logs[log]):
        if "blind_retry" not in v or r.kind != "INTENT":
            yield m.go(f"put {log}/{number} lost", want=0)
        else:
            again = (log, fold(s.logs[log], v)[1], r, following)
            yield m.go(f"{number} is taken, same payload again", "put", x=again)
        return
    logs = (*s.logs[:log], tuple(sorted((*s.logs[log], (number, r)), key=lambda one: one[0])), *s.logs[log + 1 :])
    if following and ("act_on_put" in v or r.kind == "DONE"):
        yield m.go(f"put {show(r)} at {log}/{number}", "exec", logs=logs, x=following)
    else:
        yield m.go(f"put {show(r)} at {log}/{number}", logs=logs)


def execute(m: Mover) -> Moves:
    """The steps of one sequence, one rename per move."""
    s, p, v, scen = m.s, m.p, m.v, m.scen
    b, q, k = p.x[:3]
    loose = q.e in scen.loose
    if k == len(q.files):
        yield m.go("executed", did=(b, q) if loose else (b, q.e))
        return
    file, staged, final = q.files[k], dict(s.staged), dict(s.final)
    source, target, following = staged_path(file, v), final_path(file, v), (b, q, k + 1)
    f, number, _ = fold(s.logs[b], v)
    failed, left = Rec("FAILED", p.e, q.e), Rec("LEFT", p.e, q.e)
    if p.id in scen.fails and valid(failed, f, v):  # may give up here, for any reason
        yield m.go("gives up", "put", x=(b, number, failed, ()))
    if p.id in scen.leaves and not p.want and valid(left, f, v):  # may leave it pending, once: an outage
        yield m.go("leaves it", "put", x=(b, number, left, ()), want=1)
    if "target_first" in v and len(p.x) == 3:
        yield m.go("probes target", "exec", x=(*p.x, final.get(target) == file))
        return
    if source in staged and (target not in final or "same_final" in v):  # rename, without replacing
        others = frozenset(one for one in s.final if one[0] != target)
        renamed = staged[source]
        yield m.go(f"renames {file.a}[{file.lo},{file.hi})", "exec", x=following,
                   staged=s.staged - {(source, renamed)}, final=others | {(target, renamed)})  # fmt: skip
    elif p.x[3] if "target_first" in v else final.get(target) == file:
        yield m.go(f"step {k} already done", "exec", x=following)
    elif loose:
        yield m.go("gone, so done", "exec", x=following) if "gone_is_done" in v else m.go("gone: not published")
    else:  # LOST needs a fold that still shows the sequence pending, unless a rebuild has swept
        lost = f.ds.state == "pending" and f.ds.seq == q and not (scen.stale and f.fence > p.e)
        yield m.go("LOST" if lost else "no longer pending", bad="FALSE LOST" if lost else "")


# ---- actors
def look(m: Mover) -> Moves:
    """Fold, then decide. A slow reader lists in one move and reads in a later one: names have only the number."""
    if m.p.id in m.scen.slow:
        yield m.go("lists", "read", x=tuple(number for number, _ in m.s.logs[1]))
    else:
        yield from ACTORS[m.p.kind](m)


def read(m: Mover) -> Moves:
    now: dict[int, Rec] = dict(m.s.logs[1])
    got: list[tuple[int, Rec]] = []
    for number in sorted(m.p.x, reverse=True):
        if number not in now:
            break
        got.append((number, now[number]))
        if now[number].kind == "CHECKPOINT":
            break
    base = max(number for number, r in now.items() if r.kind == "CHECKPOINT")
    whole = got and got[-1][1].kind == "CHECKPOINT"
    if not whole or ("no_relist" not in m.v and got[-1][0] != base):
        yield m.go("lists again")  # a number is missing, or the base is not the newest one
    else:
        yield from ACTORS[m.p.kind](Mover(m.s, m.i, m.scen, (m.s.logs[0], tuple(reversed(got)))))


def worker(m: Mover) -> Moves:
    """Act as a committer (kind `twin`) or as a whole run: fence, replay, sweep, plan, ingest, seal, execute, close."""
    p, v = m.p, m.v
    if not p.e:
        yield from _fences_job(m)
        return
    folds = [(b, m.seen(b)[0]) for b in m.scen.buckets]
    late = "no_fence" in v or ("unread_late" in v and p.phase == "unread")
    if any(f.fence > p.e for _, f in folds) and not late:
        yield m.go("fenced", "end")
        return
    free = [(b, f.ds) for b, f in folds if f.ds.state == "idle" and f.ds.wm < HIGH]
    stops = [b for b, t in free if t.unread and t.unread.stopped and "plan_stopped" not in v]
    plan = tuple((b, t.wm, t.gen) for b, t in free if b not in stops)
    match p.phase:
        case "recover":
            yield from _recovers(m, folds, plan)
        case "plan" if m.scen.held or m.seen(0)[0].heads:  # (recovers only, in these scenarios)
            yield m.go("ends", "end")
        case "plan":
            yield m.go(f"plans from {[wm for _, wm, _ in plan]}", plan=p.plan or plan, phase="write")
        case "write":
            yield from _ingests(m)
        case "unread":
            yield from _counts_read_failures(m)
        case _:
            yield from _commits(m)


def _fences_job(m: Mover) -> Moves:
    """The epoch is the number of this actor's FENCE in the job log."""
    p, v = m.p, m.v
    f, number = m.seen(0)
    if not p.want:
        epoch = max(number, f.fence + 1)
        if not is_stale(m.s, m.scen, f):
            yield m.append(0, Rec("FENCE", epoch, p.id), want=epoch)
    elif "rule3_literal" in v and fold(m.view[0], v)[2] > p.want:
        yield m.go("counts for nothing", "end", bad="NEWEST RUN ENDS ITSELF" if f.owner == p.id else "")
    elif f.owner == p.id or ("fence_by_number" in v and f.fence == p.want):
        twice = any(other.kind == "run" and other.e == p.want for other in m.s.procs)
        yield m.go(f"is epoch {p.want}", e=p.want, bad="TWO RUNS OF ONE EPOCH" if twice else "")
    else:
        yield m.go("fenced", "end")


def _swept(m: Mover, b: int) -> frozenset[File]:
    return frozenset(one for one in m.s.staged if not (one[1].d == b and one[1].e < m.p.e))


def _pending(m: Mover, b: int, f: Fold, q: Seq) -> Moves:
    """Continue a sequence."""
    p, (job, _) = m.p, m.seen(0)
    if q.held and q.e not in job.decided:
        if q.e < p.e:
            yield m.append(b, Rec("DROP", p.e, q.e))
        elif job.fence > p.e:
            yield m.go("fenced", "end")
    elif "done_first" in m.v:
        yield m.append(b, Rec("DONE", p.e, q.e), (b, q, 0))
    elif p.did != (b, q.e):
        yield m.go(f"sees ({b},{q.e}) pending", "exec", x=(b, q, 0))
    elif valid(Rec("DONE", p.e, q.e), f, m.v):
        yield m.append(b, Rec("DONE", p.e, q.e))
    else:
        yield m.go("may not close it", "end")


def _recovers(m: Mover, folds: list[tuple[int, Fold]], plan: tuple[Any, ...]) -> Moves:
    p, v = m.p, m.v
    if "plan_early" in v and not p.plan:
        yield m.go("plans early", plan=plan or ((1, HIGH, 0),))
        return
    for b, f in folds:
        if f.fence < p.e:
            if "sweep_early" in v and f.ds.state == "idle" and _swept(m, b) != m.s.staged:
                yield m.go("sweeps before its fence", staged=_swept(m, b))
            else:
                yield m.append(b, Rec("FENCE", p.e, p.id))
            return
    for b, f in folds:
        t = f.ds
        # Executed, while a twin gave up: DONE ends the quarantine.
        closes = t.seq and p.did == (b, t.seq.e) and t.state == "quarantined"
        if t.seq and (t.state == "pending" or ("revoke_open" in v and t.state == "revoking") or closes):
            yield from _pending(m, b, f, t.seq)
            return
    may_sweep = [b for b, f in folds if "sweep_regardless" in v or not (f.ds.seq and f.ds.seq.e < p.e)]
    yield m.go("recovered", "sweep", x=tuple(may_sweep), phase="plan")


def _ingests(m: Mover) -> Moves:
    """Write staged files, then the row among the task states."""
    s, p, v = m.s, m.p, m.v
    parts = {"Ta": ((0, 1),), "Tb": ((0, 1), (1, 2))}
    rows = [
        tuple(Ident(b, p.e, p.id, lo, hi, gen) for lo, hi in parts.get(p.id, ((low, HIGH),)))
        for b, low, gen in p.plan
        if low < HIGH
    ]
    new = {staged_path(file, v): file for row in rows for file in row}
    if p.id in m.scen.unread:
        yield m.go("can not read", phase="unread")
    staged = frozenset(one for one in s.staged if one[0] not in new) | set(new.items())
    yield m.go("writes", rows=s.rows | set(rows), phase="seal", staged=staged)


def _counts_read_failures(m: Mover) -> Moves:
    """Act as the drain: one record for read failures."""
    for b, low, gen in m.p.plan:
        r = Rec("UNREAD", m.p.e, (low, HIGH, gen))
        if valid(r, m.seen(b)[0], m.v) and m.p.want != "told":
            yield m.append(b, r, want="told" if "unread_twice" in m.v else 0)
            return
    yield m.go("ends", "end")


def _commits(m: Mover) -> Moves:
    """Seal, execute, close, clean up."""
    s, p, v, scen = m.s, m.p, m.v, m.scen
    for b, low, gen in p.plan:
        f, _ = m.seen(b)
        if f.ds.state == "pending" and f.ds.seq:
            yield from _pending(m, b, f, f.ds.seq)
            return
        if p.e in scen.loose and p.did and p.did[0] == b:  # its files are published: one record seals and closes them
            q = p.did[1]
            if "high_of_another" in v:
                q = q._replace(to=max(row[-1].hi for row in s.rows if row[0][:2] == (b, p.e)))
            r = Rec("PUBLISHED", p.e, q)
            if valid(r, f, v):
                yield m.append(b, r)
                return
        seals = [r for r in _seals(m, b, low, gen) if valid(r, f, v)]
        if seals and p.e not in scen.loose:
            yield from [m.append(b, r, (b, r.arg, 0)) for r in seals]
            return
        if seals and "record_first" in v:
            yield from [m.append(b, r._replace(kind="PUBLISHED")) for r in seals]
            return
        if seals:
            yield from [m.go(f"begins with {r.arg.files[0].a}", "exec", x=(b, r.arg, 0)) for r in seals]
            return
        left = frozenset(one for one in s.staged if one[1][:2] == (b, p.e))
        if f.ds.state == "idle" and f.ds.done == p.e and left:  # aborted attempts: only of a sequence READ as DONE
            yield m.go("cleans up", staged=s.staged - left)
            return
    yield m.go("ends", "end")


def _seals(m: Mover, b: int, low: int, gen: int) -> Iterator[Rec]:
    """Yield a record for each row whose files are there."""
    s, p, v, scen = m.s, m.p, m.v, m.scen
    staged = dict(s.staged)
    for row in sorted(row for row in s.rows if row[0][:2] == (b, p.e) and row[0].gen == gen and row[0].lo == low):
        published = p.e in scen.loose
        if all(
            staged_path(file, v) in staged or (published and (final_path(file, v), file) in s.final) for file in row
        ):
            yield Rec("INTENT", p.e, Seq(b, p.e, row, low, low if scen.flat else row[-1].hi, gen, scen.held))


def is_stale(s: State, scen: Scen, f: Fold) -> bool:
    """Return whether the output's markers forbid a run: by the newest run of a lost store or an unfinished rebuild."""
    marks = [(other.e, other.phase == "ended") for other in s.procs if other.kind == "rebuilder" and other.e]
    began = max((e for e, _ in marks), default=0)
    ended = max((e for e, end in marks if end), default=0)
    return scen.stale > f.fence or began > ended


def sweep(m: Mover) -> Moves:
    yield m.go("sweeps", staged=frozenset(one for one in m.s.staged if one[1].d not in m.p.x or one[1].e >= m.p.e))


def keeper(m: Mover) -> Moves:
    """Put checkpoints and truncate, in any order, as any actor may."""
    s, p, log = m.s, m.p, m.s.logs[m.p.plan]
    f, number, base = fold(log, m.v)
    checkpoints = sorted(number for number, r in log if r.kind == "CHECKPOINT")
    if p.want < 0 and base != checkpoints[0] and len(checkpoints) > 1 and log[0][0] < checkpoints[-2]:
        low = [number for number, _ in log if number < checkpoints[-2]]
        for gone in [{number} for number in low] if m.scen.slow else [set(low)]:
            left = tuple(one for one in log if one[0] not in gone)
            yield m.go(f"deletes {sorted(gone)}", logs=(*s.logs[: p.plan], left, *s.logs[p.plan + 1 :]))
    if p.phase:
        if "ck_forgets" in m.v:
            f = f._replace(decided=frozenset(), heads=tuple(Head(head.bucket, 0, None) for head in f.heads))
        checkpoint = (p.plan, number, Rec("CHECKPOINT", 0, f), ())
        yield m.go("decides CHECKPOINT", "put", x=checkpoint, phase=p.phase - 1, want=-1)


def driver(m: Mover) -> Moves:
    """Decide on the whole job: one DECIDE, in the job log."""
    s, p, v, buckets = m.s, m.p, m.v, m.scen.buckets
    f, number, _ = fold(s.logs[0], v)
    sealed = all(fold(s.logs[b], v)[0].ds.closed == p.e for b in buckets)
    if "decide_ready" in v:
        sealed = {row[0].d for row in s.rows} == set(buckets)
    r = Rec("DECIDE", p.e)
    if p.e in f.decided or not valid(r, f, v):
        yield m.go("ends", "end")
    elif sealed:
        yield m.go("decides DECIDE", "put", x=(0, number, r, ()))


def cutter(m: Mover) -> Moves:
    """Publish cuts of one run: read head after head, then append CUT. Without an epoch it uses that of run R."""
    p, v, got, buckets = m.p, m.v, m.p.plan, m.scen.buckets
    job, number = m.seen(0)
    e = p.e or next(other.e for other in m.s.procs if other.id == "R")
    own = e > 0 and (job.fence == e or "cut_late" in v)
    if e and job.fence > e and not own:
        yield m.go("fenced", "end")
        return
    if not own or not p.want:
        return  # its run has not begun, or all its cuts are recorded
    if len(got) < len(buckets):
        b = buckets[len(got)]
        f, after = m.seen(b)
        older = f.ds.state == "pending" and f.ds.seq is not None and f.ds.seq.e < e and "cut_early" not in v
        if f.fence > e and "any_fold" not in v:
            yield m.go("fenced", "end")
        elif "any_fold" in v or (f.fence == e and not older):
            head = Head(b, after - 1, dict(m.view[b])[after - 1])
            yield m.go(f"reads head {after - 1} of {b}", plan=(*got, head), did=p.did if got else e in job.decided)
        return
    folds = [fold(tuple(one for one in m.view[head.bucket] if one[0] <= head.number), v)[0] for head in got]
    half = any(f.ds.seq and f.ds.seq.held for f in folds)  # (of a decided epoch, or of one that still may be)
    unsure = m.scen.held and not p.did and any(f.ds.done == e for f in folds)  # sealed after a head was read
    stays = (half and "root_moves" not in v) or (unsure and "root_unread" not in v)
    root = (job.cut.root if job.cut else ()) if stays else got
    r = Rec("CUT", e, Cut(e, 1 if f"C{e}" in p.id else 2, got, root))
    if valid(r, job, v):
        yield m.go(f"decides {show(r)}", "put", x=(0, number, r, ()), plan=(), want=p.want - 1)
    else:
        yield m.go("a head is below the last one", plan=())


def person(m: Mover) -> Moves:
    """Act as an operator: set a watermark, or release a quarantined dataset."""
    p, v = m.p, m.v
    f, number, _ = fold(m.s.logs[1], v)
    t = f.ds
    match p.phase:
        case "import":  # the command is given twice: its answer was lost
            r = Rec("SETS", 0, 1)
            present, as_seen = t.wm == 1 and t.closed >= f.fence, t.wm == 0 or "sets_blind" in v
            if p.want < 2 and not present and as_seen and valid(r, f, v):
                yield m.go("decides SETS", "put", x=(1, number, r, ()), want=p.want + 1)
            else:
                yield m.go("ends", "end")
        case "head" if t.gen:
            yield from _anchors(m)
        case "again":
            if t.unread and t.unread.stopped:
                yield m.go("decides READ-AGAIN", "put", x=(1, number, Rec("READ-AGAIN", 0, t.unread.e), ()))
        case "set" | "head":
            r = Rec("SET", 0, 0)
            if t.gen:
                yield m.go("ends", "end")
            elif valid(r, f, v):
                yield m.go("decides SET", "put", x=(1, number, r, ()), did=p.did or (number, r))
        case _:
            yield from _releases(m, t, number)


def _anchors(m: Mover) -> Moves:
    """Anchor the operator's record by its own number."""
    job, number, _ = fold(m.s.logs[0], m.v)
    at, there = max((number, r) for number, r in m.s.logs[1] if r.kind == "SET")
    r = Rec("HEAD", 0, (Head(1, *m.p.did) if "head_of_put" in m.v and m.p.did else Head(1, at, there),))
    if valid(r, job, m.v) and not m.p.want:
        yield m.go(f"decides {show(r)}", "put", x=(0, number, r, ()), want=m.p.want + ("head_back" in m.v))
    else:
        yield m.go("ends", "end")


def _releases(m: Mover, t: DS, number: int) -> Moves:
    p = m.p

    def decides(kind: str, **actor: Any) -> tuple[str, State]:
        return m.go(f"decides {kind}", "put", x=(1, number, Rec(kind, 0, t.seq and t.seq.e), ()), **actor)

    if p.phase == "stop" and p.want < 2 and t.state in _stoppable(m.v):  # no actor may continue it
        yield decides("QUARANTINE", want=2)
    if t.state == "revoking" and t.seq:
        if p.did == t.seq.e:
            yield decides("ABANDONED")
        else:
            steps = [*(("staged", file) for file in t.seq.files), *(("final", file) for file in t.seq.files)]
            order = tuple(reversed(steps)) if "targets_first" in m.v else tuple(steps)
            yield m.go("takes away", "take", x=order, did=t.seq.e)
    elif t.state == "quarantined":
        yield decides("REVOKING")
        if p.want in (0, 2):
            yield decides("RETRY", want=p.want + 1)


def _stoppable(v: Switches) -> tuple[str, ...]:
    needed, _ = BY_OPERATOR["QUARANTINE"]
    return (needed, "revoking") if "stop_revoking" in v else (needed,)


def rebuilder(m: Mover) -> Moves:
    """Rebuild a store that is older than its output from the published files."""
    s, p, v = m.s, m.p, m.v
    (job, _), (f, _) = m.seen(0), m.seen(1)
    early = "look_early" in v
    after = {
        "fence": "look" if early else "sweep",
        "sweep": "rebuilt" if early else "look",
        "look": "sweep" if early else "rebuilt",
        "rebuilt": "aside",
    }
    match p.phase:
        case "mark":  # from here on no run begins
            e = max(m.scen.stale, job.fence, *(other.e for other in s.procs)) + 1
            yield m.go(f"marks {e}", e=e, phase="fence")
        case "fence":
            if job.fence < p.e:
                yield m.append(0, Rec("FENCE", p.e, p.id))
            elif (job.fence, job.owner) != (p.e, p.id) or f.fence > p.e:
                yield m.go("fenced", "end")
            elif f.fence < p.e:
                yield m.append(1, Rec("FENCE", p.e, p.id))
            else:
                yield m.go("has fenced", phase=after["fence"])
        case "sweep":  # without staged files no zombie publishes after the check
            left = frozenset(one for one in s.staged if one[1].e >= p.e and "sweep_newer" not in v)
            yield m.go("sweeps", staged=left, phase=after["sweep"])
        case "look":
            yield from _looks_at_output(m, f.ds, after["look"])
        case "rebuilt":
            wm, done, _ = p.plan
            r = Rec("REBUILT", p.e, DS(wm, f.ds.gen, None, "idle", p.e, done, f.ds.origin))
            if f.fence != p.e and "rebuilt_late" not in v:
                yield m.go("fenced", "end")
            elif f.ds != r.arg:
                yield m.append(1, r)
            else:
                yield m.go("has rebuilt", phase=after["rebuilt"])
        case _ if p.plan[2]:
            gone = {(final_path(file, v), file) for file in p.plan[2][:1]}
            yield m.go("sets a file aside", final=s.final - gone, plan=(*p.plan[:2], p.plan[2][1:]))
        case _:
            yield m.go("ends", "end", phase="ended")


def _looks_at_output(m: Mover, t: DS, following: str) -> Moves:
    """The newest epoch counts up to its first gap."""
    files = sorted((file for _, file in m.s.final if file.e > t.done), key=lambda file: (file.lo, file.e))
    wm, whole = t.wm, []
    for file in files:
        if file.lo == wm:
            whole.append(file)
            wm = file.hi
    done = max((file.e for file in whole), default=t.done)
    aside = tuple(file for file in files if file not in whole)
    yield m.go(f"looks: up to {wm}", phase=following, plan=(wm, done, aside))


def take(m: Mover) -> Moves:
    """Take one file of an abandoned sequence away."""
    where, file = m.p.x[0]
    path = (staged_path if where == "staged" else final_path)(file, m.v)
    left = getattr(m.s, where) - {(path, file)}
    label, rest = f"removes {where} {file.a}[{file.lo},{file.hi})", m.p.x[1:]
    pc = "take" if rest else "look"
    yield m.go(label, pc, x=rest, staged=left) if where == "staged" else m.go(label, pc, x=rest, final=left)


ACTORS: dict[str, Callable[[Mover], Moves]] = {
    "twin": worker,
    "run": worker,
    "cutter": cutter,
    "keeper": keeper,
    "driver": driver,
    "person": person,
    "rebuilder": rebuilder,
}
ACTIONS = {"look": look, "read": read, "put": put, "exec": execute, "sweep": sweep, "take": take}


def moves(s: State, scen: Scen) -> Moves:
    """Yield every move that is possible, and the state after it."""
    for i, p in enumerate(s.procs):
        if p.pc != "end":
            yield from ACTIONS[p.pc](Mover(s, i, scen))
