"""Executable model of replacing published files by a tombstone, beside the rules of `log_model`.

It covers reprocessing, compaction, and publishers that replace.

    python -m tests.spec.replace_model                      the table: every scenario and every naive variant
    python -m tests.spec.replace_model abandon outside      one scenario (with naive switches), history in full

Model: one dataset, one branch, one log. Of the source's records 0 and 1, epoch 1 has published 0 and rejected 1 into an
error file. A run fences, finishes pending sequences, deletes superseded files, and plans a reprocess at the done epoch
that it sees. (In some scenarios it also appends a unit with record 2.) It stages new files and a tombstone that names
the error files that it read. It seals all of it as one sequence, publishes file by file in any order, and closes. A
reprocessed record is accepted, or rejected again. An operator quarantines a pending sequence and abandons it: REVOKING,
the staged files are deleted (the tombstone first), then the published ones, ABANDONED.

A publisher that replaces (a separate kind of run here) reads one more record and stages its file. Before the seal it
reads which files are live at the done epoch that it sees. It stages a replacement (the tombstone of such a publisher)
and seals it with the file. The replacement names all live files (or the accepted ones of the record's own partition, of
two) and the replacement before it, and lists the records that they held. So the newest replacement alone lists
everything that was replaced. It stays when the files that it names are deleted, until the next one's turn.

A compaction (a third kind of run) merges the live files of the branch into one. Its tombstone names them, as the
tombstone of a reprocess names error files, and is deleted after them. The conservation check comes before the seal: the
merged file has exactly the records of the files that the tombstone names. A compaction is accepted only while it is
quarantined, with all of its files published: an abandon that began may delete the merged file at any later time.

A rebuild (of the scenario `compact rebuild`) replaces a lost log by what the output proves. A compaction counts if its
merged file is published, or superseded itself; otherwise its tombstone is set aside. Without its tombstone, a merged
file counts if no older live file has any of its records. That rule must also hold if one small file was deleted by
accident; its records are then a gap.

One action is one effect: a record, one rename, one deletion. An actor that never moves again has crashed. An actor that
continues with the files in its hands after a newer fence is a zombie (a publisher, or a late deleter). Only valid
records are put; `log_model` shows this of twins that race for a number.

The auditor reads the files with an epoch up to the done epoch that no tombstone with such an epoch names. Invariants,
in every state:

- Each record below the watermark is in exactly one of these files, published or rejected, or listed as replaced. No
  record is above the watermark.
- No replaced file is visible beside its replacement.
- No file is named by two tombstones.
- The files of a pending sequence are staged or published.
- No false alarm (`stores.logs.log_anchors.require_published`): no file of a dead run is missing.
- When no actor can move any more, no sequence is pending.
- After a rebuild, each record of a published file is in one live file. A record of a file that was deleted by accident
  may be missing.

Not modelled: power loss, several units of a sequence, identity of deleted files, rebuilds of replacements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from tests.spec import log_model, search
from tests.spec.log_model import DS, Fold, Rec, Seq
from tests.spec.model_command import model_command

URN, READ = 1, 2


class File(NamedTuple):
    """A file. `names`: the files that a tombstone supersedes. `wrote`: the attempt, which makes names unique.
    `records`: the records that a replacement lists as replaced.
    """

    kind: str  # good, error, tomb, repl
    e: int
    wrote: str
    records: tuple[int, ...] = ()
    names: tuple[Any, ...] = ()


class Proc(NamedTuple):
    id: str
    kind: str = "run"
    e: int = 0
    phase: str = "begin"
    x: tuple[Any, ...] = ()  # unfinished work: files to publish, or to delete


class State(NamedTuple):
    log: tuple[Any, ...]
    staged: frozenset[File]
    output: frozenset[File]
    ended: int
    procs: tuple[Proc, ...]
    bad: str = ""


class Scen(NamedTuple):
    name: str
    v: frozenset[str]
    beside: bool
    init: State
    by_partition: bool = False


Moves = Iterator[tuple[str, State]]
GOOD, BAD = File("good", 1, "first", (0,)), File("error", 1, "first", (1,))
SMALL = File("good", 1, "second", (1,))


@cache
def fold(log: tuple[Rec, ...], v: frozenset[str]) -> Fold:
    """Return a fold in which epoch 1 has ended, with both records below its watermark."""
    dataset = DS(READ, 0, None, "idle", 1, 1, 0)
    f = Fold(1, "R1", frozenset(), dataset)
    for r in log:
        f = log_model.apply(r, f) if log_model.valid(r, f, v) else f
    return f


# ---- live files
STONES = ("tomb", "repl")


def tombs(output: frozenset[File], done: int, v: frozenset[str]) -> list[File]:
    """Return the tombstones that count."""
    return [file for file in output if file.kind in STONES and (file.e <= done or "all_tombs" in v)]


def live(output: frozenset[File], done: int, v: frozenset[str]) -> list[File]:
    """Return the live published files and the newest replacement."""
    superseded = {name for tomb in tombs(output, done, v) for name in tomb.names}
    return sorted(file for file in output if file.kind != "tomb" and file.e <= done and file not in superseded)


def partition(file: File) -> int:
    return file.records[0] % 2


def seen_beside(files: list[File], newest: int, scen: Scen) -> bool:
    """Return whether a file is live that a replacement should have replaced."""
    if not scen.by_partition:
        return any(file.e < newest for file in files)
    good = [file for file in files if file.kind == "good"]
    return any(len({file.e for file in good if partition(file) == p}) > 1 for p in (0, 1))


def check(s: State, scen: Scen, last: bool) -> str:
    v, t = scen.v, fold(s.log, scen.v).ds
    if s.bad:
        return s.bad
    there = live(s.output, t.done, v)
    files, replacements = (
        [f for f in there if (f.kind == "repl") is of_replacements] for of_replacements in (False, True)
    )
    places = Counter(record for file in files for record in file.records)
    replaced = {record for file in replacements for record in file.records}
    for record in range(t.wm):
        if places[record] + (record in replaced) != 1:
            return "IN NEITHER PLACE" if not places[record] else "IN BOTH PLACES"
    if any(record >= t.wm for record in places):
        return "PUBLISHED AND NOT DONE"
    if replacements and seen_beside(files, max(file.e for file in replacements), scen):
        return "OLD FILE VISIBLE BESIDE NEW"
    named = Counter(name for tomb in tombs(s.output, t.done, v) for name in tomb.names)
    if any(count > 1 for count in named.values()):
        return "SUPERSEDED TWICE"
    if t.state in ("pending", "quarantined") and any(file not in s.staged | s.output for file in t.sequence.files):
        return "NEEDED FILE GONE"
    return "STUCK" if last and t.state == "pending" else ""


# ---- actors
class Mover:
    """The next possible actions of one actor."""

    def __init__(self, s: State, i: int, scen: Scen) -> None:
        self.s, self.i, self.p, self.v, self.scen = s, i, s.procs[i], scen.v, scen
        self.f = fold(s.log, scen.v)
        self.t = self.f.ds

    def go(self, label: str, phase: str = "", x: tuple[Any, ...] = (), e: int = 0, **changes: Any) -> tuple[str, State]:
        q = self.p._replace(phase=phase or self.p.phase, x=x, e=e or self.p.e)
        procs = (*self.s.procs[: self.i], q, *self.s.procs[self.i + 1 :])
        return f"{self.p.id}: {label}", self.s._replace(procs=procs, **changes)

    def put(self, kind: str, e: int | None, arg: Any, phase: str, after: int = 0) -> tuple[str, State]:
        log = (*self.s.log, Rec(kind, e or 0, arg))
        return self.go(f"puts {kind}" + (f"({e})" if e else ""), phase, e=after, log=log)

    def can(self, kind: str, e: int | None, arg: Any) -> bool:
        return log_model.valid(Rec(kind, e or 0, arg), self.f, self.v)


def shown(file: File) -> str:
    return f"{file.kind}({file.e}, {file.wrote}) of {', '.join(map(str, file.records or file.names))}"


def publishes(m: Mover, after: str) -> Moves:
    """Publish one of the files in its hands, whatever the log contains by now, as a zombie does."""
    for file in m.p.x:
        remaining = tuple(other for other in m.p.x if other != file)
        if file in m.s.staged or (file.kind in STONES and "outside" in m.v):
            still_staged, there = m.s.staged - {file}, m.s.output | {file}
            yield m.go(
                f"publishes {shown(file)}",
                x=remaining,
                phase="" if remaining else after,
                staged=still_staged,
                output=there,
            )
        else:  # published by a twin, or withdrawn: detected at the close
            yield m.go(f"finds {shown(file)} moved", x=remaining, phase="" if remaining else after)


def closes(m: Mover, e: int, after: str) -> Moves:
    t = m.t
    if t.seq is None or t.seq.e != e or not m.can("DONE", m.p.e, e):
        yield m.go("finds it closed, or is fenced", after)
    elif any(file not in m.s.output for file in t.seq.files):
        yield m.go("finds a file that is neither staged nor published", "over", bad="FALSE LOST")
    else:
        yield m.put("DONE", m.p.e, e, after)


def begin(m: Mover) -> Moves:
    done_files = [file for r in m.s.log if r.kind == "INTENT" and r.e == m.t.done for file in r.arg.files]
    if m.t.done > m.s.ended and any(file not in m.s.output for file in done_files):
        yield m.go("finds the output older", "over", bad="FALSE ALARM: A FILE OF A DEAD RUN IS MISSING")
        return
    e = m.f.fence + 1
    yield m.put("FENCE", e, m.p.id, "replay", e)


def replay(m: Mover) -> Moves:
    if m.f.fence > m.p.e:
        yield m.go("is fenced", "over")
    elif m.t.state == "pending":
        yield m.go("takes over the pending sequence", "take over", m.t.sequence.files)
    else:
        yield m.go("has replayed", "deletes" if m.t.state == "idle" else "ends")


def retired(m: Mover) -> tuple[File, ...]:
    """Return the files that may be deleted, the oldest first and each tombstone after the files it names. A replacement
    is deleted with the files that the next one names.
    """
    done = m.t.done
    tombstones = [file for file in sorted(m.s.output) if file.kind in STONES and (file.e <= done or "no_wait" in m.v)]
    tombstones = [tomb for tomb in tombstones if tomb.e <= m.s.ended or m.v & {"unended", "no_wait"}]
    tombstones.sort(key=lambda tomb: tomb.e, reverse="newest_first" in m.v)
    todo: list[File] = []
    for tomb in tombstones:
        own = [tomb] if tomb.kind == "tomb" or "no_newest" in m.v else []
        names = sorted(tomb.names, key=lambda name: name.kind == "repl")
        todo += [*own, *names] if "tombstone_first" in m.v else [*names, *own]
    return tuple(file for file in dict.fromkeys(todo) if file in m.s.output)


def deletes(m: Mover) -> Moves:
    """Delete, one by one, the files that it once read as superseded. It may sleep in between."""
    if m.p.x:
        yield m.go(f"deletes {shown(m.p.x[0])}", x=m.p.x[1:], phase="" if m.p.x[1:] else "plans",
                   output=m.s.output - {m.p.x[0]})  # fmt: skip
        return
    todo = retired(m)
    yield m.go("finds superseded files", x=todo) if todo else m.go("finds no superseded file", "plans")


def plans(m: Mover) -> Moves:
    """Read the live error files and plan them. Each record is accepted, or rejected again."""
    if m.p.kind in ("replacer", "compactor"):
        yield from replaces(m) if m.p.kind == "replacer" else compacts(m)
        return
    errors = [file for file in live(m.s.output, m.t.done, m.v) if file.kind == "error"]
    fed = tuple(record for file in errors for record in file.records)
    e, own = m.p.e, m.p.id
    for kind in ("good", "error") if fed else ("nothing",):
        files = [File(kind, e, own, fed), File("tomb", e, own, (), tuple(errors))] if fed else []
        to = m.t.wm
        if m.scen.beside and to == READ:
            files, to = [*files, File("good", e, f"{own}, appended", (to,))], to + 1
        if files and m.t.state == "idle":
            sequence = Seq(URN, e, tuple(files), m.t.wm, to, 0, False)
            yield m.go(f"stages {kind} of {fed} and {to - m.t.wm} more", "seals", (sequence,),
                       staged=m.s.staged | set(files))  # fmt: skip
        else:
            yield m.go("has nothing to do", "ends")


def replaces(m: Mover) -> Moves:
    """Read a record, then the live files. The run that seals does both."""
    t, e, own = m.t, m.p.e, m.p.id
    if t.state != "idle" or t.closed >= e:
        yield m.go("has nothing to do", "ends")
        return
    new = File("good", e, own, (t.wm,))
    there = live(m.s.output, t.done, m.v)
    if m.scen.by_partition:
        names = [f for f in there if f.kind == "repl" or (f.kind == "good" and partition(f) == partition(new))]
    else:
        names = [f for f in there if f.kind != "error" or "keep_errors" not in m.v]
    replaced_records = {record for f in names if f.kind != "repl" or "no_inherit" not in m.v for record in f.records}
    stone = File("repl", e, own, tuple(sorted(replaced_records)), tuple(names))
    sequence = Seq(URN, e, (new, stone), t.wm, t.wm + 1, 0, False)
    yield m.go(f"stages {shown(new)}, in the place of {len(names)}", "seals", (sequence,),
               staged=m.s.staged | {new, stone})  # fmt: skip


def compacts(m: Mover) -> Moves:
    """Merge the live files of the branch. The conservation check refuses a merged file with other records."""
    t, e, own = m.t, m.p.e, m.p.id
    small = [file for file in live(m.s.output, t.done, m.v) if file.kind == "good"]
    if t.state != "idle" or t.closed >= e or len(small) < 2:
        yield m.go("has nothing to do", "ends")
        return
    read = small[:-1] if "drops_file" in m.v else small
    named = small[:-1] if "forgets_file" in m.v else small
    merged = File("good", e, own, tuple(record for file in read for record in file.records))
    if "unchecked" not in m.v and merged.records != tuple(record for file in named for record in file.records):
        yield m.go("finds other records than in the files to supersede", "ends")
        return
    sequence = Seq(URN, e, (merged, File("tomb", e, own, (), tuple(named))), t.wm, t.wm, 0, False)
    yield m.go(f"stages {shown(merged)}", "seals", (sequence,), staged=m.s.staged | set(sequence.files))


def seals(m: Mover) -> Moves:
    (sequence,) = m.p.x
    if m.can("INTENT", m.p.e, sequence):
        name, state = m.put("INTENT", m.p.e, sequence, "publishes")
        q = state.procs[m.i]._replace(x=sequence.files)
        yield name, state._replace(procs=(*state.procs[: m.i], q, *state.procs[m.i + 1 :]))
    elif m.t.state == "pending" and m.t.sequence.e == m.p.e and m.f.fence == m.p.e:
        yield m.go("takes the sequence of its twin", "publishes", m.t.sequence.files)
    else:
        yield m.go("may not seal", "ends")


def run(m: Mover) -> Moves:
    p = m.p
    match p.phase:
        case "begin":
            yield from begin(m)
        case "replay":
            yield from replay(m)
        case "take over":
            yield from publishes(m, "closes older")
        case "closes older":
            yield from closes(m, m.t.seq.e if m.t.seq else 0, "deletes")
        case "deletes":
            yield from deletes(m)
        case "plans":
            yield from plans(m)
        case "seals":
            yield from seals(m)
        case "publishes":
            yield from publishes(m, "deletes early" if "delete_first" in m.v else "closes")
        case "deletes early":
            names = {name for file in m.t.seq.files for name in file.names} if m.t.seq else set()
            yield m.go("deletes before DONE", "closes", output=m.s.output - names)
        case "closes":
            yield from closes(m, p.e, "ends")
        case "ends":
            whole = m.f.fence == p.e and m.t.state == "idle"
            yield m.go("ends", "over", ended=max(m.s.ended, p.e) if whole else m.s.ended)


def person(m: Mover) -> Moves:
    t = m.t
    match m.p.phase:
        case "begin":
            if t.state == "pending":
                yield m.put("QUARANTINE", None, t.sequence.e, "revokes")
        case "revokes":
            if t.state == "quarantined":
                yield m.put("REVOKING", None, t.sequence.e, "takes")
            else:
                yield m.go("finds the sequence retried", "over")
        case "takes" if t.seq is None:
            yield m.go("finds the sequence accepted", "over")
        case "takes":
            files = sorted(t.sequence.files, key=lambda file: file.kind not in STONES)
            staged = [("withdraw", file) for file in files]
            there = [("undo", file) for file in files]
            yield m.go("begins to take back", "takes back",
                       (*there, *staged) if "targets_first" in m.v else (*staged, *there))  # fmt: skip
        case "takes back":
            if not m.p.x and t.seq is None:
                yield m.go("finds the sequence accepted", "over")
                return
            if not m.p.x:
                yield m.put("ABANDONED", None, t.sequence.e, "over")
                return
            (how, file), *remaining = m.p.x
            if how == "withdraw":
                yield m.go(f"withdraws {shown(file)}", x=tuple(remaining), staged=m.s.staged - {file})
            else:
                yield m.go(f"undoes {shown(file)}", x=tuple(remaining), output=m.s.output - {file})


def accepts(m: Mover) -> Moves:
    """Accept a sequence, whatever another operator has begun. The check and the record are two actions."""
    t = m.t
    match m.p.phase:
        case "begin":
            is_published = t.seq is not None and all(file in m.s.output for file in t.seq.files)
            takes_revoking = "accept_revoking" in m.v or (is_published and "accept_published" in m.v)
            if t.state == "quarantined" and (is_published or "accept_unpublished" in m.v):
                yield m.go("may accept", "accepts", x=("ACCEPT", t.sequence.e))
            elif t.state == "revoking" and takes_revoking:
                yield m.go("may accept", "accepts", x=("GIVEN-UP", t.sequence.e))
        case "accepts":
            kind, e = m.p.x
            yield m.put(kind, None, e, "over") if m.can(kind, None, e) else m.go("finds it released", "over")


def rebuilds(m: Mover) -> Moves:
    """Replace the log by what the output proves. No actor that has begun goes on. In a variant a file that a tombstone
    names, or whose records another one has, was deleted by accident. Then only the rebuild itself is checked: it
    repeats no record, and loses none that another file has.
    """
    procs = tuple(p if p.phase == "begin" and p.id != m.p.id else p._replace(phase="over") for p in m.s.procs)
    good = [file for file in m.s.output if file.kind == "good"]
    inputs = [file for file in good if any(set(file.records) < set(other.records) for other in good)]
    named = {name for file in m.s.output if file.kind == "tomb" for name in file.names}
    for lost in (None, *sorted((named & m.s.output).union(inputs))):
        before = m.s.output - {lost} if lost else m.s.output
        output, newest = proven(before, m.v)
        e = max(file.e for file in m.s.output)
        sequence = Seq(URN, newest, tuple(sorted(f for f in output if f.e == newest)), READ, READ, 0, False)
        log = [Rec("FENCE", e, "rebuild")]
        if newest > 1:
            log = [Rec("FENCE", newest, "rebuild"), Rec("INTENT", newest, sequence), Rec("DONE", newest, newest), *log]
        log = log[:-1] if newest == e > 1 else log
        visible = Counter(record for file in live(output, newest, m.v) for record in file.records)
        dropped = {record for file in before for record in file.records}.difference(visible)
        bad = (
            "A RECORD OF A PUBLISHED FILE IS IN NO LIVE FILE"
            if dropped.difference(lost.records if lost else ())
            else ""
        )
        if max(visible.values(), default=0) > 1:
            bad = "A RECORD IS IN TWO LIVE FILES"
        if lost and not bad:
            continue  # at most the lost records are a gap, which a rebuild reports
        yield (
            f"{m.p.id}: rebuilds" + (f" without {shown(lost)}" if lost else ""),
            m.s._replace(
                log=tuple(log),
                staged=frozenset(),
                output=output,
                ended=newest,
                procs=procs,
                bad=bad,
            ),
        )


def proven(output: frozenset[File], v: frozenset[str]) -> tuple[frozenset[File], int]:
    """Return the files without those that are set aside, and the newest epoch that counts."""
    stones = [file for file in output if file.kind == "tomb"]
    superseded = {name for stone in stones for name in stone.names}
    newest = max(file.e for file in output)
    aside: set[File] = set()
    for stone in stones:
        merged = [f for f in {*output, *superseded} if f.kind == "good" and (f.e, f.wrote) == (stone.e, stone.wrote)]
        deleted = any(name not in output for name in stone.names)
        if not merged and not ("deleted_proves" in v and (deleted or stone.e < newest)):
            aside.add(stone)
    superseded = {name for stone in stones if stone not in aside for name in stone.names}
    for file in output - superseded:
        older = {record for other in output - superseded if other.e < file.e for record in other.records}
        without_stone = not any((stone.e, stone.wrote) == (file.e, file.wrote) for stone in stones)
        is_undone = older.issuperset(file.records) if "all_inputs" in v else not older.isdisjoint(file.records)
        if file.kind == "good" and file.e > 1 and without_stone and is_undone:
            aside.add(file)
    remaining = output - aside
    return remaining, max(file.e for file in remaining)


ACTORS = {
    **{"run": run, "replacer": run, "compactor": run, "person": person},
    **{"acceptor": accepts, "rebuilder": rebuilds},
}


def moves(s: State, scen: Scen) -> Moves:
    for i, p in enumerate(s.procs):
        if p.phase != "over":
            yield from ACTORS[p.kind](Mover(s, i, scen))


# ---- scenarios
def scenario(name: str, switches: str = "") -> Scen:
    fenced = Rec("FENCE", 2, "A")
    planning = Proc("A", e=2, phase="plans")
    replacing, compacting = planning._replace(kind="replacer"), planning._replace(kind="compactor")
    twin, person_ = Proc("B", e=2, phase="plans"), Proc("H", "person")
    procs: dict[str, tuple[Proc, ...]] = {
        "twins": (planning, twin, Proc("N")),
        "abandon": (planning, person_, Proc("N")),
        "abandon twins": (planning, twin, person_, Proc("N")),
        "beside": (planning, person_, Proc("N")),
        "chain": (Proc("A"), Proc("B"), Proc("C")),
        "deleters": (planning, Proc("N"), Proc("O"), person_),
        "replace twins": (replacing, Proc("B", "replacer", 2, "plans"), Proc("N", "replacer")),
        "replace abandon": (replacing, person_, Proc("N", "replacer")),
        "replace chain": (Proc("A", "replacer"), Proc("B", "replacer"), Proc("C", "replacer")),
        "replace reprocess": (replacing, Proc("R"), Proc("N", "replacer")),
        "partition abandon": (replacing, person_, Proc("N", "replacer")),
        "partition chain": (Proc("A", "replacer"), Proc("B", "replacer"), Proc("C", "replacer")),
        "compact twins": (compacting, Proc("B", "compactor", 2, "plans"), Proc("N", "compactor")),
        "compact abandon": (compacting, person_, Proc("N", "compactor")),
        "compact beside": (compacting, Proc("N"), Proc("C", "compactor")),
        "compact chain": (Proc("A", "compactor"), Proc("N"), Proc("C", "compactor")),
        "compact accept": (compacting, person_, Proc("P", "acceptor"), Proc("N")),
        "accept": (planning, person_, Proc("P", "acceptor"), Proc("N")),
        "replace accept": (replacing, person_, Proc("P", "acceptor"), Proc("N", "replacer")),
        "compact rebuild": (compacting, person_, Proc("R", "rebuilder"), Proc("N", "compactor"), Proc("O")),
    }
    init = State(
        (fenced,) if procs[name][0].e else (),
        frozenset(),
        frozenset((GOOD, SMALL if name.startswith("compact") else BAD)),
        1,
        procs[name],
    )
    is_beside = name in ("beside", "compact beside", "compact chain")
    return Scen(name, frozenset(switches.split()), is_beside, init, name.startswith("partition"))


DESIGN = (
    *("twins", "abandon", "abandon twins", "beside", "chain", "deleters"),
    *("replace twins", "replace abandon", "replace chain", "replace reprocess", "partition abandon", "partition chain"),
    *("compact twins", "compact abandon", "compact beside", "compact chain"),
    *("compact accept", "compact rebuild", "accept", "replace accept"),
)
NAIVE = (
    ("abandon", "delete_first", "error files are deleted before DONE"),
    ("abandon", "outside", "the closing process puts the tombstone, from the log"),
    ("deleters", "no_wait", "a deleter that does not wait for DONE"),
    ("abandon", "all_tombs", "tombstones of any epoch count"),
    ("abandon", "targets_first", "abandon deletes published files before staged ones"),
    ("chain", "tombstone_first", "a tombstone is deleted before the files that it names"),
    ("chain", "unended", "deletion before the run of the tombstone, or a later one, has ended"),
    ("twins", "no_closed", "a twin may seal again, because the watermark has not moved"),
    ("twins", "no_fence", "INTENT and DONE of a fenced epoch count"),
    ("replace abandon", "delete_first", "replaced files are deleted before DONE"),
    ("replace abandon", "outside", "the closing process puts the replacement, from the log"),
    ("replace abandon", "all_tombs", "replacements of any epoch count"),
    ("replace abandon", "targets_first", "abandon deletes published files before staged ones"),
    ("replace chain", "no_newest", "the newest replacement is deleted with the files that it names"),
    ("replace chain", "no_inherit", "a replacement omits the records of the previous one"),
    ("replace chain", "newest_first", "a replacement is deleted before the files that it names"),
    ("replace reprocess", "keep_errors", "error files remain after the files beside them were replaced"),
    ("partition chain", "no_inherit", "a replacement of a partition omits the records of the previous one"),
    ("partition chain", "no_newest", "the newest replacement of partitions is deleted with its files"),
    ("compact twins", "drops_file unchecked", "a compaction omits the records of a file that it supersedes"),
    ("compact twins", "forgets_file unchecked", "a compaction does not supersede a file whose records it copied"),
    ("compact twins", "no_closed", "a twin may seal again, because the watermark has not moved"),
    ("compact abandon", "delete_first", "compacted files are deleted before DONE"),
    ("compact abandon", "no_wait", "a deleter of compacted files that does not wait for DONE"),
    ("compact abandon", "targets_first", "abandon deletes published files before staged ones"),
    ("compact chain", "tombstone_first", "a tombstone is deleted before the compacted files that it names"),
    ("compact accept", "accept_unpublished", "a compaction is accepted before its files are published"),
    ("compact accept", "accept_revoking", "a compaction is accepted while it is being abandoned"),
    ("compact accept", "accept_published", "the same, while all of its files are still published"),
    ("accept", "accept_revoking", "a reprocess is accepted while it is being abandoned"),
    ("replace accept", "accept_revoking", "a replacement is accepted while it is being abandoned"),
    ("compact rebuild", "deleted_proves", "a rebuild counts a compaction because a small file is missing"),
    (
        "compact rebuild",
        "all_inputs",
        "a rebuild counts a merged file without tombstone because a small file is missing",
    ),
)


def explore(name: str, switches: str = "", limit: int = 400_000, walks: int = 3_000) -> tuple[str, int, list[str]]:
    """Return the violation (`none`: none in any state; `none*`: none up to the limit and on walks from there), the
    number of states, and a history that leads to the violation.
    """
    scen = scenario(name, switches)
    return search.explore(scen, scen.init, limit, walks, 1, moves, check)


if __name__ == "__main__":
    model_command(explore, DESIGN, NAIVE)
