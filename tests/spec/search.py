"""Search of a model's states: exhaustive up to a limit, then random walks from the frontier."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

State = TypeVar("State", bound=Hashable)
Scen = TypeVar("Scen")


def explore(
    scen: Scen,
    init: State,
    limit: int,
    walks: int,
    seed: int,
    moves: Callable[[State, Scen], Iterable[tuple[str, State]]],
    check: Callable[[State, Scen, bool], str],
) -> tuple[str, int, list[str]]:
    """Search for a state that violates an invariant.

    Args:
        scen: the scenario, for `moves` and `check`.
        init: the state in which it begins.
        limit: number of states after which the breadth-first search ends.
        walks: number of random walks from its frontier.
        seed: of the random walks.
        moves: returns all actions that are possible in a state, each with its label and the next state.
        check: returns a violation, or an empty text; the flag is set if no action is possible.

    Returns:
        The violation (`none`: none in any state; `none*`: none up to the limit and on the walks), the number of
        states, and the labels of the actions that lead to the violation.
    """
    seen: dict[State, tuple[State, str] | None] = {init: None}
    queue, rng = deque([init]), random.Random(seed)

    def history(state: State) -> list[str]:
        labels = []
        while (before := seen[state]) is not None:
            state, label = before
            labels.append(label)
        return labels[::-1]

    while queue and len(seen) < limit:
        state = queue.popleft()
        nexts = list(moves(state, scen))
        if wrong := check(state, scen, not nexts):
            return wrong, len(seen), history(state)
        for label, after in nexts:
            if after not in seen:
                seen[after] = (state, label)
                queue.append(after)
    for _ in range(walks if queue else 0):
        begin = state = rng.choice(queue)
        path: list[str] = []
        while True:
            nexts = list(moves(state, scen))
            if wrong := check(state, scen, not nexts):
                return wrong, len(seen), [*history(begin), *path]
            if not nexts:
                break
            label, state = rng.choice(nexts)
            path.append(label)
    return ("none*" if queue else "none"), len(seen), []
