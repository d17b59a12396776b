"""`python -m distcommit.testing`: the checkers of the commit protocol, for anyone to run."""

from __future__ import annotations

import json
import logging
from typing import Annotated

import typer

from distcommit.testing.explore import explore, replay

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
    found = explore(seconds, seed, processes, scenario or ())
    violations = found["violations"]
    assert isinstance(violations, list)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"{found['states']} distinct durable images in {found['seconds']} s, {len(violations)} violations")
        for violation in violations[:5]:
            typer.echo(f"  --replay {violation['history']}\n    {violation['violation'][:2000]}")
    if int(str(found["states"])) < at_least:
        typer.echo(f"too few: {found['states']} of {at_least}", err=True)
        raise typer.Exit(1)
    raise typer.Exit(1 if violations else 0)


if __name__ == "__main__":
    app()
