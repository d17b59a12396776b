"""`python -m tests.drills`: create broken situations and resolve each by the printed remedies."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tests.drills.drill import Drilled, NotBrokenError
from tests.drills.quick_drills import unproven
from tests.drills.registry import drills
from tests.servers.process import ServerUnavailableError
from tests.servers.spark_start import start_cheaply


class DrillsResult(msgspec.Struct):
    """Result of a set of drills.

    `resolved`: the number of resolved drills. A drill that this machine cannot run does not count, and records the
    reason.
    """

    drills: int
    resolved: int
    by_name: dict[str, Drilled]


def run_drills(names: Iterable[str], processes: int, say: Callable[[str], None]) -> DrillsResult:
    """Run drills, each in a folder of its own, and report each at its end.

    Args:
        names: the drills.
        processes: if more than 1, the number of drills that run at a time, each in its own process. A drill mostly
            waits.
        say: receives the lines of a finished drill.
    """
    start_cheaply()
    results: dict[str, Drilled] = {}
    with ThreadPoolExecutor(processes) as pool:
        run_one = _in_a_process if processes > 1 else _in_this_process
        started = {pool.submit(run_one, name): name for name in names}
        for ended in as_completed(started):
            name, result = started[ended], ended.result()
            results[name] = result
            say(f"{'resolved' if result.resolved else 'NOT RESOLVED'}: {name}, {result.seconds} s")
            for line in (
                result.problem_line,
                *(typed.command for typed in result.typed),
                *result.problems,
                result.skipped,
            ):
                if line:
                    say(f"    {line}")
    return DrillsResult(len(results), sum(result.resolved for result in results.values()), results)


def _in_this_process(name: str) -> Drilled:
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True) as folder:
        result = run_drill(name, Path(folder).resolve())
    result.seconds = round(time.monotonic() - begun_s, 1)
    return result


def _in_a_process(name: str) -> Drilled:
    command = [sys.executable, "-m", "tests.drills", "--only", name, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    if not lines:
        return Drilled(problems=[f"exit code {ended.returncode}: {ended.stderr[-3000:]}"])
    return msgspec.json.decode(lines[-1], type=DrillsResult).by_name[name]


def run_drill(name: str, folder: Path) -> Drilled:
    """Run a drill in an empty folder. If it has not seen the remedies that it declares, it is not resolved."""
    drill = drills()[name]
    try:
        result = drill.make(folder)
    except ServerUnavailableError as error:
        return Drilled(skipped=str(error))
    except NotBrokenError as error:
        return Drilled(problems=[str(error)])
    if unseen := unproven(drill.remedies, result):
        result.problems.append(f"not printed: {unseen}")
        result.resolved = False
    return result


def main(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run this drill. Repeatable.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="How many drills run at a time.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run on-call drills.

    `distcommit status` must report the cause of each, and the printed command must resolve it. Exit with 1 if any is
    not resolved.
    """
    logging.disable(logging.CRITICAL)
    if unknown := [name for name in only or () if name not in drills()]:
        raise typer.BadParameter(f"{unknown} are not among {', '.join(drills())}")
    result = run_drills(only or drills(), processes, lambda line: typer.echo(line, err=True))
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        typer.echo(f"{result.resolved} of {result.drills} drills resolved")
    raise typer.Exit(0 if result.resolved == result.drills else 1)


if __name__ == "__main__":
    typer.run(main)
