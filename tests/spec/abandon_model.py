"""Executable model of abandoning a sequence that goes to files, a table and an irrevocable target.

    python -m tests.spec.abandon_model                        the table: every scenario and every naive variant
    python -m tests.spec.abandon_model one forward            one scenario (with naive switches), history in full

Model: one dataset, whose record goes to files, to a table and to a message log, in that order. Epoch 1 was abandoned,
and a zombie of it may be about to write to the table or the messages. Epoch 2 is sealed: one run executes it, a newer
run replays it, and each may be overtaken. A step may fail once, and an operator may quarantine a pending sequence.

Operators abandon it: REVOKING, then the targets from the last to the first. A target that has the commit takes it back;
a target without it forbids it in its ledger. Messages can't be taken back, and neither can a compacted table. A target
that refuses once refuses always. If one refuses, the forbidden commits are allowed again, followed by RESTORED.
Otherwise ABANDONED follows, and a newer run reads the record again, as epoch 3. Every process may stop for good between
any two actions.

Invariants, in every state:

- No target has the record twice, or a record of an abandoned epoch.
- A closed sequence is at all targets.
- If an operator is told that the sequence can't be abandoned, nothing has changed, and a retry is not refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.spec.model_command import model_command

FILES, TABLE, MESSAGES = 0, 1, 2


class Target(NamedTuple):
    row: int = 0
    revoked: int = 1
    data: tuple[int, ...] = ()


class Run(NamedTuple):
    e: int  # its own epoch, by which it may be fenced
    works_on: int = 0  # the epoch of the sequence in hand; 0: none yet
    at: int = 0
    failed: bool = False


class Person(NamedTuple):
    at: int = -1  # the next target; -1: not begun
    phase: str = "idle"
    revoked: tuple[int, ...] = ()


class State(NamedTuple):
    status: str = "pending"
    sequence: int = 2  # the epoch of the open sequence, or of the last one
    done: int = 0
    fence: int = 2
    abandoned: frozenset[int] = frozenset((1,))
    staged: frozenset[int] = frozenset((2,))
    targets: tuple[Target, Target, Target] = (Target(), Target(), Target())
    compacted: bool = False
    runs: tuple[Run, ...] = ()
    persons: tuple[Person, ...] = ()
    acts: frozenset[str] = frozenset()
    before: tuple[tuple[int, ...], ...] = ()  # the targets' contents when REVOKING was written
    restored: bool = False
    wrong: str = ""


def moves(state: State, naive: frozenset[str]) -> Iterator[tuple[str, State]]:
    """Yield the next states of all actors."""
    for at, run in enumerate(state.runs):
        for label, after, changed in _of_run(state, run, naive):
            yield f"run {run.e} {label}", changed._replace(runs=(*state.runs[:at], after, *state.runs[at + 1 :]))
    for at, person in enumerate(state.persons):
        for label, who, changed in _of_person(state, person, naive):
            persons = (*state.persons[:at], who, *state.persons[at + 1 :])
            yield f"operator {at} {label}", changed._replace(persons=persons)
    if "compact" in state.acts and state.targets[TABLE].data:
        yield "the table is compacted", state._replace(compacted=True, acts=state.acts - {"compact"})
    for act, needed, then in (("quarantine", "pending", "quarantined"), ("retry", "quarantined", "pending")):
        if act in state.acts and state.status == needed:
            yield f"operator: {act}", state._replace(status=then, acts=state.acts - {act})


def _of_run(state: State, run: Run, naive: frozenset[str]) -> Iterator[tuple[str, Run, State]]:
    newest = state.fence == run.e
    if run.e > state.fence:
        yield "fences", run, state._replace(fence=run.e)
    elif not run.works_on and newest:
        if state.status == "pending":
            yield f"takes up {state.sequence}", run._replace(works_on=state.sequence, at=FILES), state
        elif state.status == "idle" and not state.done and state.sequence < run.e:
            sealed = state._replace(status="pending", sequence=run.e, staged=state.staged | {run.e}, restored=False)
            yield "seals", run._replace(works_on=run.e), sealed
    elif run.works_on and run.at <= MESSAGES and not run.failed:
        ok, changed = _execute(state, run.works_on, run.at, naive)
        is_current = newest and state.status == "pending" and state.sequence == run.works_on
        if not ok and is_current and state.restored:
            changed = changed._replace(wrong=f"a retry after RESTORED is refused at target {run.at}")
        yield f"{'does' if ok else 'is refused'} {run.at}", run._replace(at=run.at + 1, failed=not ok), changed
        if "fault" in state.acts and is_current:
            yield f"can't {run.at}", run._replace(failed=True), state._replace(acts=state.acts - {"fault"})
    elif run.works_on and newest and state.sequence == run.works_on:
        over = run._replace(works_on=0, at=FILES, failed=False)
        if run.failed and state.status == "pending":
            yield "FAILED", over, state._replace(status="quarantined")
        elif not run.failed and state.status in ("pending", "quarantined"):
            yield "DONE", over, state._replace(status="idle", done=run.works_on)
        else:
            yield "finds that the record is not valid", over, state


def _execute(state: State, epoch: int, at: int, naive: frozenset[str]) -> tuple[bool, State]:
    """Return whether the step is done, and the state after it."""
    target = state.targets[at]
    if epoch in target.data:
        return True, state
    if at == FILES:
        if epoch not in state.staged:
            return False, state
        changed = state._replace(staged=state.staged - {epoch})
        return True, _put(changed, at, target._replace(data=(*target.data, epoch)))
    if epoch <= target.revoked or target.row > 0:
        return False, state
    return True, _put(state, at, target._replace(row=epoch, data=(*target.data, epoch)))


def _put(state: State, at: int, target: Target) -> State:
    targets = list(state.targets)
    targets[at] = target
    return state._replace(targets=(targets[0], targets[1], targets[2]))


def _of_person(state: State, person: Person, naive: frozenset[str]) -> Iterator[tuple[str, Person, State]]:
    order = (MESSAGES, TABLE, FILES)
    if "forward" in naive or "table_first" in naive:
        order = (FILES, TABLE, MESSAGES) if "forward" in naive else (TABLE, MESSAGES, FILES)
    epoch = 2
    if person.phase == "idle":
        if state.sequence == epoch and state.status == "quarantined":
            data = tuple(target.data for target in state.targets)
            yield "REVOKING", Person(0, "withdraw"), state._replace(status="revoking", before=data, restored=False)
        elif state.sequence == epoch and state.status == "revoking":
            yield "resumes", Person(0, "withdraw"), state
    elif person.phase == "withdraw" and person.at < len(order):
        at = order[person.at]
        refused, changed = _withdraw(state, epoch, at, naive)
        if refused:
            yield f"is refused by {at}", person._replace(phase="allow"), state
        else:
            revoked = (*person.revoked, at)
            yield f"takes {at} back", person._replace(at=person.at + 1, revoked=revoked), changed
    elif person.phase == "withdraw":
        published = state.targets[FILES]
        withdrawn = _put(state, FILES, published._replace(data=tuple(e for e in published.data if e != epoch)))
        yield "deletes published files", person._replace(phase="abandon"), withdrawn
    elif person.phase == "allow" and person.revoked and "no_undo" not in naive and "restored_first" not in naive:
        last = person.revoked[-1]
        yield f"allows {last} again", person._replace(revoked=person.revoked[:-1]), _allow(state, epoch, last, naive)
    elif person.phase == "allow":
        after = Person(phase="late" if person.revoked and "restored_first" in naive else "over", revoked=person.revoked)
        if state.status == "revoking" and state.sequence == epoch:
            wrong = "" if _as_before(state) else f"removed, and RESTORED: {state.before} was {state.targets}"
            yield "RESTORED", after, state._replace(status="quarantined", restored=True, wrong=wrong)
        else:
            yield "finds it restored", after, state
    elif person.phase == "late" and person.revoked:
        last = person.revoked[-1]
        yield f"allows {last} again", person._replace(revoked=person.revoked[:-1]), _allow(state, epoch, last, naive)
    elif person.phase == "abandon" and state.status == "revoking" and state.sequence == epoch:
        idle = state._replace(status="idle", abandoned=state.abandoned | {epoch}, staged=state.staged - {epoch})
        yield "ABANDONED", person._replace(phase="over"), idle


def _as_before(state: State) -> bool:
    """Return whether nothing was removed, and each staged file is staged or published."""
    there = all(set(old) <= set(new.data) for old, new in zip(state.before, state.targets, strict=True))
    return there and (2 in state.staged or 2 in state.targets[FILES].data)


def _withdraw(state: State, epoch: int, at: int, naive: frozenset[str]) -> tuple[bool, State]:
    """Return whether the target refuses, and otherwise its state after the withdrawal."""
    target = state.targets[at]
    if at == FILES:
        return False, state._replace(staged=state.staged - {epoch})
    if epoch in target.data:
        if at == MESSAGES or state.compacted:
            return True, state
        data = tuple(e for e in target.data if e != epoch)
        return False, _put(state, at, Target(0, max(target.revoked, epoch), data))
    if "no_revoke" in naive:
        return False, state
    return False, _put(state, at, target._replace(revoked=max(target.revoked, epoch)))


def _allow(state: State, epoch: int, at: int, naive: frozenset[str]) -> State:
    target = state.targets[at]
    if at == FILES or target.revoked != epoch:
        return state
    return _put(state, at, target._replace(revoked=0 if "to_nothing" in naive else epoch - 1))


def check(state: State) -> str:
    """Return the violation of a state, or an empty string."""
    if state.wrong:
        return state.wrong
    for at, target in enumerate(state.targets):
        if len(target.data) > 1:
            return f"twice at target {at}: epochs {target.data}"
        if state.abandoned & set(target.data):
            return f"an abandoned epoch is at target {at}: epochs {target.data}"
        if state.done and not target.data:
            return f"closed, but missing at target {at}"
    return ""


def _scenario(name: str) -> State:
    acts = {
        "one": {"fault", "quarantine", "retry", "compact"},
        "two": {"fault", "compact"},
        "older": {"fault", "retry", "compact"},
    }[name]
    persons = (Person(),) * (2 if name == "two" else 1)
    zombies = tuple(Run(1, 1, at) for at in ((TABLE, MESSAGES) if name == "older" else ()))
    runs = (*zombies, Run(2, 2), *(Run(e) for e in ((3,) if name == "older" else (3, 4))))
    return State(runs=runs, persons=persons, acts=frozenset(acts))


DESIGN = ("one", "two", "older")
NAIVE = (
    ("one", "forward", "staged files are deleted before the targets are asked"),
    ("one", "no_undo", "RESTORED leaves the revocations"),
    ("one", "restored_first", "RESTORED is written before the revocations are undone"),
    ("one", "no_revoke", "a target without the commit does not forbid it"),
    ("one", "table_first", "revocable targets are rolled back before the others are asked"),
    ("older", "to_nothing", "allowing a commit again forgets older revocations"),
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
