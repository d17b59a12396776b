"""`python -m tests.checkers`: what checks the checkers, this repository's tests and the product on real processes."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tests.checkers.coverage_of_checkers import coverage_of_checkers
from tests.checkers.fuzz import fuzz
from tests.checkers.mutants import mutants, remember, table
from tests.checkers.peers import peers
from tests.checkers.planted import planted
from tests.checkers.planted_table import planted_table
from tests.checkers.soak import soak
from tests.servers.spark_start import start_cheaply

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Each prints what it found and exits 1 if it found a violation, or missed one that is there."""
    logging.disable(logging.CRITICAL)  # crashes are what is done here; the product would report each


@app.command("mutants")
def mutants_command(
    seconds: Annotated[float, typer.Option(help="Stop after this long; 0 for no limit.")] = 0,
    seed: Annotated[int, typer.Option(help="Chooses the sample.")] = 1,
    processes: Annotated[int, typer.Option(help="How many processes.")] = 2,
    sample: Annotated[int, typer.Option(help="Try only so many, the named ones always; 0 for all.")] = 0,
    only: Annotated[str, typer.Option(help="Only mutants whose id has one of these texts, separated by commas.")] = "",
    skip_argued: Annotated[bool, typer.Option(help="Leave out those that are argued equivalent.")] = False,
    after: Annotated[Path | None, typer.Option(help="What --json printed: what was killed is not tried again.")] = None,
    to: Annotated[Path | None, typer.Option("--table", help="Write the result there, as a page for people.")] = None,
    keeps: Annotated[bool, typer.Option("--remember", help="Keep which tests notice what takes long.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Breaks the product's code in hundreds of ways, in a checkout; exits 1 if an unexplained one goes unnoticed."""
    before = json.loads(after.read_text(encoding="utf-8")) if after is not None else None
    found = mutants(seconds, seed, processes, sample, only, skip_argued=skip_argued, before=before, say=_say)
    if to is not None:
        to.write_text(table(found), encoding="utf-8")
    if keeps:
        remember(found)
    unexplained = [survivor for survivor in found["survivors"] if not survivor["argued"]]
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"{found['killed']} of {found['mutants']} mutants noticed, {len(unexplained)} unexplained survivors")
        for survivor in unexplained:
            typer.echo(f"  {survivor['id']}: {survivor['description']}")
    raise typer.Exit(1 if unexplained else 0)


@app.command("planted")
def planted_command(
    seconds: Annotated[float, typer.Option(help="How long in all.")] = 900,
    seed: Annotated[int, typer.Option(help="What the checkers choose.")] = 1,
    processes: Annotated[int, typer.Option(help="How many faults at a time.")] = 2,
    only: Annotated[str, typer.Option(help="Only faults whose name or class has one of these texts.")] = "",
    to: Annotated[Path | None, typer.Option("--table", help="Write the result into that page for people.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plants faults in the product, one at a time, and measures how long explore, interleave and faults take to see
    each, or its tests; they begin with what was measured to come to it. Exits 1 if one is not found."""
    found = planted(seconds, seed, processes, only, say=_say)
    if to is not None:
        before = to.read_text(encoding="utf-8") if to.exists() else ""
        to.write_text(planted_table(found, before), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"{found['found']} of {found['planted']} planted faults found in {found['seconds']} s")
    raise typer.Exit(0 if found["found"] == found["planted"] else 1)


@app.command("soak")
def soak_command(
    kills: Annotated[int, typer.Option(help="How many kills and freezes in all.")] = 10,
    seed: Annotated[int, typer.Option(help="Chooses whom, when and how.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Kills or freezes the main job on a real Spark, over and over, and audits it after each."""
    start_cheaply()
    with tempfile.TemporaryDirectory(prefix="distcommit-soak-") as folder:
        result = soak(kills, seed, Path(folder), _say)
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        typer.echo(
            f"{result.kills} kills and {result.freezes} freezes in {result.rounds} rounds, {result.seconds} s:"
            f" {result.duplicates} duplicates, {result.missing} missing, {len(result.violations)} violations"
        )
        for violation in result.violations:
            typer.echo(f"  {violation}")
    raise typer.Exit(1 if result.duplicates or result.missing or result.violations else 0)


@app.command("peers")
def peers_command(
    seed: Annotated[int, typer.Option(help="Chooses among the states of a power loss.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Holds the same checker against the published rules of others; each has a violation, or this exits 1."""
    found = peers(seed)
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        for finding in found:
            typer.echo(f"{finding.peer}: {finding.rule}\n    {finding.violation}\n    {finding.history}")
    raise typer.Exit(0 if found and all(finding.violation for finding in found) else 1)


@app.command("coverage")
def coverage_command(
    seconds: Annotated[float, typer.Option(help="How long in all.")] = 360,
    seed: Annotated[int, typer.Option(help="As for the checkers.")] = 1,
    at_least: Annotated[float, typer.Option(help="Fail if less is reached in a package, in percent.")] = 95,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measures how much of the protocol's code explorer, interleaver and fault injector reach, lines and branches."""
    found = coverage_of_checkers(seconds, seed)
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        for name, left in found.left.items():
            typer.echo(f"{name}: {', '.join(left)}")
        for name, percent in [*found.percent.items(), ("all", found.whole)]:
            typer.echo(f"{name:<10} {percent:6.2f} %")
    raise typer.Exit(0 if min(found.percent.values()) >= at_least else 1)


@app.command("fuzz")
def fuzz_command(
    inputs: Annotated[int, typer.Option(help="How many damaged inputs in all.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Chooses the damage.")] = 1,
    seconds: Annotated[float, typer.Option(help="Stop after this long.")] = 3600,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Gives damaged bytes to every reader of stored bytes: only the documented errors may come back, and soon."""
    found = fuzz(inputs, seed, seconds)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"{found['inputs']} inputs in {found['seconds']} s, {len(found['failures'])} failures")
        for failure in found["failures"]:
            typer.echo(f"  {failure}")
    raise typer.Exit(1 if found["failures"] else 0)


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    app()
