"""Executable model of bases: the epochs that a target's ledger may have before a commit, by the store's records.

    python -m tests.spec.bases_model                       the table: every scenario and every naive variant
    python -m tests.spec.bases_model accept accept_new     one scenario (with naive switches), history in full

Model: one dataset, one branch and one target with a ledger row. Each run reads the next of the source's records 0, 1
and 2. Some records produce no output, so that an epoch leaves the branch empty. A run fences, finishes pending
sequences, seals, commits at the target and closes. It may leave a sequence quarantined, with or without its commit. An
operator accepts it, abandons it (taken back at the target, then ABANDONED) or retries it. A process with a commit in
hand may continue after a newer fence, as a zombie.

Once in a history, the target or the bucket's log may be restored from a copy of any earlier moment. Or the whole store
is restored with its output, after which epoch numbers repeat. All running runs end then, except for a commit in hand.

Invariants, in every state:

- No record is at the target twice.
- No record below the watermark is missing there, unless it produced no output, an operator gave it up, or the target
  was restored.
- No commit goes to a target that lacks an earlier commit.
- No false alarm: without a restore, no commit is rejected as one of another target.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.spec.model_command import model_command

RECORDS = 3
_UNKNOWN: frozenset[int] | None = None


class Seq(NamedTuple):
    e: int
    by: str  # its run, a different one for each fence
    low: int
    writes: bool
    bases: frozenset[int] | None


class Log(NamedTuple):
    wm: int = 0
    status: str = "idle"
    seq: Seq | None = None
    bases: frozenset[int] | None = frozenset((0,))
    closed: int = 0


class Target(NamedTuple):
    row: int = 0
    by: str = ""
    base: int = 0
    revoked: int = 0
    data: tuple[tuple[int, int], ...] = ()  # epoch, record


class Proc(NamedTuple):
    e: int
    again: bool = False  # after the store was restored
    phase: str = "fence"
    seq: Seq | None = None  # its unfinished commit
    answer: str = ""


class State(NamedTuple):
    log: Log
    target: Target
    fence: int
    procs: tuple[Proc, ...]
    given_up: frozenset[int] = frozenset()
    empty: frozenset[int] = frozenset()
    faults: int = 0
    acts: frozenset[str] = frozenset()  # the operator's remaining actions
    restores: frozenset[str] = frozenset()
    log_copy: tuple[Log, int] | None = None  # and the newest fence
    target_copy: Target | None = None
    restored: str = ""
    wrong: str = ""


def moves(state: State, naive: frozenset[str]) -> Iterator[tuple[str, State]]:
    """Yield the next states of all actors."""
    for at, proc in enumerate(state.procs):
        for label, after, changed in _of_run(state, proc, naive):
            procs = (*changed.procs[:at], after, *changed.procs[at + 1 :])
            yield f"run {proc.e} {label}", changed._replace(procs=procs)
    yield from _of_person(state, naive)
    if not state.restored:
        yield from _of_copies(state)


def _of_copies(state: State) -> Iterator[tuple[str, State]]:
    log, copy = state.log_copy, state.target_copy
    over = state._replace(procs=tuple(p if p.phase == "fence" else p._replace(phase=_ended(p)) for p in state.procs))
    if state.restores & {"log", "store"} and log is None:
        yield "the log is copied", state._replace(log_copy=(state.log, state.fence))
    elif log is not None and log[0] != state.log:
        if "log" in state.restores:
            yield "THE LOG IS RESTORED", over._replace(log=log[0], restored="log")
        if "store" in state.restores:
            yield "THE STORE IS RESTORED", over._replace(log=log[0], fence=log[1], restored="store")
    if "target" in state.restores and copy is None:
        yield "the target is copied", state._replace(target_copy=state.target)
    elif copy is not None and copy != state.target:
        yield "THE TARGET IS RESTORED", over._replace(target=copy, restored="target")


def _ended(proc: Proc) -> str:
    return "zombie" if proc.phase == "commit" else "dead"


def _of_run(state: State, proc: Proc, naive: frozenset[str]) -> Iterator[tuple[str, Proc, State]]:
    log, owns_fence = state.log, state.fence == proc.e
    if proc.phase == "fence" and proc.e > state.fence and proc.again == (state.restored == "store"):
        yield "fences", proc._replace(phase="look"), state._replace(fence=proc.e)
    elif proc.phase == "look" and owns_fence:
        if log.status == "pending" and log.seq is not None:
            yield "takes over the sequence", proc._replace(phase="commit", seq=log.seq), state
        elif log.status == "idle" and log.closed < proc.e and log.wm < RECORDS:
            for writes in (True, False) if "empty" in state.acts else (True,):
                by = f"{proc.e}{'again' if proc.again else ''}"
                seq = Seq(proc.e, by, log.wm, writes, log.bases)
                sealed = log._replace(status="pending", seq=seq, closed=proc.e)
                acts = state.acts if writes else state.acts - {"empty"}
                empty = state.empty if writes else state.empty | {log.wm}
                changed = state._replace(log=sealed, acts=acts, empty=empty)
                yield f"seals {seq}", proc._replace(phase="commit", seq=seq), changed
    elif proc.phase == "zombie" and proc.seq is not None:
        answer, changed = _commit(state, proc.seq, naive)
        yield f"{answer}, a zombie", proc._replace(phase="dead"), changed
    elif proc.phase == "commit" and proc.seq is not None:
        answer, changed = _commit(state, proc.seq, naive)
        yield answer, proc._replace(phase="close", answer=answer), changed
        if state.faults and owns_fence:
            yield "can't", proc._replace(phase="close", answer="can't"), state._replace(faults=state.faults - 1)
    elif proc.phase == "close" and owns_fence and log.seq == proc.seq and log.status in ("pending", "quarantined"):
        if proc.answer in ("commits", "already", "nothing"):
            yield "DONE", proc._replace(phase="look"), state._replace(log=_done(log, naive))
            if state.faults and log.status == "pending":
                failed = log._replace(status="quarantined")
                yield "FAILED after all", proc._replace(phase="look"), state._replace(log=failed, faults=0)
        elif log.status == "pending":
            yield "FAILED", proc._replace(phase="look"), state._replace(log=log._replace(status="quarantined"))


def _commit(state: State, seq: Seq, naive: frozenset[str]) -> tuple[str, State]:
    target = state.target
    if not seq.writes:
        return "nothing", state
    if target.row == seq.e and (target.by == seq.by or "number" in naive):
        return "already", state
    if target.row > seq.e and "number" in naive:
        return "already", state
    if target.row < seq.e <= target.revoked:
        return "taken back", state
    base_matches = seq.bases is None or target.row in seq.bases or "lt" in naive
    if target.row >= seq.e or not base_matches:
        is_mine = state.log.seq == seq  # a zombie may get any answer
        alarm = is_mine and not state.restored
        return "STALE", state._replace(wrong=f"false alarm: row {target.row}, {seq}" if alarm else "")
    there = {record for _, record in target.data}
    lacks = set(range(seq.low)) - there - state.given_up - state.empty
    after = Target(seq.e, seq.by, target.row, target.revoked, tuple(sorted((*target.data, (seq.e, seq.low)))))
    wrong = f"written to a target that lacks {sorted(lacks)}" if lacks else ""
    return "commits", state._replace(target=after, wrong=wrong)


def _done(log: Log, naive: frozenset[str], *, accepted: bool = False) -> Log:
    seq = log.seq
    assert seq is not None
    bases = log.bases
    if accepted and seq.writes:
        both = bases | {seq.e} if bases is not None else _UNKNOWN
        bases = {"accept_new": frozenset((seq.e,)), "accept_old": bases}.get(next(iter(naive), ""), both)
    elif seq.writes or "empty_moves" in naive:
        bases = frozenset((seq.e,))
    elif "empty_forgets" in naive:
        bases = _UNKNOWN
    return log._replace(wm=seq.low + 1, status="idle", seq=None, bases=bases)


def _of_person(state: State, naive: frozenset[str]) -> Iterator[tuple[str, State]]:
    log, target = state.log, state.target
    if log.seq is None:
        return
    if log.status == "quarantined":
        if "accept" in state.acts:
            given_up = state.given_up | {log.seq.low}
            after = _done(log, naive, accepted=True)
            yield "operator accepts", state._replace(log=after, given_up=given_up, acts=state.acts - {"accept"})
        if "retry" in state.acts:
            again = log._replace(status="pending")
            yield "operator retries", state._replace(log=again, acts=state.acts - {"retry"})
        if "abandon" in state.acts:
            revoking = log._replace(status="revoking")
            yield "operator: REVOKING", state._replace(log=revoking, acts=state.acts - {"abandon"})
    elif log.status == "revoking":
        e, revoked = log.seq.e, max(target.revoked, log.seq.e)
        if target.row > e or (target.row == e and target.by != log.seq.by and "number" not in naive):
            yield "operator: RESTORED", state._replace(log=log._replace(status="quarantined"))
        elif target.revoked < e:
            undone = target._replace(revoked=revoked)
            if target.row == e:
                row = 0 if "to_nothing" in naive else target.base
                undone = Target(row, "", 0, revoked, tuple(commit for commit in target.data if commit[0] != e))
            yield "operator takes it back", state._replace(target=undone)
        else:
            bases = frozenset((e,)) if "abandon_moves" in naive else log.bases
            idle = log._replace(status="idle", seq=None, bases=bases)
            yield "operator: ABANDONED", state._replace(log=idle)


def check(state: State) -> str:
    """Return the violation of a state, or an empty string."""
    if state.wrong:
        return state.wrong
    there = [record for _, record in state.target.data]
    if len(set(there)) < len(there):
        return f"twice at the target: {state.target.data}"
    missing = set(range(state.log.wm)) - set(there) - state.given_up - state.empty
    return f"missing at the target: {sorted(missing)}" if missing and state.restored != "target" else ""


def _scenario(name: str) -> State:
    acts = {
        "runs": {"empty"},
        "accept": {"accept", "empty"},
        "abandon": {"abandon", "retry"},
        "both": {"accept", "abandon"},
        "restores": {"empty", "retry"},
        "restores by hand": {"accept", "abandon"},
        "store restored": {"empty", "abandon"},
    }[name]
    restores = frozenset({"restores": ("log", "target"), "store": ("store",)}.get(name.split(maxsplit=1)[0], ()))
    procs = tuple(map(Proc, (1, 2, 3) if restores else (1, 2, 3, 4)))
    procs += tuple(Proc(e, again=True) for e in (1, 2, 3) if "store" in restores)
    faults = 0 if name == "runs" else 1
    return State(Log(), Target(), 0, procs, faults=faults, acts=frozenset(acts), restores=restores)


DESIGN = ("runs", "accept", "abandon", "both", "restores", "restores by hand", "store restored")
NAIVE = (
    ("restores", "lt", "a row below the epoch is enough"),
    ("store restored", "number", "an epoch with that number or a higher one counts as committed"),
    ("accept", "accept_new", "ACCEPT leaves the accepted epoch alone"),
    ("accept", "accept_old", "ACCEPT leaves the old epoch alone"),
    ("abandon", "abandon_moves", "ABANDONED leaves its epoch"),
    ("both", "to_nothing", "a revoked commit leaves no row"),
    ("runs", "empty_moves", "an epoch that leaves the branch empty counts as committed there"),
    ("restores", "empty_forgets", "an epoch that leaves the branch empty makes its bases unknown"),
)


def explore(name: str, switches: str = "", limit: int = 4_000_000) -> tuple[str, int, list[str]]:
    """Return the violation (`none`: none in any state; `none*`: none in the first ones), the number of states, and a
    history that leads to the violation.
    """
    naive, init = frozenset(switches.split()), _scenario(name)
    seen: dict[State, tuple[State, str] | None] = {init: None}
    todo = deque([init])
    while todo:
        state = todo.popleft()
        if len(seen) > limit:
            return "none*", len(seen), []
        if wrong := check(state):
            history: list[str] = []
            at = seen[state]
            while at is not None:
                history.append(at[1])
                at = seen[at[0]]
            return wrong, len(seen), history[::-1]
        for label, after in moves(state, naive):
            if after not in seen:
                seen[after] = state, label
                todo.append(after)
    return "none", len(seen), []


if __name__ == "__main__":
    model_command(explore, DESIGN, NAIVE)
