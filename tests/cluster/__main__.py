"""`python -m tests.cluster main-job|soak`: the job on a real Kafka, HDFS and Spark cluster, killed and audited."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tests.cluster.main_job import MainJobResult, Size, main_job

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.callback()
def main() -> None:
    """Servers are started here, on loopback, with their folders below TMPDIR. Exits 1 if anything is not exact."""
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
    """Runs the main job at size: its driver is killed once, then a worker of the cluster; then it is audited."""
    size = Size(topics, partitions, records, value_bytes, buckets)
    with tempfile.TemporaryDirectory(prefix="main-job-") as folder:
        result = main_job(size, Path(folder), _say)
    typer.echo(msgspec.json.encode(result).decode() if as_json else _table(result))
    raise typer.Exit(0 if result.exact else 1)


def _table(result: MainJobResult) -> str:
    lines = [f"{name:20} {seconds:8.1f} s" for name, seconds in result.seconds.items()]
    lines.append(f"{'run':16} {'seconds':>8} {'committed':>10} {'pending':>8} {'replayed':>9} {'python':>9} {'JVM':>9}")
    for row in result.runs:
        lines.append(
            f"{row.struck or 'not disturbed':16} {row.seconds:8.1f} {row.committed:10,} {row.pending:8,}"
            f" {row.replayed:9,} {row.driver_python_mb:6.0f} MB {row.driver_jvm_mb:6.0f} MB"
        )
    lines.append(
        f"{'exact' if result.exact else 'NOT exact'}: {result.records_produced:,} records produced,"
        f" {result.records_published:,} published in {result.files:,} files"
    )
    return "\n".join(lines)


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    app()
