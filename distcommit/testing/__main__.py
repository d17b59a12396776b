"""`python -m distcommit.testing`: the checkers of the commit protocol, for anyone to run."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import typer

from distcommit.testing.simulation import fault_histories, fault_orders
from distcommit.testing.simulation.explore import explore, replay
from distcommit.testing.simulation.interleave import interleave, play

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Checkers of the commit protocol. Each prints what it found and exits 1 if it found a violation."""
    logging.disable(logging.CRITICAL)  # crashes are what is done here; the product would report each


@app.command("explore")
def explore_command(
    seconds: Annotated[float, typer.Option(help="How long to explore.")] = 60,
    seed: Annotated[int, typer.Option(help="Chooses which crashes in recoveries are tried.")] = 1,
    processes: Annotated[int, typer.Option(help="How many processes.")] = 2,
    scenario: Annotated[list[str] | None, typer.Option(help="Only these scenarios.")] = None,
    history: Annotated[str, typer.Option("--replay", help="Run one history that was printed, and nothing else.")] = "",
    at_least: Annotated[int, typer.Option(help="Fail if fewer distinct images were seen.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Crashes the product at every operation, in every state that a power loss may leave, and recovers."""
    if history:
        wrong = replay(history)
        typer.echo(wrong or "no violation")
        raise typer.Exit(1 if wrong else 0)
    _tell(explore(seconds, seed, processes, scenario or ()), "states", at_least, as_json=as_json)


@app.command("faults")
def faults_command(
    seconds: Annotated[float, typer.Option(help="How long to try.")] = 60,
    seed: Annotated[int, typer.Option(help="The order in which faults are tried.")] = 1,
    scenario: Annotated[list[str] | None, typer.Option(help="Only these scenarios or programs by hand.")] = None,
    history: Annotated[str, typer.Option("--replay", help="Play one history that was printed, and nothing else.")] = "",
    at_least: Annotated[int, typer.Option(help="Fail if fewer faults were tried.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lets every operation go wrong: errors for once and for good, answers lost, slow, damaged bytes, the clock set."""
    if history:
        wrong = fault_histories.replay(history)
        typer.echo(wrong or "no violation")
        raise typer.Exit(1 if wrong else 0)
    _tell(fault_orders.faults(seconds, seed, scenario or ()), "faults", at_least, as_json=as_json)


@app.command("interleave")
def interleave_command(
    seconds: Annotated[float, typer.Option(help="How long to play.")] = 60,
    seed: Annotated[int, typer.Option(help="Chooses who goes when.")] = 1,
    processes: Annotated[int, typer.Option(help="How many processes.")] = 2,
    cast: Annotated[list[str] | None, typer.Option(help="Only these casts of actors.")] = None,
    history: Annotated[str, typer.Option("--replay", help="Play one history: cast:seed[:trouble].")] = "",
    at_least: Annotated[int, typer.Option(help="Fail if fewer distinct interleavings were seen.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lets several actors work on one store, in any order of their storage operations, disks full and calls slow."""
    if history:
        name, number, *trouble = history.split(":")
        _, wrong = play(name, int(number), *trouble)
        typer.echo(wrong or "no violation")
        raise typer.Exit(1 if wrong else 0)
    _tell(interleave(seconds, seed, processes, cast or ()), "interleavings", at_least, as_json=as_json)


def _tell(found: dict[str, Any], counted: str, at_least: int, *, as_json: bool) -> None:
    violations = found["violations"]
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"{found[counted]} distinct {counted} in {found['seconds']} s, {len(violations)} violations")
        for violation in violations[:5]:
            typer.echo(f"  --replay {violation['history']}\n    {violation['violation'][:2000]}")
    if found[counted] < at_least:
        typer.echo(f"too few: {found[counted]} of {at_least}", err=True)
        raise typer.Exit(1)
    raise typer.Exit(1 if violations else 0)


if __name__ == "__main__":
    app()
