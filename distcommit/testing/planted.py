"""How long the checkers take to see a fault that somebody has made: faults are planted one at a time, and the same
checkers run on each, in the same order, from the same seed and with the same budget, until a history breaks.

Each fault has a process of its own, forked from one that has only imported the product. It goes round `explore`,
`interleave` and `faults`, some time for each. What is found is played once more on the sound product: a history that
breaks there, too, finds nothing. The sound product itself has to pass a whole budget.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import msgspec

from distcommit.model.errors import ConfigurationError
from distcommit.testing import explore, fault_histories, interleave
from distcommit.testing.casts import CASTS
from distcommit.testing.planted_faults import PLANTED, Planted
from distcommit.testing.planting import plant
from distcommit.testing.programs import PROGRAMS
from distcommit.testing.scenarios import SCENARIOS

_SLICE_S = 2.0
"""Processor time that a checker has before it is the next one's turn."""
BUDGET_S = 90.0
"""Processor time for one fault, after which it was not found."""
_HANGS_S = 60.0
"""What takes longer than this for one history does not end."""
_fork = multiprocessing.get_context("fork")


class Found(msgspec.Struct, frozen=True):
    """What became of one search. Without a `violation` nothing was seen. `history` is empty where the checker itself
    broke before it had one."""

    checker: str
    history: str
    violation: str
    attempts: int
    seconds: float


@dataclass(slots=True)
class _Search:
    """A process that looks for a fault; None: for anything wrong with the sound product."""

    fault: Planted | None
    process: Any
    answers: Connection
    began: float


def planted(
    seconds: float,
    seed: int,
    processes: int,
    only: str = "",
    budget_s: float = BUDGET_S,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Plants faults and lets the checkers look for each.

    Args:
        seconds: wall time for all; what is not found by then is not found.
        seed: what the checkers choose.
        processes: how many faults at a time.
        only: those whose name or class contains this.
        budget_s: processor time for each.
        say: told what became of each, a line each.

    Returns:
        plain values: `planted`, `found`, `seconds_to_find` and `by` (checker, history and violation) by fault,
        `not_found`, `sound` (what the unplanted product has passed), `seconds`, `seed`.

    Raises:
        ConfigurationError: if the sound product does not pass, or no fault is meant.
    """
    began = time.monotonic()
    chosen = [fault for fault in PLANTED if only in fault.name or only in fault.kind]
    if not chosen:
        raise ConfigurationError("no planted fault is meant", found=only, expected=", ".join(f.name for f in PLANTED))
    results: dict[str, Found] = {}
    sound: Found | None = None
    waiting: list[Planted | None] = [None, *chosen]
    searches: list[_Search] = []
    while (waiting or searches) and time.monotonic() - began < seconds:
        while waiting and len(searches) < processes:
            searches.append(_begun(waiting.pop(0), seed, budget_s))
        ready = wait([search.answers for search in searches], timeout=max(0.0, began + seconds - time.monotonic()))
        for search in [search for search in searches if search.answers in ready]:
            searches.remove(search)
            found = _answer(search)
            if search.fault is None:
                sound = _require_sound(found)
                say(f"sound: {found.attempts} histories passed in {found.seconds:.1f} s")
                continue
            results[search.fault.name] = _confirmed(found)
            say(_told(search.fault, results[search.fault.name]))
    for search in searches:
        _end(search)
    return _summed(chosen, results, sound, time.monotonic() - began, seed)


def _summed(
    chosen: Sequence[Planted], results: dict[str, Found], sound: Found | None, seconds: float, seed: int
) -> dict[str, Any]:
    seen = {fault: results[fault.name] for fault in chosen if fault.name in results and results[fault.name].violation}
    return {
        "planted": len(chosen),
        "found": len(seen),
        "seconds_to_find": {fault.name: found.seconds for fault, found in seen.items()},
        "by": {
            fault.name: {
                "class": fault.kind.value,
                "checker": found.checker,
                "history": found.history,
                "attempts": found.attempts,
                "violation": found.violation.strip().splitlines()[-1][:300],
            }
            for fault, found in seen.items()
        },
        "not_found": {
            fault.name: results[fault.name].attempts if fault.name in results else 0
            for fault in chosen
            if fault not in seen
        },
        "sound": None if sound is None else {"attempts": sound.attempts, "seconds": sound.seconds},
        "seconds": round(seconds, 1),
        "seed": seed,
    }


def _told(fault: Planted, found: Found) -> str:
    if not found.violation:
        return f"{fault.kind.value} {fault.name}: not found in {found.attempts} histories, {found.seconds:.1f} s"
    place = f"{found.checker} --replay {found.history}" if found.history else found.checker
    return f"{fault.kind.value} {fault.name}: found in {found.seconds:.1f} s by {place}"


def attempts(seed: int) -> Iterator[tuple[str, str, str]]:
    """Checkers, histories and what is wrong after each, if anything: all three checkers in turn, without end."""
    seen = explore.Findings()
    checkers: dict[str, Iterator[tuple[str, str]]] = {
        "explore": explore.recoveries([*SCENARIOS, *PROGRAMS], seed, seen),
        "interleave": ((h, wrong) for h, _, wrong in interleave.plays([*CASTS], itertools.count(seed * 1_000_000))),
        "faults": fault_histories.tries((), seed),
    }
    for checker in itertools.cycle(checkers):
        until = time.process_time() + _SLICE_S
        try:
            for history, wrong in checkers[checker]:
                yield checker, history, wrong
                if time.process_time() > until:
                    break
        except Exception as error:  # noqa: BLE001 - a checker that breaks has noticed
            yield checker, "", f"the checker itself fails: {type(error).__name__}: {error}"


def play_again(checker: str, history: str) -> str:
    """What is wrong after that history in this process, if anything."""
    if checker == "interleave":
        name, number, *trouble = history.split(":")
        return interleave.play(name, int(number), *trouble)[1]
    return explore.replay(history) if checker == "explore" else fault_histories.replay(history)


def _begun(fault: Planted | None, seed: int, budget_s: float) -> _Search:
    """A process that looks for it, and answers with a `Found`."""
    return _forked(fault, lambda answers: _search(fault, seed, budget_s, answers))


def _forked(fault: Planted | None, work: Callable[[Connection], None]) -> _Search:
    answers, theirs = _fork.Pipe(duplex=False)
    process = _fork.Process(target=_run_and_exit, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Search(fault, process, answers, time.monotonic())


def _run_and_exit(work: Callable[[Connection], None], answers: Connection) -> NoReturn:
    work(answers)
    os._exit(0)  # a wrong product's threads may never end


def _search(fault: Planted | None, seed: int, budget_s: float, answers: Connection) -> None:
    began, tried, last = time.monotonic(), 0, ("", "")

    def found(checker: str, history: str, wrong: str) -> None:
        seconds = round(time.monotonic() - began, 2)
        answers.send_bytes(msgspec.msgpack.encode(Found(checker, history, wrong, tried, seconds)))

    def hangs(number: int, frame: object) -> None:
        found(last[0] or "explore", "", f"does not end; the one before it was {last[1]}")
        os._exit(0)

    signal.signal(signal.SIGALRM, hangs)
    if fault is not None:
        plant(fault.edits)
    for checker, history, wrong in attempts(seed):
        signal.setitimer(signal.ITIMER_REAL, _HANGS_S)
        tried, last = tried + 1, (checker, history)
        if wrong:
            return found(checker, history, wrong)
        if time.process_time() > budget_s:
            break
    return found("", "", "")


def _answer(search: _Search) -> Found:
    """What a search has found.

    Raises:
        ConfigurationError: if its process died without an answer, as it does where a fault can't be planted.
    """
    try:
        found = msgspec.msgpack.decode(search.answers.recv_bytes(), type=Found)
    except EOFError:
        raise ConfigurationError(
            "the search for a planted fault died",
            fault=search.fault.name if search.fault else "none",
            todo="what it wrote to stderr says why; a fault that can't be planted has to follow the product",
        ) from None
    finally:
        _end(search)
    return found


def _end(search: _Search) -> None:
    search.process.kill()
    search.process.join()
    search.answers.close()


def _require_sound(found: Found) -> Found:
    if found.violation:
        raise ConfigurationError(
            "the product fails without any planted fault",
            found=f"{found.checker} --replay {found.history}: {found.violation[:2000]}",
            todo="mend it first: a fault is found by what the sound product passes",
        )
    return found


def _confirmed(found: Found) -> Found:
    """The same, or nothing if the sound product breaks on that history, too."""
    if not found.violation or not found.history:
        return found
    again = _forked(None, lambda answers: answers.send(play_again(found.checker, found.history)))
    try:
        with suppress(EOFError):
            if again.answers.poll(_HANGS_S) and not again.answers.recv():
                return found
    finally:
        _end(again)
    return Found("", "", "", found.attempts, found.seconds)
