"""`python -m tests.cluster main-job|flow|sinks|soak|readers|poison|bad-node`: kill and audit jobs on real servers
(Kafka, HDFS, a Spark cluster).

`readers` reads beside runs of a job on this machine's disk. `poison` and `bad-node` use a Spark cluster and this disk.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tests.checkers.soak import soak
from tests.cluster.bad_nodes import FAULTS_OF_NODES, Fault, run_bad_nodes
from tests.cluster.flow import run_flow
from tests.cluster.main_job import MainJobResult, Size, main_job
from tests.cluster.readers import run_readers
from tests.cluster.sinks import run_sinks
from tests.cluster.soak import OnServers

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.callback()
def main() -> None:
    """Run jobs on real servers; exit with 1 if any result is not exact.

    The servers run on loopback, with their folders below TMPDIR.
    """
    logging.disable(logging.CRITICAL)


@app.command("main-job")
def main_job_command(
    topics: Annotated[int, typer.Option(min=6, help="How many topics.")] = 3000,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each.")] = 2,
    records: Annotated[int, typer.Option(min=1, help="Records in all.")] = 3_000_000,
    value_bytes: Annotated[int, typer.Option(min=40, help="Bytes of a value.")] = 300,
    buckets: Annotated[int, typer.Option(min=1, help="Buckets of the store.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Run the main job at size, kill its driver and a worker, and audit."""
    size = Size(topics, partitions, records, value_bytes, buckets)
    with tempfile.TemporaryDirectory(prefix="main-job-") as folder:
        result = main_job(size, Path(folder), _say)
    typer.echo(msgspec.json.encode(result).decode() if as_json else _table(result))
    raise typer.Exit(0 if result.exact else 1)


@app.command("flow")
def flow_command(
    topics: Annotated[int, typer.Option(min=1, help="How many topics.")] = 500,
    records: Annotated[int, typer.Option(min=8, help="Records in all, about.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Run a flow by a registry to a fork: kill, audit, repair, reprocess."""
    with tempfile.TemporaryDirectory(prefix="flow-") as folder:
        result = run_flow(topics, records, Path(folder), _say)
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        by_branch = ", ".join(f"{name} {count:,}" for name, count in result.published_by_branch.items())
        typer.echo(
            f"{'exact' if result.exact else 'NOT exact'}: {result.records_produced:,} records,"
            f" {result.topics} topics, {result.kills} kills\npublished: {by_branch}; {result.errors:,} errors,"
            f" {result.reprocessed:,} reprocessed; {result.duplicates} duplicates, {result.missing} missing"
        )
        for problem in result.problems:
            typer.echo(f"  {problem}")
    raise typer.Exit(0 if result.exact else 1)


@app.command("sinks")
def sinks_command(
    topics: Annotated[int, typer.Option(min=1, help="How many topics each job reads.")] = 300,
    records: Annotated[int, typer.Option(min=1, help="Records in all, of each job.")] = 100_000,
    kills: Annotated[int, typer.Option(min=0, help="How many runs of each job are killed.")] = 10,
    seed: Annotated[int, typer.Option(help="Chooses when.")] = 1,
    targets: Annotated[str, typer.Option(help="Names of targets with commas between; all if empty.")] = "",
    as_json: AsJson = False,
) -> None:
    """Run a job to each target, killed at random moments, then count."""
    only = [name for name in targets.split(",") if name]
    with tempfile.TemporaryDirectory(prefix="sinks-") as folder:
        result = run_sinks(Path(folder), _say, topics=topics, records=records, kills=kills, seed=seed, only=only)
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        for name, target in result.targets.items():
            typer.echo(
                f"{name}: {target.produced:,} records produced, {target.visible:,} visible, {target.duplicates}"
                f" duplicates, {target.missing} missing, {target.in_doubt} in doubt, {target.kills} kills"
            )
        for name, reason in result.left_out.items():
            typer.echo(f"{name}: left out: {reason}")
    raise typer.Exit(0 if result.is_exact else 1)


@app.command("readers")
def readers_command(
    datasets: Annotated[int, typer.Option(min=2, help="How many datasets.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Batches: for each a run is killed, and one finishes.")] = 30,
    readers: Annotated[int, typer.Option(min=1, help="How many read at once.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the kills' times and of the reads.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Read in a loop while runs commit and are killed; count partial views."""
    with tempfile.TemporaryDirectory(prefix="readers-") as folder:
        result = run_readers(Path(folder), _say, datasets=datasets, rounds=rounds, readers=readers, seed=seed)
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        typer.echo(
            f"{result.views:,} views of one dataset, {result.partial} partial; {result.cuts:,} cuts of"
            f" {result.datasets} datasets, {result.torn} torn; {result.gone} gone meanwhile; {result.kills} runs"
            f" killed, {result.in_commit} of them in their commit"
        )
        for problem in result.problems:
            typer.echo(f"  {problem}")
    raise typer.Exit(0 if result.is_whole else 1)


@app.command("soak")
def soak_command(
    rounds: Annotated[int, typer.Option(min=1, help="How many runs are struck.")] = 50,
    seed: Annotated[int, typer.Option(help="Chooses whom, when and how.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Kill, freeze and restart runs and servers at random; audit after each."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        result = soak(0, seed, Path(folder), _say, at=OnServers(), rounds=rounds)
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        in_commit = ", ".join(f"{name} {count}" for name, count in sorted(result.struck_in_commit.items()))
        typer.echo(
            f"{result.kills} kills and restarts and {result.freezes} freezes in {result.rounds} rounds,"
            f" {result.seconds} s; in the middle of a commit: {in_commit or 'none'}\n"
            f"{result.records_produced:,} records produced, {result.records_published:,} published:"
            f" {result.duplicates} duplicates, {result.missing} missing, {len(result.violations)} violations"
        )
        for violation in result.violations:
            typer.echo(f"  {violation}")
    raise typer.Exit(1 if result.duplicates or result.missing or result.violations else 0)


_Datasets = Annotated[int, typer.Option(min=3, help="How many datasets.")]
_Kills = Annotated[int, typer.Option(min=0, help="How many runs are killed in all.")]
_Seed = Annotated[int, typer.Option(help="Chooses whom and when.")]


@app.command("poison")
def poison_command(datasets: _Datasets = 40, kills: _Kills = 10, seed: _Seed = 1, as_json: AsJson = False) -> None:
    """Kill runs of a job in which two records kill their worker; audit."""
    _bad_nodes(("poison",), datasets, kills, seed, as_json=as_json)


@app.command("bad-node")
def bad_node_command(datasets: _Datasets = 40, kills: _Kills = 10, seed: _Seed = 1, as_json: AsJson = False) -> None:
    """Kill runs on a cluster of which one node is bad; audit."""
    _bad_nodes(FAULTS_OF_NODES, datasets, kills, seed, as_json=as_json)


def _bad_nodes(faults: tuple[Fault, ...], datasets: int, kills: int, seed: int, *, as_json: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="bad-node-") as folder:
        result = run_bad_nodes(Path(folder), _say, faults=faults, datasets=datasets, kills=kills, seed=seed)
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
    else:
        typer.echo(
            f"{result.published} of {result.datasets} datasets published in spite of {result.kills} kills,"
            f" {result.innocents_starved} starved; {result.duplicates} duplicates, {result.missing} missing"
        )
        for problem in result.problems:
            typer.echo(f"  {problem}")
    raise typer.Exit(0 if result.is_exact else 1)


def _table(result: MainJobResult) -> str:
    lines = [f"{name:20} {seconds:8.1f} s" for name, seconds in result.seconds.items()]
    lines.append(f"{'run':16} {'seconds':>8} {'committed':>10} {'pending':>8} {'replayed':>9} {'python':>9} {'JVM':>9}")
    lines += [
        f"{row.struck or 'not disturbed':16} {row.seconds:8.1f} {row.committed:10,} {row.pending:8,}"
        f" {row.replayed:9,} {row.driver_python_mb:6.0f} MB {row.driver_jvm_mb:6.0f} MB"
        for row in [*result.runs, *filter(None, [result.idle])]
    ]
    lines.append(
        f"{'exact' if result.exact else 'NOT exact'}: {result.records_produced:,} records produced,"
        f" {result.records_published:,} published in {result.files:,} files"
    )
    return "\n".join(lines)


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    app()
