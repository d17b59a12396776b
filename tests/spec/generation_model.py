"""Executable model of rebucketing: REBUCKET, MOVED and GENERATION beside the rules of `log_model`.

    python -m tests.spec.generation_model                      the table: every scenario and every naive variant
    python -m tests.spec.generation_model sizes another_size   one scenario (with naive switches), history in full

Model: the job log names the generation that counts: (number, buckets). Each generation has its own logs, each with a
beginning (a checkpoint) and records. Buckets hold several datasets; `log_model.valid` has the rules of each dataset.

`rebucket` takes these steps: it fences the job log and then every bucket, and refuses if a dataset is not idle. It puts
REBUCKET into the job log and MOVED into each bucket log, after which no record there is valid. It writes the
beginnings of the new logs, which are a pure function of the ended folds. GENERATION switches over. A repeated command,
by any operator, takes a new epoch and resumes the move in progress. Bucket heads (cuts in `log_model`) belong to one
generation.

Actors move as in `log_model`: one action is one fold with its decision, one put, or one publication. An actor that
never moves again has crashed. A rebucket reads the job log only before it puts a record there, so that each is also its
own zombie.

Invariants, in every state:

- In the generation that counts, no record is published twice, none is missing below a watermark, and none is published
  without a sequence.
- A watermark whose SET was confirmed to an operator is there, once.
- Each log has one possible beginning.
- During a rebucket all datasets are idle, and the new number of buckets is unique.
- No head raises a false alarm.
- When no actor can move any more, the one that fenced last has finished its work.

A move may change the setting that determines dataset names. Each generation has one value of it, in the newest of
numbered documents. The mover puts the document if absent, before GENERATION. Its number was the next one when the mover
last saw that it was not fenced. A run with another setting than that document is rejected, so no run may see one of
another generation.

Not modelled: truncation of a log, single files of a sequence, the mapping of states (a pure function of the ended
folds, like the new logs' beginnings), deletion of the old generation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from tests.spec import log_model, search
from tests.spec.log_model import DESIGNED, DS, IDLE, Fold, Move, Seq

DATASETS, HIGH = ("a", "b"), 2

Size = tuple[int, int]  # (generation, number of buckets)
Key = tuple[int, int]  # (generation, bucket)


class Rec(NamedTuple):
    kind: str
    e: int | None  # epoch of the writer; None: an operator
    arg: Any = None
    d: str = ""  # the dataset, for records of one dataset


class Job(NamedTuple):
    """The fold of the job log."""

    fence: int
    owner: str
    gen: Size
    under: Size | None = None  # the rebucket in progress
    naming: str = "topic"  # the naming setting, and its value after the move in progress
    naming_under: str = ""
    heads: tuple[tuple[Key, int], ...] = ()


class Bucket(NamedTuple):
    """The fold of a bucket's log; `ds` has (name, state) of each dataset."""

    fence: int
    owner: str
    ds: tuple[tuple[str, DS], ...]
    moved: int = 0  # the generation that replaced it


class Log(NamedTuple):
    key: Key
    begin: Bucket
    records: tuple[Rec, ...] = ()


class Proc(NamedTuple):
    id: str
    kind: str
    want: int = 0  # the number of buckets that a rebucket creates
    mortal: bool = False
    e: int = 0
    pc: str = "look"
    x: Any = None
    phase: str = ""
    gen: Size = (0, 0)
    tried: int = 0
    did: Any = None
    told: str = ""
    naming: str = ""  # the new naming setting of a rebucket, if it changes


class State(NamedTuple):
    job: tuple[Rec, ...]
    logs: tuple[Log, ...]
    final: frozenset[tuple[str, int, int]]  # (dataset, its SETs so far, record)
    procs: tuple[Proc, ...]
    bad: str
    documents: tuple[str, ...] = ("topic",)  # the numbered records of the setting; the newest counts


class Scen(NamedTuple):
    name: str
    switches: frozenset[str]
    begin: Job
    init: State


Moves = Iterator[tuple[str, State]]


# ---- rules: validity, folds, the new logs' beginnings
def valid_in_job(r: Rec, f: Job, v: frozenset[str]) -> bool:
    match r.kind:
        case "FENCE":
            return r.e is not None and r.e > f.fence
        case "CUT":
            return r.e == f.fence and all(dict(r.arg).get(key, n) >= n for key, n in f.heads)
        case "REBUCKET":
            return log_model.valid(
                log_model.Rec(r.kind, r.e or 0, Move(r.arg[0], r.arg[1], r.d or f.naming)), of_job(f), v
            )
        case "GENERATION":
            return r.arg == f.under and log_model.valid(log_model.Rec(r.kind, r.e or 0, r.arg[0]), of_job(f), v)
    raise AssertionError(r.kind)


def apply_to_job(r: Rec, f: Job) -> Job:
    match r.kind:
        case "FENCE" if r.e is not None:
            return f._replace(fence=r.e, owner=r.arg)
        case "CUT":
            return f._replace(heads=tuple(sorted({**dict(f.heads), **dict(r.arg)}.items())))
        case "REBUCKET":
            return f._replace(under=r.arg, naming_under=r.d or f.naming)
        case "GENERATION":
            return f._replace(gen=r.arg, under=None, naming=f.naming_under, naming_under="")
    raise AssertionError(r.kind)


def of_job(f: Job) -> Fold:
    """Return the fold of the job log in the form of `log_model`."""
    under_way = Move(*f.under, f.naming_under) if f.under else None
    return Fold(f.fence, f.owner, frozenset(), IDLE, generation=f.gen[0], buckets=f.gen[1], under_way=under_way)


def of_dataset(r: Rec, f: Bucket) -> Fold:
    """Return the fold of one dataset in the form of `log_model`."""
    return Fold(f.fence, f.owner, frozenset(), dict(f.ds)[r.d])


def valid_in_bucket(r: Rec, f: Bucket, v: frozenset[str]) -> bool:
    if f.moved and "moved_open" not in v:
        return False
    match r.kind:
        case "FENCE":
            return r.e is not None and r.e > f.fence
        case "MOVED":
            unfenced = v | {"no_fence"} if "job_fence_only" in v else v
            folds = [Fold(f.fence, f.owner, frozenset(), t) for _, t in f.ds]
            moved = log_model.Rec(r.kind, r.e or 0, r.arg)
            return not f.moved and all(log_model.valid(moved, of_one, unfenced) for of_one in folds)
    return log_model.valid(log_model.Rec(r.kind, r.e or 0, r.arg), of_dataset(r, f), DESIGNED)


def apply_to_bucket(r: Rec, f: Bucket) -> Bucket:
    match r.kind:
        case "FENCE" if r.e is not None:
            return f._replace(fence=r.e, owner=r.arg)
        case "MOVED":
            return f._replace(moved=r.arg)
    state = log_model.apply(log_model.Rec(r.kind, r.e or 0, r.arg), of_dataset(r, f)).ds
    return f._replace(ds=tuple((d, state if d == r.d else t) for d, t in f.ds))


@cache
def job_fold(records: tuple[Rec, ...], begin: Job, v: frozenset[str]) -> Job:
    f = begin
    for r in records:
        f = apply_to_job(r, f) if valid_in_job(r, f, v) else f
    return f


@cache
def bucket_fold(log: Log, v: frozenset[str]) -> Bucket:
    f = log.begin
    for r in log.records:
        f = apply_to_bucket(r, f) if valid_in_bucket(r, f, v) else f
    return f


def buckets(size: Size) -> list[Key]:
    return [(size[0], bucket) for bucket in range(size[1])]


def key_of(dataset: str, size: Size) -> Key:
    return size[0], DATASETS.index(dataset) % size[1]


def beginning(ended: dict[Key, Bucket], old: Size, key: Key, size: Size, fence: int = 0) -> Bucket:
    """Return the beginning of a new log. It is the same for each writer, because it depends only on the ended folds."""
    newest = max(ended.values(), key=lambda f: f.fence)
    own_datasets = tuple((d, dict(ended[key_of(d, old)].ds)[d]) for d in DATASETS if key_of(d, size) == key)
    return Bucket(fence or newest.fence, newest.owner, own_datasets)


# ---- actors
class Mover:
    """The next possible actions of one actor. `view` is its present view of the logs."""

    def __init__(self, s: State, i: int, v: frozenset[str], job: Job, folds: dict[Key, Bucket]) -> None:
        self.s, self.i, self.p, self.v = s, i, s.procs[i], v
        self.job, self.folds = job, folds
        self.logs = {log.key: log for log in s.logs}

    def go(self, label: str, state: State | None = None, **changes: Any) -> tuple[str, State]:
        s, q = state or self.s, self.p._replace(**{"pc": "look", "x": None, **changes})
        return f"{self.p.id}: {label}", s._replace(procs=(*s.procs[: self.i], q, *s.procs[self.i + 1 :]))

    def end(self, why: str, told: str = "") -> tuple[str, State]:
        return self.go(why, pc="end", told=told or why)

    def wrong(self, what: str) -> tuple[str, State]:
        return self.go("finds a violation", self.s._replace(bad=what), pc="end")

    def append(self, where: Key | None, r: Rec, **changes: Any) -> tuple[str, State]:
        number = len(self.s.job) if where is None else len(self.logs[where].records)
        return self.go(f"decides {shown(where, r)}", pc="put", x=(where, number, r), **changes)


def shown(where: Key | None, r: Rec) -> str:
    place = "the job log" if where is None else f"log {where[0]}.{where[1]}"
    arg = f" {r.arg}" if r.kind in ("REBUCKET", "MOVED", "GENERATION") else f" of {r.d}" if r.d else ""
    return r.kind + (f"({r.e})" if r.e else "") + f"{arg} in {place}"


def put_document(m: Mover) -> Moves:
    """Put the document under the number that was next at the last check; naive: under the number that is next now."""
    number, naming = m.p.x[1:]
    if number == len(m.s.documents) or "document_unfenced" in m.v:
        yield m.go(f"records {naming}", m.s._replace(documents=(*m.s.documents, naming)))
    else:
        yield m.go("put lost")


def put(m: Mover) -> Moves:
    if m.p.x[0] == "document":
        yield from put_document(m)
        return
    where, number, r = m.p.x
    log = m.s.job if where is None else m.logs[where].records
    told = "set" if r.kind == "SET" and "put_is_set" in m.v else m.p.told
    if len(log) != number:
        yield m.go("put lost")
    elif where is None:
        yield m.go(f"puts {shown(where, r)}", m.s._replace(job=(*log, r)))
    else:
        more = tuple(x._replace(records=(*log, r)) if x.key == where else x for x in m.s.logs)
        yield m.go(f"puts {shown(where, r)}", m.s._replace(logs=more), told=told)


def takes_epoch(m: Mover, phase: str) -> Moves:
    """Fence the job log for a run or a rebucket. The epoch is its own if the fold shows its fence."""
    if not m.p.tried:
        yield m.append(None, Rec("FENCE", m.job.fence + 1, m.p.id), tried=m.job.fence + 1)
    elif (m.job.fence, m.job.owner) == (m.p.tried, m.p.id):
        yield m.go(f"is epoch {m.p.tried}", e=m.p.tried, gen=m.job.gen, phase=phase)
    else:
        yield m.end("fenced")


def fences_buckets(m: Mover, after: str) -> Moves:
    """Fence the bucket logs. A rebucket skips a log that has moved; a run learns from it that its generation no longer
    counts.
    """
    for key in buckets(m.p.gen):
        if key not in m.folds:
            yield m.wrong("GENERATION WITHOUT LOGS")
            return
        f = m.folds[key]
        if f.moved and m.p.kind == "run":
            yield m.end("open the store again")
            return
        if not f.moved and f.fence != m.p.e:
            yield m.end("fenced") if f.fence > m.p.e else m.append(key, Rec("FENCE", m.p.e, m.p.id))
            return
    yield m.go("has fenced", phase=after)


ORDER = ("fence", "check", "begin", "move", "copy", "record", "switch")


def order(v: frozenset[str]) -> tuple[str, ...]:
    if "copies_early" in v:
        return ("fence", "check", "begin", "copy", "move", "switch")
    if "document_last" in v:
        return ("fence", "check", "begin", "move", "copy", "switch", "record")
    if "early_switch" in v:
        return ("fence", "check", "begin", "copy", "switch", "move")
    if "switch_first" in v:
        return ("fence", "check", "begin", "move", "switch", "copy")
    if "no_fence" in v or "job_fence_only" in v:
        return ORDER[1:]
    return ORDER


def rebucket(m: Mover) -> Moves:
    p, job, phases = m.p, m.job, order(m.v)
    target = (p.gen[0] + 1, p.want)
    if not p.e:
        changes = p.naming if p.naming != (m.s.documents[-1]) else ""
        same = job.under and (job.under[1], job.naming_under) == (p.want, p.naming or job.naming)
        if not p.tried and job.under and not same and "another_size" not in m.v:
            yield m.end("refused: another move is under way")
        elif not p.tried and job.gen[1] == p.want and not job.under and not changes:
            yield m.end("nothing to do")
        elif "no_fence" in m.v:
            yield m.go("begins without a fence", e=job.fence + 1, gen=job.gen, phase=phases[0])
        else:
            yield from takes_epoch(m, phases[0])
        return
    phase = p.phase
    after = dict(zip((*phases, "end"), (*phases[1:], "end", ""), strict=True))[phase]
    old = {key: m.folds[key] for key in buckets(p.gen)}
    match phase:
        case "fence":
            yield from fences_buckets(m, after)
        case "check":
            if all(t.state == "idle" for f in old.values() for _, t in f.ds) or "moved_busy" in m.v:
                yield m.go("finds all datasets idle", phase=after)
            else:
                yield m.end("refused: a dataset is not idle")
        case "begin":
            r = Rec("REBUCKET", p.e, target, p.naming)
            if job.under == target and job.naming_under == (p.naming or job.naming):
                yield m.go("resumes the rebucket", phase=after)
            else:
                yield m.append(None, r) if valid_in_job(r, job, m.v) else m.end("fenced")
        case "move":
            open_logs = [key for key, f in old.items() if not f.moved]
            if not open_logs:
                yield m.go("has moved all", phase=after)
            elif valid_in_bucket(r := Rec("MOVED", p.e, target[0]), old[open_logs[0]], m.v):
                yield m.append(open_logs[0], r)
            else:
                yield m.end("fenced")
        case "copy":
            yield from copies(m, old, target, after)
        case "record":
            yield from records(m, after)
        case "switch":
            r = Rec("GENERATION", p.e, target)
            if job.gen == target:
                yield m.go("has switched", phase=after)
            else:
                yield m.append(None, r) if valid_in_job(r, job, m.v) else m.end("fenced")
        case "end":
            yield m.end("done")


def records(m: Mover, after: str) -> Moves:
    if not m.p.naming or m.s.documents[-1] == m.p.naming:
        yield m.go("has recorded it", phase=after)
    elif m.job.fence != m.p.e and "document_unfenced" not in m.v:
        yield m.end("fenced")
    else:
        yield m.go("reads the settings", pc="put", x=("document", len(m.s.documents), m.p.naming))


def copies(m: Mover, old: dict[Key, Bucket], target: Size, after: str) -> Moves:
    for key in buckets(target):
        begin = beginning(old, m.p.gen, key, target, m.p.e if "own_epoch" in m.v else 0)
        if key not in m.logs:
            logs = tuple(sorted((*m.s.logs, Log(key, begin))))
            yield m.go(f"begins log {key[0]}.{key[1]}", m.s._replace(logs=logs))
            return
        if m.logs[key].begin != begin:
            yield m.wrong("A LOG THAT BEGINS IN TWO WAYS")
            return
    yield m.go("has begun all logs", phase=after)


def run(m: Mover) -> Moves:
    p = m.p
    if not p.e or p.phase == "fence":
        heads_ahead = any(n > len(m.logs[key].records) for key, n in heads(m) if key in m.logs)
        if not p.e and m.job.under and "run_ignores" not in m.v:
            yield m.end("a rebucket is under way: give it again")
        elif heads_ahead and p.e:
            yield m.wrong("FALSE ALARM: A LOG LOST ITS TAIL")
        elif not p.e:
            yield from takes_epoch(m, "fence")
        else:
            yield from fences_buckets(m, "work")
        return
    if p.phase == "cut":
        r = Rec("CUT", p.e, tuple((key, len(m.logs[key].records)) for key in buckets(p.gen)))
        if r.arg == tuple(x for x in m.job.heads if x[0][0] == p.gen[0]) or not valid_in_job(r, m.job, m.v):
            yield m.end("ends")
        else:
            yield m.append(None, r)
        return
    for key in buckets(p.gen):
        f = m.folds[key]
        if f.moved or f.fence > p.e:
            yield m.end("fenced")
            return
        for d, t in f.ds:
            r = Rec("INTENT", p.e, Seq(d, p.e, (), t.wm, t.wm + 1, t.gen, False), d)
            if t.state == "pending" and p.did == (d, t.sequence.e):
                yield m.append(key, Rec("DONE", p.e, t.sequence.e, d))
                return
            if t.state == "pending":
                files = m.s.final | {(d, t.sequence.gen, t.sequence.lo)}
                yield m.go(f"publishes {d} [{t.sequence.lo}]", m.s._replace(final=files), did=(d, t.sequence.e))
                return
            if t.wm < HIGH and valid_in_bucket(r, f, m.v):
                yield m.append(key, r)
                return
    yield m.go("has done all", phase="cut" if m.job.heads else "over")


def heads(m: Mover) -> list[tuple[Key, int]]:
    """Return the heads of this generation's logs; naive: by the bucket's number alone."""
    gen = m.p.gen if m.p.e else m.job.gen
    if "heads_of_any" in m.v:
        return [((gen[0], bucket), n) for (_, bucket), n in m.job.heads]
    return [(key, n) for key, n in m.job.heads if key[0] == gen[0]]


def person(m: Mover) -> Moves:
    """Set the watermark of dataset a, in the generation with which the operator opened the store."""
    if not m.p.phase:
        yield m.go(f"opens generation {m.job.gen[0]}", gen=m.job.gen, phase="act")
        return
    key = key_of("a", m.p.gen)
    if key not in m.folds:
        yield m.wrong("GENERATION WITHOUT LOGS")
        return
    f = m.folds[key]
    t, r = dict(f.ds)["a"], Rec("SET", None, 0, "a")
    if t.gen or m.p.told:
        yield m.end("is told that it is set", told="set")
    elif f.moved and not m.v & {"moved_open", "put_is_set"}:
        yield m.go("opens the store again", phase="") if m.job.gen != m.p.gen else m.end("a rebucket is under way")
    elif valid_in_bucket(r, f, m.v) or "put_is_set" in m.v:
        yield m.append(key, r)
    else:
        yield m.end("refused: not idle")


ACTORS = {"run": run, "rebucket": rebucket, "person": person}


def moves(s: State, scen: Scen) -> Moves:
    v = scen.switches
    job, folds = job_fold(s.job, scen.begin, v), {log.key: bucket_fold(log, v) for log in s.logs}
    for i, p in enumerate(s.procs):
        if p.pc != "end" and p.phase != "over":
            m = Mover(s, i, v, job, folds)
            if p.mortal:
                yield m.end("dies")
            yield from put(m) if p.pc == "put" else ACTORS[p.kind](m)


# ---- invariants
def check(s: State, scen: Scen, last: bool) -> str:
    if s.bad:
        return s.bad
    v = scen.switches
    job, logs = job_fold(s.job, scen.begin, v), {log.key: log for log in s.logs}
    begun_sizes = sizes(s.job, scen)
    if len({generation for generation, _ in begun_sizes}) < len(begun_sizes):
        return "TWO NUMBERS OF BUCKETS IN ONE GENERATION"
    if any(key not in logs for key in buckets(job.gen)):
        return "GENERATION WITHOUT LOGS"
    if not job.under and s.documents[-1] != job.naming:
        return "A SETTING OF ANOTHER GENERATION: A RUN WOULD READ RECORDS AGAIN UNDER OTHER NAMES"
    for d in DATASETS:
        t = dict(bucket_fold(logs[key_of(d, job.gen)], v).ds)[d]
        files = {record for dataset, gen, record in s.final if (dataset, gen) == (d, t.gen)}
        below = set(range(t.wm))
        if t.seq and t.seq.lo in below:
            return "SEALED TWICE"
        if not below <= files:
            return "WATERMARK AHEAD OF DATA"
        if not files <= below | ({t.seq.lo} if t.seq else set()):
            return "PUBLISHED, NOT SEALED: IT WOULD BE READ AGAIN"
        if d == "a" and not t.gen and any(p.told == "set" for p in s.procs):
            return "A CONFIRMED SET IS LOST"
        if t.gen > 1:
            return "SET TWICE"
        if job.under and t.state != "idle" and "moved_busy" not in v:
            return "A REBUCKET WITH A DATASET THAT IS NOT IDLE: NO ACTOR CAN CONTINUE"
    newest = next((p for p in s.procs if p.id == job.owner), None)
    if (
        last
        and newest
        and newest.kind == "rebucket"
        and (newest.told == "fenced" or (job.under and newest.told != "dies"))
    ):
        return "AN UNFENCED REBUCKET DID NOT FINISH"
    return ""


def sizes(records: tuple[Rec, ...], scen: Scen) -> set[Size]:
    """Return the numbers of buckets that rebuckets have begun to create."""
    begin, v = scen.begin, scen.switches
    valid_rebuckets = [(n, r) for n, r in enumerate(records) if r.kind == "REBUCKET"]
    return {r.arg for n, r in valid_rebuckets if valid_in_job(r, job_fold(records[:n], begin, v), v)}


# ---- scenarios
def scenario(name: str, switches: tuple[str, ...] = ()) -> Scen:
    idle = IDLE
    pending = idle._replace(seq=Seq("a", 1, (), 0, 1, 0, False), state="pending", closed=1)
    states = {"a": idle, "b": idle}
    begin, old = Job(1, "Z", (0, 2)), (0, 2)
    zombie = Proc("Z", "run", e=1, gen=old, phase="work")
    x, y = Proc("X", "rebucket", 1), Proc("Y", "rebucket", 1)
    match name:
        case "commands":  # the command is given twice, while an old run continues
            procs = [x, y, zombie]
        case "by_hand":
            procs = [x, Proc("H", "person")]
        case "commands_by_hand":
            procs = [x, y, Proc("H", "person")]
        case "between":  # a run between two commands, with a pending dataset
            procs, states["a"] = [x, Proc("R", "run"), y], pending
        case "sizes":
            procs = [x, Proc("Y", "rebucket", 3), Proc("H", "person")]
        case "after" | "two_runs":  # runs in the new generation, with heads of the old one
            begin = begin._replace(heads=(((0, 0), 2), ((0, 1), 2)))
            procs = [x, Proc("R", "run"), Proc("Q", "run")][: 2 + (name == "two_runs")]
        case "renames":  # datasets are renamed, and then renamed back
            procs = [x._replace(want=2, naming="partition"), y._replace(want=2, naming="partition")]
            procs.append(Proc("W", "rebucket", 2, naming="topic"))
        case "crashed":  # the first command may die anywhere
            procs = [x._replace(mortal=True), y]
        case _:
            raise ValueError(name)
    full = Rec("FENCE", 0, "before")  # (two records that any log of a run has)
    logs = tuple(
        Log(key, Bucket(1, "Z", tuple((d, states[d]) for d in DATASETS if key_of(d, old) == key)), (full, full))
        for key in buckets(old)
    )
    return Scen(name, frozenset(switches), begin, State((), logs, frozenset(), tuple(procs), ""))


DESIGN = ("renames", "commands", "crashed", "by_hand", "commands_by_hand", "sizes", "after", "between", "two_runs")
NAIVE = (
    ("commands", "no_fence", "no fence at all"),
    ("commands", "job_fence_only", "a fence in the job log alone"),
    ("by_hand", "copies_early", "the new logs begin before the old ones have moved"),
    ("by_hand", "early_switch", "GENERATION before MOVED"),
    ("by_hand", "switch_first", "GENERATION before the new logs are there"),
    ("by_hand", "moved_open", "MOVED ends nothing: later records count"),
    ("by_hand", "put_is_set", "put without a check of the fold; the successful put counts as set"),
    ("crashed", "own_epoch", "new logs begin with the epoch of their writer"),
    ("after", "run_ignores", "a run continues during a rebucket"),
    ("sizes", "another_size", "another number of buckets during a rebucket"),
    ("renames", "document_last", "the setting is recorded after GENERATION"),
    ("renames", "document_unfenced", "the setting is recorded without a check for running writers"),
    ("after", "heads_of_any", "heads of a bucket in any generation"),
)


def explore(name: str, switches: str = "", limit: int = 400_000, walks: int = 0) -> tuple[str, int, list[str]]:
    """Return the violation ("none", or "none*" if the limit was reached), the number of states, and the history that
    leads there.
    """
    job_fold.cache_clear()
    bucket_fold.cache_clear()
    scen = scenario(name, tuple(switches.split()))
    return search.explore(scen, scen.init, limit, walks, 1, moves, check)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", nargs="?", choices=DESIGN)
    parser.add_argument("switch", nargs="*")
    parser.add_argument("--limit", type=int, default=400_000)
    parser.add_argument("--walks", type=int, default=1_000)
    options = parser.parse_args()
    table = [(name, "", "as designed") for name in DESIGN] + list(NAIVE)
    todo = [(options.scenario, " ".join(options.switch), "")] if options.scenario else table
    unexpected, began = 0, time.monotonic()
    for name, switches, text in todo:
        wrong, states, history = explore(name, switches, options.limit, options.walks)
        unexpected += bool(switches) != (not wrong.startswith("none"))
        print(f"{name:16s} {switches or '-':15s} {text:62s} {states:8,d}  {wrong}", flush=True)
        if history and options.scenario:
            print(*(f"    {step}" for step in history), sep="\n")
        elif history:
            print("          " + " | ".join(step for step in history if "decides" not in step)[-400:])
    print(f"{time.monotonic() - began:.0f} s; {unexpected} result(s) not as expected")
    raise SystemExit(bool(unexpected))


if __name__ == "__main__":
    main()
