#!/usr/bin/env python3
"""Executable reference model of the commit-log protocol of distcommit (DESIGN.md, section 4).

    python log_model.py --all                       the table: every scenario as designed, and every naive variant
    python log_model.py held ck_forgets             one scenario (with naive switches), history printed in full

What is modelled.  A log is a folder of numbered segments; put-if-absent is the only write, delete is truncation.  Log 0
is the job log, logs 1.. are buckets with one dataset each.  `valid` is the table of record validity and `apply` the fold;
*one* function `valid` serves the writer (before its put) and every reader (an invalid record is ignored).  Actors are
generators of (label, next state).  One action = one atomic effect: fold and decide | put | one rename | one delete.
A crash needs no action: an actor that never moves again is one, and no invariant waits for anybody.  So twins, zombies
of older epochs and crashes at any point are all contained in "any actor takes its next action at any time".

Invariants, on every state: no source record published twice; nothing missing below a watermark, nothing above it
without a sealed sequence; each file of a pending or quarantined sequence is staged or final; no false LOST; one run per
epoch; job-level full is all or nothing; and when nobody can move any more, nothing is left pending.

Not modelled: fsync and power loss, several datasets in one record, steps other than rename, change of B, ADOPT.
BFS is exhaustive up to --limit states; beyond it, --walks random walks seeded with --seed start from its frontier.
"""

import argparse, random, time
from collections import deque, namedtuple
from functools import lru_cache

HIGH = 2  # the source holds records 0 and 1
Ident = namedtuple("Ident", "d e a lo hi gen")  # identity of one file: dataset, epoch, attempt, records
Seq = namedtuple("Seq", "d e files lo to gen held")  # a sealed sequence is named (d, e)
DS = namedtuple("DS", "wm gen seq state closed done")  # state: idle, pending, quarantined, revoking
Fold = namedtuple("Fold", "fence owner decided ds")  # owner: the RUN behind the newest fence, not only its number
Rec = namedtuple("Rec", "kind e arg")  # e: epoch of the WRITER (None: by hand)
Proc = namedtuple("Proc", "id kind e pc x phase plan did want")
State = namedtuple("State", "logs staged final rows procs bad")
Scen = namedtuple("Scen", "name buckets flat held slow fails V init")


# ---- pure protocol: validity, fold
def valid(r, f, V):
    """The table of record validity: may `r` follow a log whose fold is `f`?"""
    t, k = f.ds, r.kind
    fenced_in = r.e == f.fence or "no_fence" in V  # "newest fence = epoch of the writer"
    if k == "CHECKPOINT":
        return True
    if k == "FENCE":
        return r.e > f.fence
    if k == "DECIDE":
        return r.e == f.fence or "decide_unfenced" in V
    if k == "INTENT":
        return (
            fenced_in
            and t.state == "idle"
            and (t.closed < r.e or "no_closed" in V)
            and (t.wm == r.arg.lo or "no_wm" in V)
        )
    if k == "SET":
        return t.state == "idle"
    this = t.seq is not None and t.seq.e == r.arg  # the sequence is named by ITS epoch, whoever writes
    if k == "DONE":
        return (
            fenced_in
            and this
            and t.state in ("pending", "quarantined", "revoking")[: 3 if "revoke_open" in V else 2]
            and (r.e == t.seq.e or "own_is_seq" not in V)
        )
    if k == "FAILED":
        return fenced_in and this and t.state == "pending"
    if k == "DROP":
        return fenced_in and this and t.state == "pending" and t.seq.held and t.seq.e < r.e
    if k in ("RETRY", "REVOKING"):
        return this and t.state == "quarantined"
    if k == "ABANDONED":
        return this and t.state == "revoking"
    raise ValueError(k)


def apply(r, f):
    t, k = f.ds, r.kind
    if k == "FENCE":
        return f._replace(fence=r.e, owner=r.arg)
    if k == "DECIDE":
        return f._replace(decided=f.decided | {r.e})
    if k == "CHECKPOINT":
        return r.arg
    if k == "INTENT":
        t = t._replace(seq=r.arg, state="pending", closed=r.e)
    elif k == "DONE" and t.seq:
        t = t._replace(wm=t.seq.to, done=t.seq.e, seq=None, state="idle")
    elif k in ("FAILED", "RETRY", "REVOKING"):
        t = t._replace(state={"FAILED": "quarantined", "RETRY": "pending", "REVOKING": "revoking"}[k])
    elif k in ("DROP", "ABANDONED"):
        t = t._replace(seq=None, state="idle")
    elif k == "SET":
        t = t._replace(wm=0, gen=t.gen + 1, closed=t.closed if "set_open" == r.arg else f.fence)
    return f._replace(ds=t)


@lru_cache(maxsize=None)
def fold(log, V):
    """(fold, next free number, number of the checkpoint it starts from)"""
    m = dict(log)
    base = max(n for n, r in log if r.kind == "CHECKPOINT")
    f, n = m[base].arg, base + 1
    while n in m:
        if "blind_retry" in V or valid(m[n], f, V):
            f = apply(m[n], f)
        n += 1
    return f, n, base


# ---- storage
def spath(f, V):
    return (f.d, f.lo) if "same_staged" in V else ("s",) + f


def fpath(f, V):
    return (f.d, "part", f.lo if f.e == 1 else 0) if "same_final" in V else ("f",) + f


def mover(s, i, p):
    def go(label, pc="look", logs=s.logs, staged=s.staged, final=s.final, rows=s.rows, bad=s.bad, **kw):
        q = p._replace(pc=pc, **{"x": (), **kw})
        return f"{p.id}: {label}", State(logs, staged, final, rows, s.procs[:i] + (q,) + s.procs[i + 1 :], bad)

    return go


def show(r):
    a = r.arg
    return (
        r.kind
        + (f"({r.e})" if r.e else "")
        + (f" {a.files[0].a}" if r.kind == "INTENT" else f" of {a}" if isinstance(a, int) else "")
    )


def put(s, i, p, S):  # the put itself: its answer decides nothing
    go, (l, n, r, nxt) = mover(s, i, p), p.x
    if n in dict(s.logs[l]):
        if "blind_retry" not in S.V or r.kind != "INTENT":
            return (yield go(f"put {l}/{n} lost", want=0))
        return (yield go(f"{n} is taken, same payload again", "put", x=(l, fold(s.logs[l], S.V)[1], r, nxt)))
    logs = s.logs[:l] + (tuple(sorted(s.logs[l] + ((n, r),))),) + s.logs[l + 1 :]
    if nxt and ("act_on_put" in S.V or r.kind == "DONE"):
        yield go(f"put {show(r)} at {l}/{n}", "exec", logs=logs, x=nxt)
    else:
        yield go(f"put {show(r)} at {l}/{n}", logs=logs)


def execute(s, i, p, S):  # the steps of one sequence, one rename per action
    go, (b, q, k), V = mover(s, i, p), p.x[:3], S.V
    if k == len(q.files):
        return (yield go("executed", did=(b, q.e)))
    f, st, fi = q.files[k], dict(s.staged), dict(s.final)
    src, dst, nxt = spath(f, V), fpath(f, V), (b, q, k + 1)
    if p.id in S.fails:  # may give up here, for whatever reason
        fo, n, _ = fold(s.logs[b], V)
        r = Rec("FAILED", p.e, q.e)
        if valid(r, fo, V):
            yield go("gives up", "put", x=(b, n, r, ()))
    if "target_first" in V and len(p.x) == 3:
        yield go("probes target", "exec", x=p.x + (fi.get(dst) == f,))
        return
    if src in st and (dst not in fi or "same_final" in V):  # rename, without replacing
        yield go(
            f"renames {f.a}[{f.lo},{f.hi})",
            "exec",
            x=nxt,
            staged=s.staged - {(src, st[src])},
            final=frozenset(z for z in s.final if z[0] != dst) | {(dst, st[src])},
        )
    elif p.x[3] if "target_first" in V else fi.get(dst) == f:
        yield go(f"step {k} already done", "exec", x=nxt)
    else:  # LOST needs a fold that still shows the sequence pending
        t = fold(s.logs[b], V)[0].ds
        lost = t.state == "pending" and t.seq == q
        yield go("LOST" if lost else "no longer pending", bad="FALSE LOST" if lost else s.bad)


# ---- actors
def look(s, i, p, S):
    """Fold, then decide.  A slow reader lists in one action and reads in a later one: names carry the number only."""
    if p.id not in S.slow:
        yield from ACT[p.kind](s, i, p, S, s.logs)
    else:
        yield mover(s, i, p)("lists", "read", x=tuple(n for n, _ in s.logs[1]))


def read(s, i, p, S):
    now, got, go = dict(s.logs[1]), [], mover(s, i, p)
    for n in sorted(p.x, reverse=True):
        if n not in now:
            break
        got.append((n, now[n]))
        if now[n].kind == "CHECKPOINT":
            break
    base = max(n for n, r in s.logs[1] if r.kind == "CHECKPOINT")
    if not got or got[-1][1].kind != "CHECKPOINT" or ("no_relist" not in S.V and got[-1][0] != base):
        return (yield go("lists again"))  # a number is missing, or the base is not the newest one
    yield from ACT[p.kind](s, i, p, S, (s.logs[0], tuple(sorted(got))))


def worker(s, i, p, S, view):
    """A committer (kind `twin`), or a whole run in one: fence, replay, sweep, plan, ingest, seal, execute, close."""
    V, go = S.V, mover(s, i, p)

    def F(l):
        return fold(view[l], V)[:2]

    def append(l, r, nxt=(), **kw):
        return go(f"decides {show(r)}", "put", x=(l, F(l)[1], r, nxt), **kw)

    def swept(b, e):
        return frozenset(z for z in s.staged if not (z[1].d == b and z[1].e < e))

    def pending(b, f, q):
        if q.held and q.e not in F(0)[0].decided:
            if q.e < p.e:
                yield append(b, Rec("DROP", p.e, q.e))
            elif F(0)[0].fence > p.e:
                yield go("fenced", "end")
        elif "done_first" in V:
            yield append(b, Rec("DONE", p.e, q.e), (b, q, 0))
        elif p.did != (b, q.e):
            yield go(f"sees ({b},{q.e}) pending", "exec", x=(b, q, 0))
        elif valid(Rec("DONE", p.e, q.e), f, V):
            yield append(b, Rec("DONE", p.e, q.e))
        else:
            yield go("may not close it", "end")

    if not p.e:  # epoch = number of my FENCE in the job log
        f, n = F(0)
        if not p.want:
            yield append(0, Rec("FENCE", n, p.id), want=n)
        elif "rule3_literal" in V and fold(view[0], V)[2] > p.want:
            yield go("counts for nothing", "end", bad="NEWEST RUN ENDS ITSELF" if f.owner == p.id else s.bad)
        elif f.owner == p.id or ("fence_by_number" in V and f.fence == p.want):
            twice = any(o.kind == "run" and o.e == p.want for o in s.procs)
            yield go(f"is epoch {p.want}", e=p.want, bad="TWO RUNS OF ONE EPOCH" if twice else s.bad)
        else:
            yield go("fenced", "end")
        return
    folds = [(b,) + F(b) for b in S.buckets]
    if any(f.fence > p.e for b, f, n in folds) and "no_fence" not in V:
        return (yield go("fenced", "end"))
    plan = tuple((b, f.ds.wm, f.ds.gen) for b, f, n in folds if f.ds.state == "idle" and f.ds.wm < HIGH)
    if p.phase == "recover":
        if "plan_early" in V and not p.plan:
            return (yield go("plans early", plan=plan or ((1, HIGH, 0),)))
        for b, f, n in folds:
            if f.fence < p.e:
                if "sweep_early" in V and f.ds.state == "idle" and swept(b, p.e) != s.staged:
                    yield go("sweeps before its fence", staged=swept(b, p.e))
                else:
                    yield append(b, Rec("FENCE", p.e, p.id))
                return
        for b, f, n in folds:
            if (
                f.ds.state in ("pending", "revoking" if "revoke_open" in V else "")
                or f.ds.seq
                and p.did == (b, f.ds.seq.e)
                and f.ds.state == "quarantined"
            ):  # (executed, while a twin gave up: DONE ends the quarantine)
                return (yield from pending(b, f, f.ds.seq))
        ok = [b for b, f, n in folds if "sweep_regardless" in V or not (f.ds.seq and f.ds.seq.e < p.e)]
        yield go("recovered", "sweep", x=tuple(ok), phase="plan")
    elif p.phase == "plan" and S.held:
        yield go("ends", "end")  # (recovers only, in this scenario)
    elif p.phase == "plan":
        yield go(f"plans from {[x[1] for x in plan]}", plan=p.plan or plan, phase="write")
    elif p.phase == "write":  # ingest: staged files, then the row in the TaskStateStore
        parts = {"Ta": ((0, 1),), "Tb": ((0, 1), (1, 2))}
        rows = [
            tuple(Ident(b, p.e, p.id, lo, hi, g) for lo, hi in parts.get(p.id, ((low, HIGH),)))
            for b, low, g in p.plan
            if low < HIGH
        ]
        new = dict((spath(f, V), f) for r in rows for f in r)
        yield go(
            "writes",
            rows=s.rows | set(rows),
            phase="seal",
            staged=frozenset(z for z in s.staged if z[0] not in new) | set(new.items()),
        )
    else:  # seal, execute, close, clean up
        for b, low, gen in p.plan:
            f = F(b)[0]
            if f.ds.state == "pending":
                return (yield from pending(b, f, f.ds.seq))
            seals = []
            for row in sorted(r for r in s.rows if r[0][:2] == (b, p.e) and r[0].gen == gen and r[0].lo == low):
                to = low if S.flat else row[-1].hi
                r = Rec("INTENT", p.e, Seq(b, p.e, row, low, to, gen, S.held))
                if all(spath(x, V) in dict(s.staged) for x in row) and valid(r, f, V):
                    seals.append(r)
            if seals:
                return (yield from [append(b, r, (b, r.arg, 0)) for r in seals])
            left = frozenset(z for z in s.staged if z[1][:2] == (b, p.e))
            if f.ds.state == "idle" and f.ds.done == p.e and left:  # losers: only of a sequence READ as DONE
                return (yield go("cleans up", staged=s.staged - left))
        yield go("ends", "end")


def sweep(s, i, p, S):
    yield mover(s, i, p)("sweeps", staged=frozenset(z for z in s.staged if z[1].d not in p.x or z[1].e >= p.e))


def keeper(s, i, p, S, view):  # anybody checkpoints (twice) and truncates, any order
    go, l = mover(s, i, p), p.plan
    f, n, base = fold(s.logs[l], S.V)
    cks = sorted(m for m, r in s.logs[l] if r.kind == "CHECKPOINT")
    if p.want < 0 and base != cks[0] and len(cks) > 1 and s.logs[l][0][0] < cks[-2]:
        low = [m for m, _ in s.logs[l] if m < cks[-2]]
        for cut in [{m} for m in low] if S.slow else [set(low)]:
            yield go(
                f"deletes {sorted(cut)}",
                logs=s.logs[:l] + (tuple(z for z in s.logs[l] if z[0] not in cut),) + s.logs[l + 1 :],
            )
    if p.phase:
        a = f._replace(decided=frozenset()) if "ck_forgets" in S.V else f
        yield go("decides CHECKPOINT", "put", x=(l, n, Rec("CHECKPOINT", None, a), ()), phase=p.phase - 1, want=-1)


def driver(s, i, p, S, view):  # job-level full: one DECIDE, in the job log
    go, (f, n, _) = mover(s, i, p), fold(s.logs[0], S.V)
    sealed = all(fold(s.logs[b], S.V)[0].ds.closed == p.e for b in S.buckets)
    if "decide_ready" in S.V:
        sealed = {r[0].d for r in s.rows} == set(S.buckets)
    r = Rec("DECIDE", p.e, None)
    if p.e in f.decided or not valid(r, f, S.V):
        yield go("ends", "end")
    elif sealed:
        yield go("decides DECIDE", "put", x=(0, n, r, ()))


def person(s, i, p, S, view):  # SET by hand; or the release of a quarantined dataset
    go, (f, n, _), t = mover(s, i, p), fold(s.logs[1], S.V), fold(s.logs[1], S.V)[0].ds
    if p.phase == "set":
        r = Rec("SET", None, "set_open" if "set_open" in S.V else "x")
        if t.gen:
            yield go("ends", "end")
        elif valid(r, f, S.V):
            yield go("decides SET", "put", x=(1, n, r, ()))
    elif t.state == "quarantined":
        yield go("decides REVOKING", "put", x=(1, n, Rec("REVOKING", None, t.seq.e), ()))
        if not p.want:
            yield go("decides RETRY", "put", x=(1, n, Rec("RETRY", None, t.seq.e), ()), want=1)
    elif t.state == "revoking":
        if p.did == t.seq.e:
            yield go("decides ABANDONED", "put", x=(1, n, Rec("ABANDONED", None, t.seq.e), ()))
        else:
            prog = [("staged", x) for x in t.seq.files] + [("final", x) for x in t.seq.files]
            yield go("takes away", "take", x=tuple(prog[::-1] if "targets_first" in S.V else prog), did=t.seq.e)


def take(s, i, p, S):
    go, (where, f) = mover(s, i, p), p.x[0]
    z = ((spath if where == "staged" else fpath)(f, S.V), f)
    yield go(
        f"removes {where} {f.a}[{f.lo},{f.hi})",
        "take" if p.x[1:] else "look",
        x=p.x[1:],
        **{where: getattr(s, where) - {z}},
    )


ACT = {"twin": worker, "run": worker, "keeper": keeper, "driver": driver, "person": person}
PC = {"look": look, "read": read, "put": put, "exec": execute, "sweep": sweep, "take": take}


def moves(s, S):
    for i, p in enumerate(s.procs):
        if p.pc != "end":
            yield from PC[p.pc](s, i, p, S)


# ---- invariants and search
def check(s, S, last):
    if s.bad:
        return s.bad
    for b in S.buckets:
        f = fold(s.logs[b], S.V)[0]
        t = f.ds
        recs = [o for _, z in s.final if z.d == b and z.gen == t.gen for o in range(z.lo, z.hi)]
        if len(recs) != len(set(recs)):
            return "PUBLISHED TWICE"
        if t.state in ("pending", "quarantined") and any(
            (spath(x, S.V), x) not in s.staged and (fpath(x, S.V), x) not in s.final for x in t.seq.files
        ):
            return "NEEDED FILE GONE"
        below, seq = set(range(t.wm)), set(o for x in t.seq.files for o in range(x.lo, x.hi)) if t.seq else set()
        if not S.flat and not below <= set(recs):
            return "WATERMARK AHEAD OF DATA"
        if not S.flat and not set(recs) <= below | seq:
            return "PUBLISHED, NOT SEALED"
        if t.seq and t.seq.gen != t.gen:
            return "OLD PLAN SEALED AFTER SET"
        if (
            S.held
            and any(z.e == 1 for _, z in s.final)
            and (f.fence > 1 > t.closed or t.closed and t.state == "idle" and t.done < 1)
        ):
            return "HALF A JOB PUBLISHED"
        if last and t.state == "pending" and not S.fails:
            return "STUCK"  # (a late RETRY is for the next run)


def explore(S, limit, walks, seed):
    seen, q, rng, depth = {S.init: None}, deque([S.init]), random.Random(seed), 0

    def history(s, more=()):
        out = []
        while seen[s]:
            s, label = seen[s]
            out.append(label)
        return out[::-1] + list(more)

    while q and len(seen) < limit:
        s = q.popleft()
        nx = list(moves(s, S))
        bad = check(s, S, not nx)
        if bad:
            return bad, len(seen), history(s)
        for label, t in nx:
            if t not in seen:
                seen[t] = (s, label)
                q.append(t)
    for _ in range(walks if q else 0):
        s0 = s = rng.choice(q)
        path = []
        while True:
            nx = list(moves(s, S))
            bad = check(s, S, not nx)
            if bad:
                return bad, len(seen), history(s0, path)
            if not nx:
                break
            label, s = rng.choice(nx)
            path.append(label)
    return ("none" if not q else "none*"), len(seen), []


# ---- scenarios
def scenario(name, V=()):
    P = lambda id, kind, e=0, phase="recover", plan=(): Proc(id, kind, e, "look", (), phase, plan, None, 0)
    twin = lambda id, b=1, phase="write": P(id, "twin", 1, phase, ((b, 0, 0),))
    run = lambda e: P(f"R{e}", "run", e)
    keep = lambda l, n=2: P("K", "keeper", 0, n, l)
    V, ds = frozenset(V), DS(0, 0, None, "idle", 0, 0)
    base = lambda e, d=ds, n=0: ((n, Rec("CHECKPOINT", None, Fold(e, "R1" if e else "", frozenset(), d))),)
    o, logs, staged, rows = dict(buckets=(1,), flat=False, held=False, slow=(), fails=()), [base(1), base(1)], (), ()
    if name == "twins":
        procs = [twin("Ta"), twin("Tb"), run(2), keep(1)]
    if name == "epochs":
        procs = [twin("Tb"), run(2), run(3)]
    if name == "flat":
        procs, o["flat"] = [twin("Ta"), twin("Tb"), keep(1, 1)], True
    if name == "set":
        procs = [twin("Ta"), twin("Tb"), P("H", "person", 0, "set"), run(2)]
    if name == "slow":
        procs, o["slow"] = [twin("Ta"), twin("Tb"), keep(1)], ("Ta",)
    if name == "job":
        procs, logs = [P(x, "run") for x in "AB"] + [keep(0)], [base(0), base(0)]
    if name == "held":
        procs = [twin("T1", 1), twin("T2", 2), P("D", "driver", 1), P("R2", "run"), keep(0, 1)]
        o.update(held=True, buckets=(1, 2))
        logs.append(base(1))
        logs[0] = base(1, n=1)
    if name in ("release", "again"):
        f = tuple(Ident(1, 1, "Tb", x, x + 1, 0) for x in (0, 1))
        q = Seq(1, 1, f, 0, 2, 0, False)
        staged, rows, logs[1] = (
            [(spath(x, V), x) for x in f],
            [f],
            base(1, ds._replace(seq=q, state="pending", closed=1)),
        )
        z = P("Z", "twin", 1, "seal", ((1, 0, 0),))._replace(pc="exec", x=(1, q, 0))
        procs = [z, run(2), P("H", "person", 0, "release"), P("Q2", "run", 2) if name == "release" else run(3)]
        o["fails"] = ("R2",)
    init = State(tuple(logs), frozenset(staged), frozenset(), frozenset(rows), tuple(procs), "")
    return Scen(name=name, V=V, init=init, **o)


DESIGN = "twins epochs flat set slow job held release again".split()
NAIVE = [
    ("twins", "act_on_put", "execute because the put succeeded"),
    ("twins", "blind_retry", "same payload again, fold unchecked"),
    ("twins", "no_fence", "INTENT and DONE of a fenced epoch count"),
    ("twins", "done_first", "DONE before the effects"),
    ("twins", "same_staged", "attempts share staged names"),
    ("twins", "same_final", "no epoch in final names, rename replaces"),
    ("twins", "target_first", "verify: target, then source, once"),
    ("again", "sweep_regardless", "sweep older epochs unasked"),
    ("twins", "sweep_early", "sweep on a fold without the own fence"),
    ("epochs", "own_is_seq", "only its own epoch closes a sequence"),
    ("epochs", "plan_early no_wm", "plan before replay, no watermark check"),
    ("flat", "no_closed", "no closed_epoch (watermark stands still)"),
    ("set", "set_open", "SET leaves closed_epoch alone"),
    ("slow", "no_relist", "fold: list once, then read"),
    ("job", "fence_by_number", "fence is mine if the number is"),
    ("job", "rule3_literal", "a put below a checkpoint counts for nothing"),
    ("held", "decide_unfenced", "a decision counts after the next FENCE"),
    ("held", "decide_ready", "DECIDE on ready, not on sealed"),
    ("held", "ck_forgets", "job CHECKPOINT without decisions"),
    ("release", "targets_first", "abandon: targets, then staged files"),
    ("release", "revoke_open", 'REVOKING does not end "pending"'),
]

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("scenario", nargs="?", choices=DESIGN)
    ap.add_argument("switch", nargs="*")
    ap.add_argument("--all", action="store_true")
    ap.add_argument("--limit", type=int, default=400_000)
    ap.add_argument("--walks", type=int, default=3_000)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    if not (a.all or a.scenario):
        ap.error("--all, or a scenario")
    todo = [(n, "", "as designed") for n in DESIGN] + NAIVE if a.all else [(a.scenario, " ".join(a.switch), "")]
    wrong, t0 = 0, time.time()
    for name, sw, text in todo:
        fold.cache_clear()
        bad, n, h = explore(scenario(name, sw.split()), a.limit, a.walks, a.seed)
        wrong += bool(sw) != (not bad.startswith("none"))
        print(f"{name:8s} {sw or '-':17s} {text:45s} {n:8,d}  {bad}", flush=True)
        if h and not a.all:
            print(*("    " + x for x in h), sep="\n")
        elif h:
            print(
                "         "
                + " | ".join(x for x in h if not any(w in x for w in ("decides", "executed", "writes", "lists")))[-400:]
            )
    print(
        f"{time.time() - t0:.0f} s; none: exhaustive, none*: --limit reached, then {a.walks} walks with seed {a.seed}; "
        f"{wrong} result(s) not as expected"
    )
    raise SystemExit(bool(wrong and a.all))
