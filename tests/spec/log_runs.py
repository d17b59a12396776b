"""Committers, runs and publishers of cuts, for the log's scenarios.

At-least-once delivery: epochs in `Scen.loose` publish their files first. A record of these epochs may be published
twice, but is never missing.

Two publishers of one run's cuts and one of the next read bucket by bucket. A reader of a cut sees the sequences that
are DONE there or, if a whole job is published at once, at the cut's `root`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.spec.log_model import Cut, Fold, Head, Rec, Says, Seq, fold, valid
from tests.spec.log_world import HIGH, File, Ident, Mover, Moves, final_path, is_stale, show, staged_path


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
    changed = Rec("LEFT", p.e, q.e, Says(changes=q.changes + 1, infos=(*q.infos, p.id)))
    if p.id in scen.changes and not p.want and valid(changed, f, v):  # partial success, once
        yield m.go("changes infos", "put", x=(b, number, changed, ()), want=1)
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
        same = f.ds.seq is not None and f.ds.seq._replace(changes=q.changes, infos=q.infos) == q
        lost = f.ds.state == "pending" and same and not (scen.stale and f.fence > p.e)
        yield m.go("LOST" if lost else "no longer pending", bad="FALSE LOST" if lost else "")


def worker(m: Mover) -> Moves:
    """Act as a committer (kind `twin`) or as a whole run: fence, replay, sweep, plan, ingest, seal, execute, close."""
    p, v = m.p, m.v
    if not p.e:
        yield from _fences_job(m)
        return
    folds = [(b, m.seen(b)[0]) for b in m.scen.buckets]
    late = "no_fence" in v or ("unread_late" in v and p.phase == "read-failed")
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
        case "read-failed":
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
        used = q._replace(changes=0, infos=()) if "infos_old" in m.v else q
        bad = "" if used.infos == q.infos else "OLD INFOS USED"
        yield m.go(f"sees ({b},{q.e}) pending", "exec", x=(b, used, 0), bad=bad)
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
        yield m.go("can not read", phase="read-failed")
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
        if "ck_forgets_infos" in m.v and f.ds.seq:
            f = f._replace(ds=f.ds._replace(seq=f.ds.seq._replace(changes=0, infos=())))
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
