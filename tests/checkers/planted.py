"""The time that the checkers take to see a planted fault.

Faults are planted one at a time, and the same checkers run on each, with the same seed and budget, until a history
breaks.

First it is measured which scenarios, programs and casts reach the place of each fault, and whether it would make a
difference there (`reach`). A fault's search begins with these. The sound product must pass all histories of that
measurement.

Each fault has a process of its own, forked from one that has only imported the product. A search without a result gets
more time once all others had theirs. A finding is played once more on the sound product: a history that breaks there,
too, does not count. If the checkers do not reach a fault, its tests run instead, until one fails.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, TypeVar

import msgspec

from distcommit.core.errors import ConfigurationError
from tests.checkers.planted_faults import PLANTED, Planted
from tests.checkers.planted_tests import first_failure
from tests.checkers.planting import plant
from tests.checkers.reach import NAMES, Reached, aimed, measured, play_again, ranked, telling

BUDGET_S = 15.0
"""Processor time for one fault's first search; the second one has twice as much, and so on."""
_HANGS_S = 60.0
"""A history beyond this time counts as endless."""
_TESTS_HANG_S = 600.0
"""Time limit for the tests of a fault."""
_fork = multiprocessing.get_context("fork")
_Answer = TypeVar("_Answer")


class Found(msgspec.Struct, frozen=True):
    """Result of one search. Without a `violation` nothing was seen. `history` is empty if the checker itself failed
    before."""

    checker: str
    history: str
    violation: str
    attempts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Aim:
    """A fault to look for, with seconds of processor time and a seed.

    It has histories to be played once more, names of others, and the count of earlier tries.
    """

    fault: Planted
    again: Sequence[tuple[str, str]]
    names: Sequence[Sequence[tuple[str, str]]]
    seed: int
    budget_s: float
    attempts: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Child:
    """A process that answers."""

    process: Any
    answers: Connection


def planted(
    seconds: float,
    seed: int,
    processes: int,
    only: str = "",
    budget_s: float = BUDGET_S,
    say: Callable[[str], None] = lambda text: None,
    names: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Plant faults and let the checkers look for each.

    Args:
        seconds: wall time for all; later searches count as not found.
        seed: the checkers' choices.
        processes: the number of faults at a time.
        only: those whose name or class contains one of these texts, separated by commas.
        budget_s: processor time for each turn.
        say: receives each result, a line each.
        names: the checkers and the names each may choose; all by default.

    Returns:
        plain values: `planted`, `found`, `seconds_to_find` and `by` (checker, history and violation) by fault,
            `not_found`, `sound` (what the unplanted product has passed as reach was measured), `seconds`, `seed`.

    Raises:
        ConfigurationError: if the sound product does not pass, or no fault is meant.
    """
    began = time.monotonic()
    wanted = only.split(",")
    chosen = [fault for fault in PLANTED if any(text in fault.name or text in fault.kind for text in wanted)]
    if not chosen:
        raise ConfigurationError("no planted fault is meant", found=only, expected=", ".join(f.name for f in PLANTED))
    by_checkers = [fault for fault in chosen if not fault.tests]
    reach = reach_of(by_checkers, seed, processes, names) if by_checkers else []
    sound = {"attempts": sum(len(one.played) for one in reach), "seconds": round(time.monotonic() - began, 1)}
    say(f"sound: {sound['attempts']} histories passed in {sound['seconds']} s, in which reach was measured")
    waiting = deque(_Aim(f, telling(f.name, reach), ranked(f.name, reach), seed, budget_s) for f in by_checkers)
    waiting.extend(_Aim(f, (), (), seed, budget_s) for f in chosen if f.tests)
    results = _searched(waiting, began + seconds, processes, say)
    return _summed(chosen, results, sound, time.monotonic() - began, seed)


def reach_of(
    faults: Sequence[Planted], seed: int, processes: int, names: Sequence[tuple[str, str]] = ()
) -> list[Reached]:
    """Return the faults that each (checker, name) reaches, of all or of these.

    Raises:
        ConfigurationError: if a history breaks the sound product, or a fault cannot be planted.
    """
    chosen = names or [(checker, name) for checker, group in NAMES.items() for name in group]
    edits = {fault.name: fault.edits for fault in faults}

    def work(share: int, answers: Connection) -> None:
        all_reached = list(measured(edits, chosen[share::processes], seed))
        answers.send_bytes(msgspec.msgpack.encode(all_reached))

    children = [_forked(partial(work, share)) for share in range(processes)]
    all_reached: list[Reached] = []
    for child in children:
        all_reached += _answer(child, list[Reached], "measuring reach")
    for one in all_reached:
        if one.wrong is not None:
            raise ConfigurationError(
                "the product fails without any planted fault",
                all_reached=f"{one.checker} --replay {one.wrong[0]}: {one.wrong[1][:2000]}",
                todo="repair it first: faults are found by checks that the sound product passes",
            )
    return all_reached


def _searched(waiting: deque[_Aim], until: float, processes: int, say: Callable[[str], None]) -> dict[str, Found]:
    """Yield each fault's result. An unsuccessful search waits for another turn, and then has more time."""
    results: dict[str, Found] = {}
    searches: dict[Connection, tuple[_Aim, _Child]] = {}
    while (waiting or searches) and time.monotonic() < until:
        while waiting and len(searches) < processes:
            aim = waiting.popleft()
            child = _forked(partial(_search, aim), has_children=bool(aim.fault.tests))
            searches[child.answers] = aim, child
        ready = wait([*searches], timeout=max(0.0, until - time.monotonic()))
        for answers in [answers for answers in searches if answers in ready]:
            aim, child = searches.pop(answers)
            finding = _confirmed(_answer(child, Found, aim.fault.name))
            results[aim.fault.name] = finding
            say(_summary(aim.fault, finding))
            if not finding.violation and not aim.fault.tests:
                again = replace(aim, again=(), seed=aim.seed + 1, budget_s=2 * aim.budget_s)
                waiting.append(replace(again, attempts=finding.attempts, seconds=finding.seconds))
    for _, child in searches.values():
        _end(child)
    return results


def _summed(
    chosen: Sequence[Planted], results: dict[str, Found], sound: dict[str, float], seconds: float, seed: int
) -> dict[str, Any]:
    seen = {fault: results[fault.name] for fault in chosen if fault.name in results and results[fault.name].violation}
    return {
        "planted": len(chosen),
        "found": len(seen),
        "seconds_to_find": {fault.name: finding.seconds for fault, finding in seen.items()},
        "by": {
            fault.name: {
                "class": fault.kind.value,
                "checker": finding.checker,
                "history": finding.history,
                "attempts": finding.attempts,
                "violation": finding.violation.strip().splitlines()[-1][:300],
            }
            for fault, finding in seen.items()
        },
        "not_found": {
            fault.name: results[fault.name].attempts if fault.name in results else 0
            for fault in chosen
            if fault not in seen
        },
        "sound": sound,
        "seconds": round(seconds, 1),
        "seed": seed,
    }


def _summary(fault: Planted, found: Found) -> str:
    if not found.violation:
        return f"{fault.kind.value} {fault.name}: not found in {found.attempts} histories, {found.seconds:.1f} s"
    separator = " " if found.checker == "tests" else " --replay "
    place = f"{found.checker}{separator}{found.history}" if found.history else found.checker
    return f"{fault.kind.value} {fault.name}: found in {found.seconds:.1f} s by {place}"


def _forked(work: Callable[[Connection], object], *, has_children: bool = False) -> _Child:
    """Start a process. If it has children of its own, as tests have, it does not end with this one by itself."""
    answers, theirs = _fork.Pipe(duplex=False)
    process = _fork.Process(target=_run_and_exit, args=(work, theirs), daemon=not has_children)
    process.start()
    theirs.close()
    return _Child(process, answers)


def _run_and_exit(work: Callable[[Connection], object], answers: Connection) -> NoReturn:
    work(answers)
    os._exit(0)  # a wrong product's threads may never end


def _search(aim: _Aim, answers: Connection) -> None:
    began, tried, last = time.monotonic(), aim.attempts, ("", "")

    def answer(checker: str, history: str, wrong: str) -> None:
        seconds = round(aim.seconds + time.monotonic() - began, 2)
        answers.send_bytes(msgspec.msgpack.encode(Found(checker, history, wrong, tried, seconds)))

    def hangs(number: int, frame: object) -> None:
        answer(last[0] or "explore", "", f"does not end; the one before it was {last[1]}")
        os._exit(0)

    signal.signal(signal.SIGALRM, hangs)
    plant(aim.fault.edits)
    if aim.fault.tests:
        signal.setitimer(signal.ITIMER_REAL, _TESTS_HANG_S)
        test, wrong, tried = first_failure(aim.fault.tests)
        return answer("tests" if wrong else "", test, wrong)
    signal.setitimer(signal.ITIMER_REAL, _HANGS_S)
    for checker, history, wrong in aimed(aim.again, aim.names, aim.seed):
        signal.setitimer(signal.ITIMER_REAL, _HANGS_S)
        tried, last = tried + 1, (checker, history)
        if wrong:
            return answer(checker, history, wrong)
        if time.process_time() > aim.budget_s:
            break
    return answer("", "", "")


def _answer(child: _Child, kind: type[_Answer], what: str) -> _Answer:
    """Return a process's answer.

    Raises:
        ConfigurationError: if it died without an answer, such as for a fault that cannot be planted.
    """
    try:
        return msgspec.msgpack.decode(child.answers.recv_bytes(), type=kind)
    except EOFError:
        raise ConfigurationError(
            "the search for a planted fault died",
            fault=what,
            todo="its stderr has the reason; adapt a fault that cannot be planted to the product",
        ) from None
    finally:
        _end(child)


def _end(child: _Child) -> None:
    child.process.kill()
    child.process.join()
    child.answers.close()


def _wrong_again(found: Found) -> str:
    """Return the violation of the sound product after the same history, or by the same test."""
    if found.checker == "tests":
        return first_failure([found.history])[1]
    return play_again(found.checker, found.history)


def _confirmed(found: Found) -> Found:
    """Return the finding, or nothing if the sound product breaks on that history, too."""
    if not found.violation or not found.history:
        return found
    again = _forked(lambda answers: answers.send(_wrong_again(found)), has_children=found.checker == "tests")
    try:
        with suppress(EOFError):
            if again.answers.poll(_TESTS_HANG_S if found.checker == "tests" else _HANGS_S) and not again.answers.recv():
                return found
    finally:
        _end(again)
    return Found("", "", "", found.attempts, found.seconds)
