"""`python -m tests.checkers.kill_suite`: try to distinguish the product in this folder from a sound one, cheapest check
first.

It runs in a copy of the repository, in one process, and stops at the first failure. `tests.checkers.mutants` reads its
output: a line as each stage begins, and a last one with the result.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

STAGES = ("import", "unit", "explore", "interleave", "faults")
ELSEWHERE = ("tests/unit/pipeline/test_task_attempt.py", "tests/golden/test_golden.py")
"""Tests that run beside the packages' own."""

SCENARIOS = (
    "second-run",
    "first-run",
    "one-commit",
    "job-level",
    "more-after-the-crash",
    "checkpoint",
    "partial-success",
)
"""Histories to crash: in each, every operation. With all the states that a power loss may leave, 800 recoveries."""


class Budgets(msgspec.Struct, frozen=True):
    """Processor time of each stage: the explorers stop in time, any other stage that exceeds it counts as hung."""

    explore_s: float = 13
    interleave_s: float = 4
    faults_s: float = 4
    unit_limit_s: float = 60
    """A unit test beyond this time counts as hung."""
    unit: tuple[str, ...] = ("protocol", "steps", "stores", "engine")
    """Packages whose unit tests run."""


REACHED = "reached.json"
"""Reached lines of the tests on the sound product, in the folder of its copy."""
_RECORDING = 4
"""Factor on a unit test's time while reached lines are recorded."""


def main(folder: str, area: str, seed: int, budgets: Budgets, first: Sequence[str] = ()) -> None:
    """Run all stages on the product in `folder`.

    The unit tests of `first` run first, then those of `area` (a package of the product), then all. Without an area the
    product is the sound one, and the lines that its tests reach are recorded.
    """
    import distcommit

    if Path(distcommit.__file__).parent != Path(folder) / "distcommit":
        raise SystemExit(f"{distcommit.__file__} is not in {folder}")
    _began("import", 30)
    try:
        _import_all()
    except Exception as error:  # noqa: BLE001 - whatever it is
        _ended("import", _last_line(error))
    limit_s = budgets.unit_limit_s * (1 if area else _RECORDING)
    _began("unit", limit_s)
    failed = _unit(folder, area, budgets.unit, seed, first, limit_s)
    if failed:
        _ended("unit", failed)
    logging.disable(logging.CRITICAL)
    stages: dict[str, tuple[float, Callable[[int], Iterator[str]]]] = {
        "explore": (budgets.explore_s, _explored),
        "interleave": (budgets.interleave_s, _interleaved),
        "faults": (budgets.faults_s, _faulted),
    }
    for stage, (seconds, wrong) in stages.items():
        _began(stage, 2 * seconds + 10)
        until = time.process_time() + seconds
        try:
            for history in wrong(seed):
                if history:
                    _ended(stage, history)
                if time.process_time() > until:
                    break
        except Exception as error:  # noqa: BLE001 - a checker that breaks has noticed, too
            _ended(stage, f"the checker fails: {_last_line(error)}")
    _ended("", "")


def _began(stage: str, limit_s: float) -> None:
    """Print which stage begins, and its processor time."""
    sys.__stdout__.write(json.dumps({"stage": stage}) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
    _limit(limit_s)


def _limit(seconds: float) -> None:
    """Let this process die by SIGPROF if it uses more processor time than that from now on."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _ended(stage: str, why: str) -> None:
    sys.__stdout__.write(json.dumps({"killed": stage, "why": why[:300]}) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
    os._exit(0)  # a mutant's threads may never end


def _import_all() -> None:
    from tests.checkers.mutant_sources import MODULES

    for module in MODULES:
        importlib.import_module(f"distcommit.{module}")


def _unit(folder: str, area: str, areas: tuple[str, ...], seed: int, first: Sequence[str], limit_s: float) -> str:
    """Return the first failing unit test, or an empty text. Each may use that much processor time."""
    from tests.checkers.reaching_tests import Recorder

    own = [f"tests/unit/{name}" for name in areas if name == area]
    others = [f"tests/unit/{name}" for name in areas if name != area]
    paths = [*own, *others, *ELSEWHERE]
    gone = [path for path in paths if not Path(path).exists()]
    if gone:  # otherwise it would stay unnoticed that they notice nothing
        return f"no unit tests in {', '.join(gone)}"
    if first and (failed := _failed(folder, seed, first, limit_s)[1]):  # a missing test is not a failure
        return failed
    recorder = None if area else Recorder(Path(folder))
    code, failed = _failed(folder, seed, paths, limit_s, *([recorder] if recorder else []))
    if recorder:
        Path(folder, REACHED).write_bytes(msgspec.json.encode(recorder.reached()))
    return "" if code == 0 else failed or f"pytest ends with {code}"


def _failed(folder: str, seed: int, tests: Sequence[str], limit_s: float, *plugins: object) -> tuple[int, str]:
    """Return pytest's exit code for these, each within that processor time, and the first failing test."""
    import pytest

    class First:
        name = ""

        def pytest_configure(self, config: Any) -> None:
            from hypothesis import Phase, settings

            # any example will do; and slowness on a busy machine is not a failure
            settings.register_profile("kill", phases=(Phase.explicit, Phase.generate), deadline=None)
            settings.load_profile("kill")

        def pytest_runtest_logstart(self) -> None:
            _limit(limit_s)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed and not self.name:
                self.name = report.nodeid

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed and not self.name:
                self.name = f"{report.nodeid} (collecting)"

    first = First()
    options = [
        "-x",
        "-q",
        "-o",
        "addopts=",
        "-o",
        "timeout=0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not xfail",
    ]
    places = [f"--rootdir={folder}", f"--basetemp={folder}/tmp", f"--hypothesis-seed={seed}"]
    stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        code = pytest.main([*options, *places, *tests], [first, *plugins])
    finally:
        sys.stdout = stdout
    return int(code), first.name


def _explored(seed: int) -> Iterator[str]:
    """Crash at every operation of the runs, then in recoveries; yield each violation."""
    from tests.simulation import explore, scenarios

    seen: set[int] = set()
    first = []
    rng = random.Random(seed)
    for name in SCENARIOS:
        scenario = scenarios.SCENARIOS[name]
        runs = explore.crashed_runs(scenario, scenario.machine(), scenario.disturbed, random.Random(name))
        for crash, machine, _ in runs:
            image = xxh3_64_intdigest(msgspec.msgpack.encode(explore.canonical(machine)))
            if image not in seen:
                seen.add(image)
                first.append((scenario, crash, machine.after_kill()))
                wrong = explore.recovery_violation(scenario, machine)
                yield f"{name}:{crash} {wrong}" if wrong else ""
    while True:
        scenario, crash, machine = rng.choice(first)
        runs = explore.crashed_runs(scenario, machine, scenario.after, rng, lambda operation: rng.randrange(12) == 0)
        for second, again, _ in itertools.islice(runs, 20):
            wrong = explore.recovery_violation(scenario, again)
            yield f"{scenario.name}:{crash}:{second} {wrong}" if wrong else ""


def _interleaved(seed: int) -> Iterator[str]:
    """Play all casts, one after the other."""
    from tests.simulation import casts, interleave

    for number in itertools.count(1_000_000 * seed):
        for name in casts.CASTS:
            _, wrong = interleave.play(name, number)
            yield f"{name}:{number} {wrong}" if wrong else ""


def _faulted(seed: int) -> Iterator[str]:
    """Play failing operations of the scenarios' runs, chosen by the seed."""
    from tests.simulation import fault_histories, fault_orders

    rng = random.Random(seed)
    histories = [*fault_orders.histories(SCENARIOS[:3])]
    while True:
        history = rng.choice(histories)
        wrong = fault_histories.replay(history)
        yield f"{history} {wrong}" if wrong else ""


def _last_line(error: Exception) -> str:
    return traceback.format_exception_only(error)[-1].strip()


if __name__ == "__main__":
    main(
        os.getcwd(),
        sys.argv[1],
        int(sys.argv[2]),
        msgspec.json.decode(sys.argv[3], type=Budgets),
        msgspec.json.decode(sys.argv[4], type=list[str]),
    )
