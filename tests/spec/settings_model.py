"""Executable model of fixed settings: when a run may replace the recorded ones, and why no data loses its meaning.

    python -m tests.spec.settings_model                    the table: every scenario and every naive variant
    python -m tests.spec.settings_model runs no_check      one scenario (with naive switches), history in full

Model: one job log and one bucket log, each with its newest fence; the data in the bucket log, by the settings that give
the data its meaning; and the numbered documents with recorded settings. A document is put only if its number is free.
Each run fences the job log, then the bucket log, then records its settings, then seals data. Every step is one move,
and a process may pause forever after each. An operator command does not fence: it records its settings as final, then
puts data.

A run with other settings than the newest document may replace them if no data exists:

1. It reads the newest document, then checks that its fences are the newest and that the bucket log has no data.
2. If that document is not marked `announced`, it puts the next one, with the same settings and that mark, and repeats
   step 1. Otherwise it puts the next one with its own settings.

A run with the recorded settings puts another document only if the newest is announced.

Invariant, in every state: all data was put under the settings of the newest document. No step refuses a run while no
data and no final document exist, unless the run is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.spec import search
from tests.spec.model_command import model_command


class Document(NamedTuple):
    """A document with recorded settings; `mark` is `announced`, `final` or empty."""

    settings: str
    mark: str = ""


class Process(NamedTuple):
    """A run, or an operator command, with the document that it will put; None once its number is taken."""

    settings: str
    is_run: bool
    at: str = "fence"
    epoch: int = 0
    document: Document | None = None


class State(NamedTuple):
    """The stored state, with the newest document, and all processes."""

    newest: Document | None
    job_fence: int
    bucket_fence: int
    data: frozenset[str]
    processes: tuple[Process, ...]
    wrongly_refused: bool = False


class Scenario(NamedTuple):
    """Settings of the processes, the newest document, and the naive switches."""

    processes: tuple[Process, ...]
    newest: Document | None
    naive: frozenset[str]


def _run(settings: str) -> Process:
    return Process(settings, True)


def _operator(settings: str) -> Process:
    return Process(settings, False, "read")


_SCENARIOS = {
    "new store": ((_run("x"), _run("y"), _run("x")), None),
    "runs": ((_run("y"), _run("x"), _run("y"), _run("x")), Document("x")),
    "three settings": ((_run("y"), _run("z"), _run("x")), Document("x")),
    "operator": ((_run("y"), _operator("x"), _run("x")), Document("x")),
    "operator first": ((_operator("y"), _run("x"), _run("y")), None),
    "announced": ((_run("y"), _run("x"), _operator("x")), Document("x", "announced")),
}
DESIGN = tuple(_SCENARIOS)
NAIVE = (
    ("runs", "no_announcement", "a run replaces settings without an announcement"),
    ("runs", "no_check", "a run does not check its fence after the announcement"),
    ("runs", "no_cover", "a run with the recorded settings ignores an announcement"),
    ("runs", "with_data", "a run does not look for data"),
    ("operator", "not_final", "an operator command does not mark its settings as final"),
    ("operator", "replaces_final", "a run replaces final settings"),
)


def _moves(state: State, scenario: Scenario) -> Iterable[tuple[str, State]]:
    for place, process in enumerate(state.processes):
        for label, after, moved in _steps(state, process, scenario.naive):
            has_put = after.newest is not state.newest
            others = [other._replace(document=None) if has_put else other for other in state.processes]
            processes = (*others[:place], moved, *others[place + 1 :])
            yield f"{place} ({process.settings}): {label}", after._replace(processes=processes)


def _steps(state: State, process: Process, naive: frozenset[str]) -> Iterable[tuple[str, State, Process]]:
    match process.at:
        case "fence":
            epoch = state.job_fence + 1
            yield f"fences as {epoch}", state._replace(job_fence=epoch), process._replace(at="bucket", epoch=epoch)
        case "bucket" if state.bucket_fence > process.epoch:
            yield "is fenced", state, process._replace(at="ended")
        case "bucket":
            yield "fences the bucket", state._replace(bucket_fence=process.epoch), process._replace(at="read")
        case "read":
            yield _read(state, process, naive)
        case "check" if process.epoch < state.job_fence and "no_check" not in naive:
            yield "is fenced", state, process._replace(at="ended")
        case "check" if state.data and "with_data" not in naive:
            yield "is refused", state, process._replace(at="ended")
        case "check":
            yield "checks", state, process._replace(at="put")
        case "put" if process.document is not None:
            yield (
                f"puts {process.document}",
                state._replace(newest=process.document),
                process._replace(at="read", document=None),
            )
        case "put":
            yield "is too late", state, process._replace(at="read", document=None)
        case "seal" if not process.is_run or process.epoch == state.bucket_fence:
            yield "puts data", state._replace(data=state.data | {process.settings}), process._replace(at="ended")
        case _:
            return


def _read(state: State, process: Process, naive: frozenset[str]) -> tuple[str, State, Process]:
    """Read the newest document, and decide what to put next."""
    newest = state.newest
    final = "final" if not process.is_run and "not_final" not in naive else ""
    if newest is None or newest.settings == process.settings:
        mark = final or ("final" if newest is not None and newest.mark == "final" else "")
        own = Document(process.settings, mark)
        if newest == own or (newest is not None and newest.mark == "announced" and "no_cover" in naive and not final):
            return "has its settings recorded", state, process._replace(at="seal")
        return "reads", state, process._replace(at="put", document=own)
    if not process.is_run or (newest.mark == "final" and "replaces_final" not in naive):
        is_wrong = process.is_run and not state.data and newest.mark != "final"
        return "is refused", state._replace(wrongly_refused=is_wrong), process._replace(at="ended")
    announces = newest.mark != "announced" and "no_announcement" not in naive
    document = newest._replace(mark="announced") if announces else Document(process.settings)
    return "reads others", state, process._replace(at="check", document=document)


def _check(state: State, scenario: Scenario, is_last: bool) -> str:
    if state.data - {state.newest.settings if state.newest is not None else ""}:
        return "data under other settings"
    return "refused without data" if state.wrongly_refused else ""


def explore(name: str, switches: str = "", limit: int = 4_000_000) -> tuple[str, int, list[str]]:
    """Return the violation (`none`: none in any state; `none*`: none in the first ones), the number of states, and a
    history that leads to the violation."""
    processes, newest = _SCENARIOS[name]
    scenario = Scenario(processes, newest, frozenset(switches.split()))
    init = State(newest, 0, 0, frozenset(), processes)
    return search.explore(scenario, init, limit, 0, 0, _moves, _check)


if __name__ == "__main__":
    model_command(explore, DESIGN, NAIVE)
