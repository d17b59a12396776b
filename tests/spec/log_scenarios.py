"""Scenarios of the commit-log model: the invariants that hold in every state, and the naive variants that break them.

    python -m tests.spec.log_scenarios                   the table: every scenario as designed, and every naive variant
    python -m tests.spec.log_scenarios held ck_forgets   one scenario (with naive switches), history printed in full

Invariants, in every state:

- No source record is published twice, except by at-least-once delivery.
- No record is missing below a watermark, and none is above it without a sealed sequence.
- Each file of a pending or quarantined sequence is staged or final, and none is LOST by mistake.
- Each epoch has one run.
- A job-level run publishes all or nothing.
- When no actor can move any more, no sequence is pending.
- Heads never decrease and name existing segments. A cut of epoch e has everything that older epochs ever publish, and
  nothing of newer ones. A root shows all of a job or nothing.
- A recorded change of a sequence's infos is kept, continues the infos before it, is by the newest run, and is used.
- Each counted read failure is that of a run that could not read, of a dataset that was not read or set since.

Not modelled: fsync and power loss, several datasets in one record, steps other than rename, more buckets
(`generation_model`), a store that lost a part of itself (`anchor_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from tests.spec import search
from tests.spec.log_actors import moves
from tests.spec.log_model import IDLE, Cut, Fold, Head, Log, Rec, Seq, Switches, apply, fold, valid
from tests.spec.log_world import File, Ident, Proc, Scen, State, final_path, is_stale, staged_path
from tests.spec.model_command import model_command


# ---- invariants
def check(s: State, scen: Scen, last: bool) -> str:
    if s.bad:
        return s.bad
    v = scen.v
    stale = is_stale(s, scen, fold(s.logs[0], v)[0])  # its state of the output counts once it is rebuilt
    for b in () if stale else scen.buckets:
        f = fold(s.logs[b], v)[0]
        wrong = _check_output(s, scen, b, f) or _check_read_failures(s.logs[b], f, v) or _check_infos(s.logs[b], v)
        if wrong:
            return wrong
        if last and f.ds.state == "pending" and not (scen.fails or scen.leaves):  # (a late RETRY is for the next run)
            return "STUCK"
    if any(r.kind in ("CUT", "HEAD") for _, r in s.logs[0]):
        return check_cuts(s.logs, scen.buckets, scen.held, v)
    return ""


def _check_output(s: State, scen: Scen, b: int, f: Fold) -> str:
    t, v = f.ds, scen.v
    files = [file for _, file in s.final if file.d == b and file.gen == t.gen]
    loose = {at for file in files if file.e in scen.loose for at in range(file.lo, file.hi)}
    exact = [file for file in files if file.e not in scen.loose or "exactly" in v]
    records = [at for file in exact for at in range(file.lo, file.hi)]
    needed = t.seq.files if t.seq else ()
    if len(records) != len(set(records)):
        return "PUBLISHED TWICE"
    if t.state in ("pending", "quarantined") and not all(_is_there(s, file, v) for file in needed):
        return "NEEDED FILE GONE"
    if not scen.flat:
        below, sealed = set(range(t.origin, t.wm)), {at for file in needed for at in range(file.lo, file.hi)}
        if not below <= loose.union(records):
            return "WATERMARK AHEAD OF DATA"
        if "exactly" not in v and not set(records) <= below | sealed:
            return "PUBLISHED, NOT SEALED"
    if t.seq and t.seq.gen != t.gen:
        return "OLD PLAN SEALED AFTER SET"
    if scen.held and any(file.e == 1 for _, file in s.final):
        unsealed = f.fence > 1 > t.closed
        dropped = t.closed and t.state == "idle" and t.done < 1
        return "HALF A JOB PUBLISHED" if unsealed or dropped else ""
    return ""


def _is_there(s: State, file: Ident, v: Switches) -> bool:
    return (staged_path(file, v), file) in s.staged or (final_path(file, v), file) in s.final


def _check_read_failures(log: Log, f: Fold, v: Switches) -> str:
    t = f.ds
    if t.unread is None:
        return ""
    if t.unread.gen != t.gen:
        return "COUNTED THOUGH SET SINCE"
    if t.wm >= t.unread.hi:
        return "COUNTED THOUGH READ"
    counted = [(number, r.e) for number, r in log if r.kind == "UNREAD"]
    if t.unread.runs > len({e for _, e in counted}):
        return "ONE RUN COUNTED TWICE"
    fences = [number for number, r in log if r.kind == "FENCE" and r.e > t.unread.e]
    if all(number > min(fences, default=number) for number, e in counted if e == t.unread.e):
        return "A FENCED RUN COUNTS"
    if t.unread.stopped and t.seq and t.seq.e > t.unread.e:
        return "A STOPPED DATASET WAS READ"
    return ""


@cache
def _check_infos(log: Log, v: Switches) -> str:
    """Check each change of a sequence's infos, of the records that are there."""
    f: Fold | None = None
    for _, r in log:
        if f and not valid(r, f, v):
            continue
        before, f = f, apply(r, f, v) if f else r.arg
        if before is None or f is None or not before.ds.seq or not f.ds.seq or before.ds.seq.e != f.ds.seq.e:
            continue
        old, new = before.ds.seq.infos, f.ds.seq.infos
        if old != new[: len(old)]:
            return "A CHANGE OF INFOS IS LOST"
        if len(new) > len(old) + 1:
            return "INFOS OF ANOTHER ATTEMPT"
        if old != new and r.e != before.fence:
            return "A FENCED RUN CHANGES INFOS"
    return ""


@cache
def check_cuts(logs: tuple[Log, ...], buckets: tuple[int, ...], held: bool, v: Switches) -> str:
    f: Fold | None = None
    best: dict[int, int] = {}
    for _, r in logs[0]:
        if f and not valid(r, f, v):
            continue
        f = apply(r, f) if f else r.arg
        if f is None or r.kind not in ("CUT", "HEAD"):
            continue
        if any(head.number < best.get(head.bucket, 0) for head in f.heads):
            return "A HEAD WENT BACK"
        best = {head.bucket: head.number for head in f.heads}
        if any(head.number and (head.number, head.segment) not in logs[head.bucket] for head in f.heads):
            return "FALSE ALARM: ANOTHER SEGMENT AT A HEAD"
        if r.kind == "CUT" and (wrong := _check_cut(r, f.heads, logs, held, v)):
            return wrong
    return ""


def _check_cut(r: Rec, heads: Iterable[Head], logs: tuple[Log, ...], held: bool, v: Switches) -> str:
    for head in heads:
        then, now = _at(head, logs, v), fold(logs[head.bucket], v)[0]
        if then.fence > r.e:
            return "A CUT SEES A NEWER RUN"
        closed_later = then.ds.done < now.ds.done < r.e and then.ds.state != "quarantined"
        sealed_later = then.ds.seq is None and now.ds.seq and now.ds.seq.e < r.e
        if closed_later or sealed_later:
            return "AN OLDER RUN GOES ON BEHIND A CUT"
    cut: Cut = r.arg
    if held and len({_at(head, logs, v).ds.done for head in cut.root}) > 1:
        return "HALF A JOB SEEN"
    return ""


def _at(head: Head, logs: tuple[Log, ...], v: Switches) -> Fold:
    """Return the fold of a bucket's log up to a head."""
    return fold(tuple(one for one in logs[head.bucket] if one[0] <= head.number), v)[0]


# ---- scenarios
def _proc(id_: str, kind: str, e: int = 0, phase: Any = "recover", plan: Any = ()) -> Proc:
    return Proc(id_, kind, e, "look", (), phase, plan, None, 0)


def _twin(id_: str, b: int = 1) -> Proc:
    return _proc(id_, "twin", 1, "write", ((b, 0, 0),))


def _run(e: int) -> Proc:
    return _proc(f"R{e}", "run", e)


def _keeper(log: int, checkpoints: int = 2) -> Proc:
    return _proc("K", "keeper", 0, checkpoints, log)


def _cutter(id_: str, e: int, cuts: int = 1) -> Proc:
    return _proc(id_, "cutter", e)._replace(want=cuts)


def _person(does: str) -> Proc:
    return _proc("H", "person", 0, does)


def _log(f: Fold, number: int = 0) -> Log:
    return ((number, Rec("CHECKPOINT", 0, f)),)


def _fenced(e: int) -> Fold:
    return Fold(e, "R1" if e else "", frozenset(), IDLE)


def _files(e: int, attempt: str, records: tuple[int, ...], v: Switches) -> tuple[tuple[Ident, ...], frozenset[File]]:
    """Return a file for each record, and the same files staged."""
    files = tuple(Ident(1, e, attempt, at, at + 1, 0) for at in records)
    return files, frozenset((staged_path(file, v), file) for file in files)


def scenario(name: str, switches: Iterable[str] = ()) -> Scen:
    v = frozenset(switches)
    logs: tuple[Log, ...] = (_log(_fenced(1)), _log(_fenced(1)))
    scen = Scen(
        name, (1,), False, False, (), (), (), 0, (), (), v, State(logs, frozenset(), frozenset(), frozenset(), (), "")
    )
    return _of_operators(scen) or _of_cuts(scen) or _of_runs(scen)


def _begin(scen: Scen, procs: tuple[Proc, ...], logs: tuple[Log, ...] = (), **state: Any) -> Scen:
    """Return the scenario with these actors in its first state."""
    return scen._replace(init=scen.init._replace(procs=procs, logs=logs or scen.init.logs, **state))


def _of_runs(scen: Scen) -> Scen:
    twins = (_twin("Ta"), _twin("Tb"))
    match scen.name:
        case "twins":
            return _begin(scen, (*twins, _run(2), _keeper(1)))
        case "epochs":
            return _begin(scen, (_twin("Tb"), _run(2), _run(3)))
        case "flat":
            return _begin(scen, (*twins, _keeper(1, 1)))._replace(flat=True)
        case "slow":
            return _begin(scen, (*twins, _keeper(1)))._replace(slow=("Ta",))
        case "loose":
            return _begin(scen, (*twins, _run(2), _keeper(1, 1)))._replace(loose=(1, 2))
        case "job":
            runs = (_proc("A", "run"), _proc("B", "run"))
            return _begin(scen, (*runs, _keeper(0)), (_log(_fenced(0)), _log(_fenced(0))))
        case "held":
            procs = (_twin("T1", 1), _twin("T2", 2), _proc("D", "driver", 1), _proc("R2", "run"), _keeper(0, 1))
            logs = (_log(_fenced(1), 1), _log(_fenced(1)), _log(_fenced(1)))
            return _begin(scen, procs, logs)._replace(held=True, buckets=(1, 2))
    raise ValueError(scen.name)


def _of_operators(scen: Scen) -> Scen | None:
    twins = (_twin("Ta"), _twin("Tb"))
    match scen.name:
        case "set":
            return _begin(scen, (*twins, _person("set"), _run(2)))
        case "import":
            return _begin(scen, (_twin("Ta"), _person("import"), _run(2), _run(3)))
        case "mixed":
            return _begin(scen, (_twin("Tb"), _person("set"), _run(2), _run(3)))._replace(loose=(1, 3))
        case "read-failed":
            return _begin(scen, (*twins, _run(2), _run(3), _person("again")))._replace(unread=("Ta", "Tb", "R2"))
        case "reset":
            return _begin(scen, (*twins, _person("set"), _run(2), _keeper(1, 1)))._replace(unread=("Ta", "R2"))
        case "rebuild":  # a backup of epoch 1; the store of epoch 2 is lost, its zombie not
            files, staged = _files(2, "L", (1, 0), scen.v)
            zombie = _proc("Z", "twin", 2, "seal")._replace(pc="exec", x=(1, Seq(1, 2, files, 0, 2), 0))
            rebuilders = (_proc("B", "rebuilder", 0, "mark"), _proc("C", "rebuilder", 0, "mark"))
            return _begin(scen, (zombie, *rebuilders, _proc("R", "run")), staged=staged)._replace(stale=2)
        case "infos":
            zombie, state = _sealed(scen)
            return state(zombie, _run(2), _run(3), _keeper(1, 1))._replace(changes=("Z", "R2", "R3"))
        case "infos-twins":
            return _begin(scen, (_twin("Ta"), _twin("Tb"), _run(2)))._replace(changes=("Ta", "Tb", "R2"))
        case "release" | "again" | "stop":
            zombie, state = _sealed(scen)
            second = _proc("Q2", "run", 2) if scen.name == "release" else _run(3)
            if scen.name == "stop":
                return state(zombie, _run(2), _person("stop"), _run(3))._replace(leaves=("R2",))
            return state(zombie, _run(2), _person("release"), second)._replace(fails=("R2",))
    return None


def _sealed(scen: Scen) -> tuple[Proc, Callable[..., Scen]]:
    """Return the zombie of a run that has sealed a sequence, and the beginning of a scenario with it."""
    files, staged = _files(1, "Tb", (0, 1), scen.v)
    sequence = Seq(1, 1, files, 0, 2)
    pending = _fenced(1)._replace(ds=IDLE._replace(seq=sequence, state="pending", closed=1))
    zombie = _proc("Z", "twin", 1, "seal", ((1, 0, 0),))._replace(pc="exec", x=(1, sequence, 0))

    def begin(*procs: Proc, job_log: Log = scen.init.logs[0]) -> Scen:
        return _begin(scen, procs, (job_log, _log(pending)), staged=staged, rows=frozenset((files,)))

    return zombie, begin


def _of_cuts(scen: Scen) -> Scen | None:
    # The job log and the buckets are fenced by epoch 1, and nothing is anchored.
    unanchored = _fenced(1)._replace(heads=(Head(1, 0, None), Head(2, 0, None)))
    logs = (_log(unanchored, 1), _log(_fenced(1)), _log(_fenced(1)))
    procs: tuple[Proc, ...]
    match scen.name:
        case "cuts":
            procs = (_twin("T1"), _cutter("P", 1), _cutter("Q", 1), _proc("R", "run"), _cutter("C2", 0))
            return _begin(scen, procs, logs)._replace(buckets=(1, 2))
        case "heads":
            procs = (_person("head"), _twin("T1"), _cutter("P", 1), _keeper(0, 1), _keeper(1, 1))
            return _begin(scen, procs, logs)._replace(buckets=(1, 2))
        case "halves":
            procs = (_twin("T1", 1), _twin("T2", 2), _proc("D", "driver", 1), _cutter("P", 1, 3))
            return _begin(scen, procs, logs)._replace(buckets=(1, 2), held=True)
        case "settled":  # sequences of older runs are replayed before the first cut
            zombie, begin = _sealed(scen)
            job_log = _log(_fenced(1)._replace(heads=(Head(1, 0, None),)), 1)
            settled = begin(zombie, _proc("R", "run"), _cutter("C2", 0), job_log=job_log)
            return settled._replace(fails=("R2",))
    return None


DESIGN = (
    *("twins", "epochs", "flat", "set", "import", "slow", "job", "held", "release", "again", "stop", "rebuild"),
    *("loose", "mixed", "cuts", "settled", "heads", "halves", "read-failed", "reset", "infos", "infos-twins"),
)
NAIVE = (
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
    ("flat", "no_closed", "no closed epoch (the watermark does not move)"),
    ("set", "set_open", "SET leaves the closed epoch alone"),
    ("slow", "no_relist", "fold: list once, then read"),
    ("job", "fence_by_number", "the fence is one's own if its number is"),
    ("job", "rule3_literal", "a put below a checkpoint counts for nothing"),
    ("held", "decide_unfenced", "a decision counts after the next FENCE"),
    ("held", "decide_ready", "DECIDE on ready, not on sealed"),
    ("held", "ck_forgets", "job CHECKPOINT without decisions"),
    ("release", "targets_first", "abandon: targets, then staged files"),
    ("release", "revoke_open", "REVOKING does not end `pending`"),
    ("stop", "stop_revoking", "QUARANTINE while revoking"),
    ("import", "sets_blind", "SETS again, whatever has come since"),
    ("rebuild", "look_early", "look at the output, then sweep"),
    ("rebuild", "rebuilt_late", "REBUILT of a fenced epoch counts"),
    ("rebuild", "sweep_newer", "a rebuild sweeps epochs above its own"),
    ("loose", "exactly", "at least once, taken for exactly once"),
    ("loose", "record_first", "PUBLISHED, then the files"),
    ("loose", "high_of_another", "files of one attempt, watermark of another"),
    ("loose", "sweep_early gone_is_done", "a staged file that is gone counts as published"),
    ("mixed", "set_open", "SET leaves the closed epoch alone"),
    ("cuts", "cut_back", "a CUT may have a lower head"),
    ("cuts", "cut_late any_fold", "CUT of a fenced run counts"),
    ("cuts", "any_fold", "heads of buckets without the own fence"),
    ("settled", "cut_early", "heads before replay"),
    ("heads", "head_back", "HEAD below the last head"),
    ("heads", "head_of_put", "HEAD names the put record, not the stored one"),
    ("heads", "ck_forgets", "job CHECKPOINT without heads"),
    ("read-failed", "unread_twice", "each committer of a run counts it"),
    ("read-failed", "unread_blind unread_closed", "UNREAD whatever was read since"),
    ("read-failed", "unread_late", "UNREAD of a fenced epoch counts"),
    ("read-failed", "plan_stopped", "a stopped dataset is planned"),
    ("read-failed", "keeps_count", "DONE leaves the count alone"),
    ("reset", "unread_closed", "UNREAD of a plan from before SET"),
    ("infos", "infos_late", "changed infos of a fenced epoch count"),
    ("infos", "infos_old", "a retry uses the sealed infos"),
    ("infos", "ck_forgets_infos", "CHECKPOINT without changed infos"),
    ("infos-twins", "infos_blind", "changed infos count, whichever infos were used"),
    ("halves", "root_moves", "the root moves while a job is half published"),
    ("halves", "root_unread", "the same, looked for in the folds read alone"),
)


def explore(name: str, switches: str = "", limit: int = 400_000, walks: int = 3_000) -> tuple[str, int, list[str]]:
    """Return the violation (`none`: none in any state; `none*`: none up to the limit and on walks from there), the
    number of states, and a history that leads to the violation.
    """
    fold.cache_clear()
    check_cuts.cache_clear()
    scen = scenario(name, switches.split())
    return search.explore(scen, scen.init, limit, walks, 1, moves, check)


if __name__ == "__main__":
    model_command(explore, DESIGN, NAIVE)
