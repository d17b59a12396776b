"""Actors on logs and files, and their moves, for `log_scenarios`.

An actor's move is one atomic effect: fold and decide | put | one rename | one delete. A crash needs no move: an actor
that never moves again has crashed, and no invariant waits for an actor. So "any actor takes its next move at any time"
covers twins, zombies of older epochs and crashes at any point.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.spec.log_model import Rec
from tests.spec.log_operators import person, rebuilder, take
from tests.spec.log_runs import cutter, driver, execute, keeper, put, sweep, worker
from tests.spec.log_world import Mover, Moves, Scen, State


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
