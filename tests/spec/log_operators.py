"""Operators and rebuilds, for the log's scenarios.

A store that is older than its output: markers in the output record the newest epoch that has begun, and a rebuild that
has not ended. A run reads them before its fence.
"""

from __future__ import annotations

from typing import Any

from tests.spec.log_model import BY_OPERATOR, DS, Head, Rec, Switches, fold, valid
from tests.spec.log_world import Mover, Moves, State, final_path, show, staged_path


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
