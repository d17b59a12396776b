"""`python -m tests.drills`: broken situations made for real, and resolved by the remedies that are printed for them."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tests.drills.desk import unproven
from tests.drills.drill import Drilled, NotBrokenError
from tests.drills.registry import drills
from tests.servers.process import ServerUnavailableError
from tests.servers.spark_start import start_cheaply


class DrillsResult(msgspec.Struct):
    """`resolved`: how many of the drills. One that could not be made on this machine is not, and says why."""

    drills: int
    resolved: int
    by_name: dict[str, Drilled]


def run_drills(names: Iterable[str], say: Callable[[str], None]) -> DrillsResult:
    """Runs them one after the other, each in a folder of its own."""
    start_cheaply()
    found: dict[str, Drilled] = {}
    for name in names:
        begun_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"{name}-", ignore_cleanup_errors=True) as folder:
            found[name] = one(name, Path(folder).resolve())
        found[name].seconds = round(time.monotonic() - begun_s, 1)
        result = found[name]
        say(f"{'resolved' if result.resolved else 'NOT RESOLVED'}: {name}, {result.seconds} s")
        for line in (result.told, *(typed.command for typed in result.typed), *result.problems, result.skipped):
            if line:
                say(f"    {line}")
    return DrillsResult(len(found), sum(result.resolved for result in found.values()), found)


def one(name: str, folder: Path) -> Drilled:
    """Runs a drill in an empty folder. One that has not seen the remedies that it names is not resolved."""
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
        list[str] | None, typer.Option("--only", metavar="NAME", help="This one. Can be given again.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Each is told by `distcommit status`, and resolved by the command that it prints. Exits 1 if any is not."""
    logging.disable(logging.CRITICAL)
    if unknown := [name for name in only or () if name not in drills()]:
        raise typer.BadParameter(f"{unknown} are none of {', '.join(drills())}")
    result = run_drills(only or drills(), lambda line: typer.echo(line, err=True))
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        typer.echo(f"{result.resolved} of {result.drills} drills resolved")
    raise typer.Exit(0 if result.resolved == result.drills else 1)


if __name__ == "__main__":
    typer.run(main)
