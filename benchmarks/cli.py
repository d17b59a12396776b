"""The command line: one command for each question. Data goes to stdout, progress to stderr."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from benchmarks.arms.guarded_tree import UnmeasurableError
from benchmarks.peers import plot as peers_plot
from benchmarks.peers import report as peers_report
from benchmarks.peers.question import PEERS
from benchmarks.peers.question import peers as run_peers
from benchmarks.peers.report import PeerResults
from benchmarks.questions.commit import commit as run_commit
from benchmarks.questions.everyday import Asked
from benchmarks.questions.everyday import everyday as run_everyday
from benchmarks.questions.flow import flow as run_flow
from benchmarks.questions.freshness import Trickled
from benchmarks.questions.freshness import freshness as run_freshness
from benchmarks.questions.growth import Asked as GrowthAsked
from benchmarks.questions.growth import growth as run_growth
from benchmarks.questions.guard import guard as run_guard
from benchmarks.questions.hdfs import hdfs as run_hdfs
from benchmarks.questions.ingest import ingest as run_ingest
from benchmarks.questions.latency import latency as run_latency
from benchmarks.questions.latency import latency_on_hdfs
from benchmarks.questions.looking import looking as run_looking
from benchmarks.questions.operations import operations as run_operations
from benchmarks.questions.recovery import recovery as run_recovery
from benchmarks.questions.scale import scale as run_scale
from benchmarks.questions.sinks import Size
from benchmarks.questions.sinks import sinks as run_sinks
from benchmarks.questions.visibility import visibility as run_visibility
from benchmarks.reports import plots, table
from benchmarks.reports.compared import compared
from benchmarks.results import Results
from benchmarks.workloads.everyday_topics import Load
from benchmarks.workloads.tree import Shape

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)

Datasets = Annotated[int, typer.Option(min=1, help="How many datasets.")]
Files = Annotated[int, typer.Option(min=1, help="Files of each dataset.")]
Buckets = Annotated[int, typer.Option(min=1, help="Buckets of the store; the product's default is 64.")]
Repeats = Annotated[int, typer.Option(min=1, help="Samples of each arm; the median counts.")]
Seed = Annotated[int, typer.Option(help="What names are made from.")]
Sizes = Annotated[str, typer.Option(help="Numbers of datasets with commas between, two at least.")]
Folder = Annotated[Path, typer.Option(help="A folder on the disk that is measured.")]
Json = Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")]
DelayMs = Annotated[float, typer.Option(min=0, help="Milliseconds that each metadata operation waits.")]
Executors = Annotated[str, typer.Option(help="Numbers of executors with commas between; none if empty.")]
_HERE = Path(tempfile.gettempdir())
_SHARED_MEMORY = Path("/dev/shm")
_IN_MEMORY = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else _HERE


@app.callback()
def main() -> None:
    """Answer one question by each command.

    `--json` prints its ratios with every sample.
    """


@app.command()
def commit(
    datasets: Datasets = 5000,
    files: Files = 20,
    repeats: Repeats = 5,
    marginal_datasets: Annotated[int, typer.Option(min=0, help="A larger size for ours and the limit.")] = 0,
    buckets: Buckets = 64,
    arms: Annotated[str, typer.Option(help="Names of arms with commas between; all if empty.")] = "",
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure the cost of publishing beside bare renames and other systems."""
    only = [name for name in arms.split(",") if name]
    shape = Shape(datasets, files, buckets, seed)
    _show(
        run_commit(shape, repeats=repeats, marginal_datasets=marginal_datasets, only=only, folder=folder, tell=_tell),
        as_json,
    )


@app.command()
def everyday(
    topics: Annotated[int, typer.Option(min=1, help="Topics that get records between two runs.")] = 2000,
    files: Annotated[int, typer.Option(min=1, help="Files that a run makes of a topic, at most; 1 at least.")] = 4,
    fewest_records: Annotated[int, typer.Option(min=1, help="Records of a file, at least.")] = 100,
    most_records: Annotated[int, typer.Option(min=1, help="Records of a file, at most.")] = 10_000,
    value_bytes: Annotated[int, typer.Option(min=32, help="Bytes of a value.")] = 200,
    runs: Annotated[int, typer.Option(min=1, help="Runs in a row that count, and as many idle ones.")] = 5,
    commits: Annotated[int, typer.Option(min=1, help="Datasets whose commit is measured by itself.")] = 2000,
    repeats: Repeats = 5,
    buckets: Buckets = 64,
    threads: Annotated[int, typer.Option(min=2, help="Calls that an arm has under way on HDFS.")] = 32,
    seed: Seed = 1,
    on_hdfs: Annotated[bool, typer.Option("--on-hdfs", help="Also on an HDFS of this machine.")] = False,
    on_s3: Annotated[bool, typer.Option("--on-s3", help="Also on an S3 server of this machine.")] = False,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure repeated runs over thousands of small topics.

    Each run publishes a little of each topic, into existing folders.
    """
    load = Load(topics, files, fewest_records, most_records, value_bytes, seed)
    asked = Asked(load, runs, commits, repeats, buckets, on_hdfs, on_s3, threads)
    _show(run_everyday(asked, folder=folder, tell=_tell), as_json)


@app.command()
def guard(
    against: Annotated[str, typer.Option(help="The reference commit, as Git names it.")] = "HEAD",
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of samples of each kind; 6 at least for 95 %.")] = 12,
    datasets: Annotated[int, typer.Option(min=16, help="Datasets of each sample.")] = 400,
    only: Annotated[str, typer.Option(help="Kinds of samples with commas between; all if empty.")] = "",
    folder: Annotated[Path, typer.Option(help="A folder, best in memory: nothing is synced.")] = _IN_MEMORY,
    as_json: Json = False,
) -> None:
    """Compare today's tree with a commit: commit, replay, ingest.

    Exit with 1 if anything is slower, and with 2 if noise hides the result.
    """
    kinds = [kind for kind in only.split(",") if kind]
    try:
        results = run_guard(against=against, pairs=pairs, datasets=datasets, only=kinds, folder=folder, tell=_tell)
    except UnmeasurableError as error:
        raise typer.BadParameter(str(error), param_hint="--against") from None
    _show(results, as_json)
    for note in results.notes if not as_json else []:
        print(note)
    if results.ratios["slower"] or results.noisy:
        raise typer.Exit(1 if results.ratios["slower"] else 2)


@app.command()
def growth(
    unit: Annotated[int, typer.Option(min=1, help="Runs of the model have 8 to 128 times as many datasets.")] = 4,
    datasets: Annotated[int, typer.Option(min=1, help="Datasets of the runs on virtual time.")] = 2048,
    buckets: Annotated[int, typer.Option(min=1, help="Buckets of those.")] = 512,
    executors: Annotated[str, typer.Option(help="Numbers of executors with commas between.")] = "8,64,256",
    on_hdfs: Annotated[bool, typer.Option("--on-hdfs", help="A model on an HDFS of this machine, too.")] = False,
    on_s3: Annotated[bool, typer.Option("--on-s3", help="A model on an S3 server of this machine, too.")] = False,
    hdfs_ms: Annotated[float, typer.Option(min=0, help="Duration of a call on HDFS.")] = 2.0,
    s3_ms: Annotated[float, typer.Option(min=0, help="Duration of a request on S3.")] = 100.0,
    folder: Annotated[Path, typer.Option(help="A folder, best in memory: nothing is synced.")] = _IN_MEMORY,
    as_json: Json = False,
) -> None:
    """Model the cost of 100,000 datasets on 100 executors.

    The model also shows where more executors stop to help.
    """
    asked = GrowthAsked(unit, datasets, buckets, tuple(_sizes(executors)), on_hdfs, on_s3, hdfs_ms=hdfs_ms, s3_ms=s3_ms)
    _show(run_growth(asked, folder=folder, tell=_tell), as_json)


@app.command()
def latency(
    datasets: Datasets = 2000,
    files: Files = 20,
    repeats: Repeats = 5,
    delay_ms: DelayMs = 2.0,
    threads: Annotated[int, typer.Option(min=1, help="Operations that any arm has under way at a time.")] = 32,
    slots: Annotated[int, typer.Option(min=1, help="Spark slots; the threads are shared out among them.")] = 8,
    buckets: Buckets = 64,
    seed: Seed = 1,
    on_hdfs: Annotated[bool, typer.Option("--on-hdfs", help="On an HDFS of this machine instead of a delay.")] = False,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure publishing with slow metadata operations.

    Every arm has the same threads.
    """
    shape = Shape(datasets, files, buckets, seed)
    if on_hdfs:
        results = latency_on_hdfs(shape, threads=threads, slots=slots, repeats=repeats, folder=folder, tell=_tell)
    else:
        results = run_latency(
            shape, delay_ms=delay_ms, threads=threads, slots=slots, repeats=repeats, folder=folder, tell=_tell
        )
    _show(results, as_json)


@app.command()
def operations(
    sizes: Sizes = "500,1000,2000",
    files: Files = 20,
    buckets: Buckets = 8,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Count the calls of a commit for each dataset and each file.

    They are counted below the file system and by strace.
    """
    _show(run_operations(_sizes(sizes), files, buckets=buckets, seed=seed, folder=folder, tell=_tell), as_json)


@app.command()
def recovery(
    sizes: Sizes = "1000,4000",
    files: Files = 20,
    repeats: Repeats = 5,
    buckets: Buckets = 64,
    history: Annotated[int, typer.Option(min=2, help="Runs behind when nothing is pending.")] = 100,
    executors: Executors = "1,2",
    delay_ms: DelayMs = 2.0,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure recovery, with nothing pending and with N datasets pending.

    Nothing is pending after a long history of runs.
    """
    results = run_recovery(
        _sizes(sizes),
        files,
        buckets=buckets,
        history=history,
        repeats=repeats,
        executors=_sizes(executors),
        delay_ms=delay_ms,
        seed=seed,
        folder=folder,
        tell=_tell,
    )
    _show(results, as_json)


@app.command()
def visibility(
    datasets: Datasets = 5000,
    records: Annotated[int, typer.Option(min=1, help="Records of each dataset.")] = 10,
    repeats: Repeats = 5,
    buckets: Buckets = 64,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure the delay from a dataset's last read to its publication.

    Ingest continues meanwhile.
    """
    _show(
        run_visibility(datasets, records=records, buckets=buckets, repeats=repeats, folder=folder, tell=_tell), as_json
    )


@app.command()
def scale(
    sizes: Sizes = "1000,5000,20000,50000",
    buckets: Buckets = 64,
    executors: Executors = "1,2,4,8",
    datasets: Annotated[int, typer.Option(min=1, help="Datasets that the executors commit.")] = 5000,
    files: Files = 20,
    repeats: Repeats = 5,
    delay_ms: DelayMs = 2.0,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure driver memory, run time and log size by datasets and executors."""
    results = run_scale(
        _sizes(sizes),
        buckets=buckets,
        executors=_sizes(executors),
        shape=Shape(datasets, files, buckets, seed),
        delay_ms=delay_ms,
        repeats=repeats,
        folder=folder,
        tell=_tell,
    )
    _show(results, as_json)


@app.command()
def looking(
    datasets: Datasets = 50_000,
    repeats: Repeats = 5,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure inspection commands and readers on very many datasets.

    The commands are `status`, `dataset list` and `runs`; the reader opens the newest snapshot.
    """
    _show(run_looking(datasets, repeats=repeats, folder=folder, tell=_tell), as_json)


@app.command()
def ingest(
    topics: Annotated[int, typer.Option(min=1, help="Large topics.")] = 8,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each.")] = 2,
    records: Annotated[int, typer.Option(min=1, help="Records of each partition.")] = 100_000,
    value_bytes: Annotated[int, typer.Option(min=32, help="Bytes of a value.")] = 1000,
    datasets: Annotated[int, typer.Option(min=1, help="Small topics, for the commit's share.")] = 1000,
    files: Annotated[int, typer.Option(min=1, help="Files of each small topic.")] = 4,
    records_per_file: Annotated[int, typer.Option(min=1, help="Records of each of their files.")] = 250,
    flame: Annotated[Path | None, typer.Option(help="Draw where processor time goes there, as SVG.")] = None,
    repeats: Repeats = 5,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure Kafka to Parquet beside Spark, and the commit's share."""
    results = run_ingest(
        topics=topics,
        partitions=partitions,
        records=records,
        value_bytes=value_bytes,
        datasets=datasets,
        files=files,
        records_per_file=records_per_file,
        repeats=repeats,
        seed=seed,
        folder=folder,
        flame=flame,
        tell=_tell,
    )
    _show(results, as_json)


@app.command()
def flow(
    records: Annotated[int, typer.Option(min=100, help="Records in memory, for chain and fork.")] = 200_000,
    note_bytes: Annotated[int, typer.Option(min=0, help="Bytes of each record's long text.")] = 700,
    topics: Annotated[int, typer.Option(min=1, help="Topics of JSON, and of Avro.")] = 4,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each.")] = 2,
    topic_records: Annotated[int, typer.Option(min=1, help="Records of each partition of Avro.")] = 25_000,
    typed_records: Annotated[int, typer.Option(min=1, help="Records of each partition of JSON.")] = 125_000,
    repeats: Repeats = 5,
    kafka_repeats: Annotated[int, typer.Option(min=1, help="Samples of each arm that reads from Kafka.")] = 3,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure typed flows beside pyarrow and Spark's Avro.

    A fork is compared with its writers.
    """
    results = run_flow(
        records=records,
        note_bytes=note_bytes,
        topics=topics,
        partitions=partitions,
        topic_records=topic_records,
        typed_records=typed_records,
        repeats=repeats,
        kafka_repeats=kafka_repeats,
        seed=seed,
        folder=folder,
        tell=_tell,
    )
    _show(results, as_json)


@app.command()
def hdfs(
    datasets: Datasets = 100,
    files: Files = 20,
    threads: Annotated[str, typer.Option(help="Numbers of threads with commas between.")] = "1,4,16,32",
    sizes: Sizes = "50,100,200",
    files_counted: Annotated[int, typer.Option(min=1, help="Files of each dataset whose operations count.")] = 4,
    repeats: Repeats = 5,
    buckets: Buckets = 8,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure renames on a real HDFS by threads, beside a bare loop.

    The NameNode's requests for each dataset are counted as well.
    """
    results = run_hdfs(
        Shape(datasets, files, buckets, seed),
        threads=_sizes(threads),
        sizes=_sizes(sizes),
        files=files_counted,
        repeats=repeats,
        folder=folder,
        tell=_tell,
    )
    _show(results, as_json)


@app.command()
def freshness(
    topics: Annotated[int, typer.Option(min=1, help="Topics of one partition.")] = 500,
    rate: Annotated[float, typer.Option(min=0.1, help="Records a second, to all of them together.")] = 50,
    seconds: Annotated[float, typer.Option(min=1, help="How long they come.")] = 120,
    interval: Annotated[float, typer.Option(min=1, help="schedule.interval_s of the job.")] = 1,
    buckets: Buckets = 8,
    kills: Annotated[int, typer.Option(min=0, help="SIGKILLs to the service meanwhile.")] = 0,
    quiet: Annotated[float, typer.Option(min=0, help="Seconds of a window without records behind it.")] = 30,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before, whose records do not count.")] = 60,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure the time from produce to a committed reader.

    A service runs the job on two slots.
    """
    asked = Trickled(topics, rate, seconds, interval, buckets, kills, quiet, seed, warm_up)
    _show(run_freshness(asked, folder=folder, tell=_tell), as_json)


@app.command()
def sinks(
    records: Annotated[int, typer.Option(min=1, help="Records in all, where speed is measured.")] = 1_000_000,
    tables: Annotated[int, typer.Option(min=1, help="Tables, where many are committed at once.")] = 5000,
    figures: Annotated[str, typer.Option(help="Figures that are wanted, with commas between; all if empty.")] = "",
    repeats: Repeats = 5,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Measure sinks beside their targets' own clients."""
    requested = frozenset(name for name in figures.split(",") if name)
    _show(run_sinks(Size(records, tables, repeats, seed), folder, _tell, requested), as_json)


@app.command()
def peers(
    peer: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(PEERS)}; may be repeated; all.")] = None,
    topics: Annotated[int, typer.Option(min=1, help="Topics; with more than 100, with 100, too.")] = 100,
    records: Annotated[int, typer.Option(min=1, help="Records of the burst whose speed is measured.")] = 200_000,
    kills: Annotated[int, typer.Option(min=0, help="How often each is killed in a commit; 0: no faults at all.")] = 3,
    interval_s: Annotated[int, typer.Option(min=1, help="Seconds between two commits, as configured for each.")] = 5,
    idle_s: Annotated[float, typer.Option(min=0, help="Seconds in which each has nothing to do.")] = 60,
    seed: Seed = 1,
    folder: Folder = _HERE,
    as_json: Json = False,
) -> None:
    """Compare the product with other systems, also after kills.

    Each is a real system on a Kafka of its own.
    """
    if unknown := [name for name in peer or [] if name not in PEERS]:
        raise typer.BadParameter(f"{unknown[0]} is not one of {', '.join(PEERS)}", param_hint="--peer")
    results = run_peers(
        only=peer or [],
        topics=topics,
        records=records,
        kills=kills,
        interval_s=interval_s,
        idle_s=idle_s,
        seed=seed,
        folder=folder,
        tell=_tell,
    )
    print(msgspec.json.format(msgspec.json.encode(results)).decode() if as_json else peers_report.markdown(results))


@app.command()
def report(
    files: Annotated[list[Path], typer.Argument(help="Output of the other commands with --json.")],
    to: Annotated[Path, typer.Option(help="The folder for the table and the plots.")] = Path("benchmarks/results"),
) -> None:
    """Write a Markdown table and plots from results.

    Results of several commands about peers are merged into one file.
    """
    read, of_peers = list[tuple[Path, Results]](), list[PeerResults]()
    for file in files:
        if msgspec.json.decode(file.read_bytes())["question"] == "peers":
            of_peers.append(msgspec.json.decode(file.read_bytes(), type=PeerResults))
        else:
            read.append((file, msgspec.json.decode(file.read_bytes(), type=Results)))
    to.mkdir(parents=True, exist_ok=True)
    sections = [table.markdown([results for _, results in read])] if read else []
    joined = peers_report.merged(of_peers)
    sections += [peers_report.markdown(results) for results in joined]
    (to / "results.md").write_text("\n".join(sections))
    named = [
        (f"peers_{number}" if number > 1 else "peers", peer_results)
        for number, peer_results in enumerate(joined, start=1)
    ]
    for name, of_all in named:
        (to / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(of_all)) + b"\n")
    if reason := plots.missing():
        _tell(f"no plots: {reason}")
        return
    for file, results in read:
        if any(sample.seconds > 0 for sample in results.samples):
            plots.plot(results, to / f"{file.stem}.png")
    for name, of_all in named:
        peers_plot.plot(of_all, to / f"{name}.png")


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",") if size]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(results: Results, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(results)).decode())
        return
    for name, ratio in results.ratios.items():
        what = compared(results.question, name)
        print(f"{name:45} {'none' if ratio is None else f'{ratio:.3f}':>10}  {what}".rstrip())
    for arm, reason in results.skipped.items():
        print(f"{arm:45} skipped: {reason}")
    if results.noisy:
        print("noisy: some measured ratios are inconclusive")
