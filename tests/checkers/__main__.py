"""`python -m tests.checkers`: checkers of the commit protocol, and checkers of these checkers and of the tests."""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tests.checkers.coverage_of_checkers import coverage_of_checkers
from tests.checkers.fuzz import fuzz
from tests.checkers.mutants import mutants, remember, table
from tests.checkers.pages import pages
from tests.checkers.peers import peers
from tests.checkers.planted import planted
from tests.checkers.planted_table import planted_table
from tests.checkers.soak import soak
from tests.checkers.structure import SMALL, executed, structure
from tests.servers.spark_start import start_cheaply
from tests.simulation import fault_histories, fault_orders
from tests.simulation.explore import explore, replay
from tests.simulation.interleave import interleave, play

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Check the commit protocol, or the checkers. Exit 1 on a violation, or on a planted fault that is missed."""
    logging.disable(logging.CRITICAL)  # crashes are intended here; the product would report each


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
    """Crash the product at every operation, and recover it.

    Each state that a power loss may leave is recovered, and crashed again in the recovery.
    """
    if history:
        wrong = replay(history)
        typer.echo(wrong or "no violation")
        raise typer.Exit(1 if wrong else 0)
    _report(explore(seconds, seed, processes, scenario or ()), "states", at_least, as_json=as_json)


@app.command("faults")
def faults_command(
    seconds: Annotated[float, typer.Option(help="How long to try.")] = 60,
    seed: Annotated[int, typer.Option(help="The order in which faults are tried.")] = 1,
    scenario: Annotated[list[str] | None, typer.Option(help="Only these scenarios or operator programs.")] = None,
    history: Annotated[str, typer.Option("--replay", help="Play one history that was printed, and nothing else.")] = "",
    at_least: Annotated[int, typer.Option(help="Fail if fewer faults were tried.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make every operation of a run fail, in each of its ways.

    Errors come once or for good, answers are lost, calls are slow, bytes are damaged, and the clock is set.
    """
    if history:
        wrong = fault_histories.replay(history)
        typer.echo(wrong or "no violation")
        raise typer.Exit(1 if wrong else 0)
    _report(fault_orders.faults(seconds, seed, scenario or ()), "faults", at_least, as_json=as_json)


@app.command("interleave")
def interleave_command(
    seconds: Annotated[float, typer.Option(help="How long to play.")] = 60,
    seed: Annotated[int, typer.Option(help="Chooses the order of operations.")] = 1,
    processes: Annotated[int, typer.Option(help="How many processes.")] = 2,
    cast: Annotated[list[str] | None, typer.Option(help="Only these casts of actors.")] = None,
    history: Annotated[str, typer.Option("--replay", help="Play one history: cast:seed[:trouble].")] = "",
    at_least: Annotated[int, typer.Option(help="Fail if fewer distinct interleavings were seen.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run several actors on one store, in any order of their operations.

    Disks are full, calls are slow, and answers are lost meanwhile.
    """
    if history:
        name, number, *trouble = history.split(":")
        _, wrong = play(name, int(number), *trouble)
        typer.echo(wrong or "no violation")
        raise typer.Exit(1 if wrong else 0)
    _report(interleave(seconds, seed, processes, cast or ()), "interleavings", at_least, as_json=as_json)


@app.command("mutants")
def mutants_command(
    seconds: Annotated[float, typer.Option(help="Stop after this long; 0 for no limit.")] = 0,
    seed: Annotated[int, typer.Option(help="Chooses the sample.")] = 1,
    processes: Annotated[int, typer.Option(help="How many processes.")] = 2,
    sample: Annotated[int, typer.Option(help="Try only so many, the named ones always; 0 for all.")] = 0,
    only: Annotated[str, typer.Option(help="Only mutants whose id has one of these texts, separated by commas.")] = "",
    skip_argued: Annotated[bool, typer.Option(help="Leave out those that are argued equivalent.")] = False,
    after: Annotated[Path | None, typer.Option(help="Output of --json; mutants killed there are skipped.")] = None,
    to: Annotated[Path | None, typer.Option("--table", help="Write the result there, as a page.")] = None,
    keeps: Annotated[bool, typer.Option("--remember", help="Keep which tests notice what takes long.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Break the product's code in hundreds of ways, each in a copy.

    Exit with 1 if an unexplained change is not noticed.
    """
    before = json.loads(after.read_text(encoding="utf-8")) if after is not None else None
    result = mutants(seconds, seed, processes, sample, only, skip_argued=skip_argued, before=before, say=_say)
    if to is not None:
        to.write_text(table(result), encoding="utf-8")
    if keeps:
        remember(result)
    unexplained = [survivor for survivor in result["survivors"] if not survivor["argued"]]
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo(
            f"{result['killed']} of {result['mutants']} mutants noticed, {len(unexplained)} unexplained survivors"
        )
        for survivor in unexplained:
            typer.echo(f"  {survivor['id']}: {survivor['description']}")
    raise typer.Exit(1 if unexplained else 0)


@app.command("planted")
def planted_command(
    seconds: Annotated[float, typer.Option(help="How long in all.")] = 900,
    seed: Annotated[int, typer.Option(help="Seed of the checkers' choices.")] = 1,
    processes: Annotated[int, typer.Option(help="How many faults at a time.")] = 2,
    only: Annotated[str, typer.Option(help="Only faults whose name or class has one of these texts.")] = "",
    to: Annotated[Path | None, typer.Option("--table", help="Write the result into that page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plant faults one at a time and measure the time to find each.

    Explore, interleave and faults look for it, or its tests do; they begin with the histories that were measured to
    reach it. Exit with 1 if one is not found.
    """
    result = planted(seconds, seed, processes, only, say=_say)
    if to is not None:
        before = to.read_text(encoding="utf-8") if to.exists() else ""
        to.write_text(planted_table(result, before), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{result['found']} of {result['planted']} planted faults found in {result['seconds']} s")
    raise typer.Exit(0 if result["found"] == result["planted"] else 1)


@app.command("soak")
def soak_command(
    kills: Annotated[int, typer.Option(help="How many kills and freezes in all.")] = 10,
    seed: Annotated[int, typer.Option(help="Chooses whom, when and how.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Kill or freeze the main job on a real Spark; audit after each strike."""
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
    """Run the same checker on the published rules of other systems.

    Each rule has a violation; exit with 1 if one is not found.
    """
    result = peers(seed)
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        for finding in result:
            typer.echo(f"{finding.peer}: {finding.rule}\n    {finding.violation}\n    {finding.history}")
    raise typer.Exit(0 if result and all(finding.violation for finding in result) else 1)


@app.command("coverage")
def coverage_command(
    seconds: Annotated[float, typer.Option(help="How long in all.")] = 360,
    seed: Annotated[int, typer.Option(help="As for the checkers.")] = 1,
    at_least: Annotated[float, typer.Option(help="Fail if less is reached in a package, in percent.")] = 95,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure the protocol's lines and branches that the checkers reach.

    The checkers are explorer, interleaver and fault injector.
    """
    covered = coverage_of_checkers(seconds, seed)
    if as_json:
        typer.echo(msgspec.json.encode(covered).decode())
    else:
        for name, unreached in covered.left.items():
            typer.echo(f"{name}: {', '.join(unreached)}")
        for name, percent in [*covered.percent.items(), ("all", covered.whole)]:
            typer.echo(f"{name:<10} {percent:6.2f} %")
    raise typer.Exit(0 if min(covered.percent.values()) >= at_least else 1)


@app.command("fuzz")
def fuzz_command(
    inputs: Annotated[int, typer.Option(help="How many damaged inputs in all.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Chooses the damage.")] = 1,
    seconds: Annotated[float, typer.Option(help="Stop after this long.")] = 3600,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Give damaged bytes to every reader of stored bytes.

    Readers may answer only with the documented errors, and soon.
    """
    result = fuzz(inputs, seed, seconds)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{result['inputs']} inputs in {result['seconds']} s, {len(result['failures'])} failures")
        for failure in result["failures"]:
            typer.echo(f"  {failure}")
    raise typer.Exit(1 if result["failures"] else 0)


@app.command("structure")
def structure_command(
    traced: Annotated[bool, typer.Option(help="Also count the functions that a small run executes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count the product's modules, lines, folders, import contracts, and its longest module, class and function."""
    counted = structure()
    run = executed() if traced else None
    if as_json:
        typer.echo(msgspec.json.encode({"structure": counted, "executed": run}).decode())
        return
    for name in counted.lines:
        typer.echo(f"{name:<14} {counted.modules[name]:>5} modules {counted.lines[name]:>8,} lines")
    typer.echo(f"{'all':<14} {sum(counted.modules.values()):>5} modules {sum(counted.lines.values()):>8,} lines")
    typer.echo(f"largest folder:    {counted.largest_folder.name}, {counted.largest_folder.lines} siblings")
    typer.echo(f"below {SMALL} lines:    {counted.small_share:.1%} of modules")
    typer.echo(f"import contracts:  {counted.contracts}")
    for what, longest in (
        ("module", counted.longest_module),
        ("class", counted.longest_class),
        ("function", counted.longest_function),
    ):
        typer.echo(f"longest {what + ':':<10} {longest.name}, {longest.lines} lines")
    if run is not None:
        typer.echo(
            f"a run of {run.records} records into {run.files} file: "
            f"{run.functions} functions in {run.modules} modules executed"
        )


@app.command("pages")
def pages_command(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Count the documentation's pages, words and code blocks. Exit 1 if a link is broken."""
    counted = pages()
    if as_json:
        typer.echo(msgspec.json.encode(counted).decode())
    else:
        typer.echo(f"pages:            {counted.pages}, and {counted.generated} generated ones")
        typer.echo(f"words:            {counted.words:,}, {counted.median_words:g} in the median page")
        typer.echo(f"largest page:     {counted.largest.name}, {counted.largest.words:,} words")
        typer.echo(f"paragraphs:       {counted.paragraph_median_words:g} words in the median")
        typer.echo(f"code blocks:      {counted.blocks_per_1000_words} per 1,000 words of pages with commands")
        typer.echo(f"README:           {counted.readme_words} words")
        typer.echo(f"broken links:     {len(counted.broken_links)}")
        for link in counted.broken_links:
            typer.echo(f"  {link}")
    raise typer.Exit(1 if counted.broken_links else 0)


def _report(found: dict[str, Any], counted: str, at_least: int, *, as_json: bool) -> None:
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


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    app()
