"""The results of the comparison, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec
from msgspec.structs import replace

from benchmarks.peers.audit import Counted
from benchmarks.results import Parameters


class Steady(msgspec.Struct, frozen=True):
    """One undisturbed peer with that many topics.

    `start_s`: from the start of its processes to a visible record of each topic. `start_cpu_s`: processor seconds up to
    then. `records_per_s`: from a burst's first record sent to its last one visible, on a running peer.
    `cpu_s_per_million_records`: the processor seconds for that. `freshness_*`: seconds from sending to visible, of a
    trickle. `idle_*`: without new records. `peak_memory_mb`: resident, of all its processes. `files`: the visible ones;
    `other_files`: all others that it keeps. None: not measured, because earlier records were missing or by request.
    """

    topics: int
    complete: bool
    start_s: float
    start_cpu_s: float
    records_per_s: float | None = None
    cpu_s_per_million_records: float | None = None
    freshness_p50_s: float | None = None
    freshness_p99_s: float | None = None
    idle_cpu_s_per_minute: float | None = None
    peak_memory_mb: float = 0
    files: int = 0
    median_file_bytes: int = 0
    other_files: int = 0
    counted: Counted = Counted(0, 0, 0, 0, 0)


class Struck(msgspec.Struct, frozen=True):
    """Audit after one kind of fault: the `duplicates` and `missing` that were not there before it.

    `*_in_folder`: of readers of plain folders; -1 if the system has no such readers. `unreadable_in_folder`: empty or
    truncated files that these readers meet.
    """

    what: str
    times: int
    records: int
    duplicates: int
    missing: int
    duplicates_in_folder: int = -1
    unreadable_in_folder: int = 0
    note: str = ""


class PeerReport(msgspec.Struct):
    """One peer's report.

    `status`: `measured`; or `not started` or `failed`, with the reason, and then with the earlier figures alone.
    `struck_by`: the command whose kills it had, if that was another one. `load_1m`: the machine's load before its
    start.
    """

    peer: str
    system: str
    status: str
    command: str
    settings: dict[str, str]
    reason: str = ""
    struck_by: str = ""
    load_1m: float = 0.0
    steady: list[Steady] = []
    struck: list[Struck] = []


class PeerResults(msgspec.Struct):
    """All peers, on one machine; as `Results` has it. `ratios`: see `ratios_of`."""

    question: str
    peers: list[PeerReport]
    host: dict[str, str]
    versions: dict[str, str]
    seed: int
    parameters: Parameters
    notes: list[str]
    ratios: dict[str, float] = {}


_STEADY = (
    ("start, s", "start_s", ".1f", min),
    ("start, CPU s", "start_cpu_s", ".1f", min),
    ("records/s", "records_per_s", ",.0f", max),
    ("CPU s / million", "cpu_s_per_million_records", ",.0f", min),
    ("freshness p50 / p99, s", "", "", min),
    ("idle, CPU s / min", "idle_cpu_s_per_minute", ".1f", min),
    ("memory, MB", "peak_memory_mb", ",.0f", min),
    ("files", "files", ",", min),
    ("median file, bytes", "median_file_bytes", ",", max),
    ("other files kept", "other_files", ",", min),
)


_BY_THE_WALL = {"start_s", "records_per_s", "freshness_p50_s", "freshness_p99_s"}
_COMPARED = (
    "records_per_s",
    "cpu_s_per_million_records",
    "freshness_p50_s",
    "freshness_p99_s",
    "idle_cpu_s_per_minute",
    "peak_memory_mb",
    "other_files",
)
_BUSY = 0.5


def markdown(results: PeerResults) -> str:
    """Return the tables: undisturbed, one for each number of topics, the best of each in bold; then under kills."""
    lines = [f"## {results.question}", ""]
    for topics in sizes_of(results):
        lines += [*_steady_table(results, topics), ""]
    kinds = list(dict.fromkeys(struck.what for peer in results.peers for struck in peer.struck))
    if kinds:
        lines += ["Duplicates / missing records, after", ""]
        lines += [f"| peer | {' | '.join(kinds)} | by |", f"| --- |{' --- |' * (len(kinds) + 1)}"]
        lines += [_struck_row(peer, kinds) for peer in results.peers if peer.struck]
        lines.append("")
    lines += [f"- {peer.peer}: {peer.system}. {_settings(peer)}" for peer in results.peers if peer.status == "measured"]
    lines += [
        f"- {peer.peer}, {struck.what}: {struck.note}"
        for peer in results.peers
        for struck in peer.struck
        if struck.note
    ]
    lines += [f"- {peer.peer} {peer.status}: {peer.reason}" for peer in results.peers if peer.status != "measured"]
    lines += [_busy(peer) for peer in results.peers if _is_busy(peer, results)]
    lines += [f"- {note}" for note in results.notes]
    about = [*results.parameters.items(), ("seed", results.seed), *results.versions.items(), *results.host.items()]
    return "\n".join([*lines, "", "; ".join(f"{name} {value}" for name, value in about), ""])


def settled(struck: Sequence[Struck]) -> list[Struck]:
    """Return the findings without late records.

    Records that are missing after one kind of fault, and visible after a later one, were late.
    """
    findings = list(struck)
    for later, each in enumerate(findings):
        for before in range(later - 1, -1, -1):
            late = min(findings[before].missing, -findings[later].missing)
            if late > 0:
                remark = f"{late:,} shown only after it was started again ({each.what})"
                note = "; ".join(filter(None, [findings[before].note, remark]))
                findings[before] = replace(findings[before], missing=findings[before].missing - late, note=note)
                findings[later] = replace(findings[later], missing=findings[later].missing + late)
    return findings


def sizes_of(results: PeerResults) -> list[int]:
    """Return the numbers of topics that peers were measured with."""
    return sorted({steady.topics for peer in results.peers for steady in peer.steady})


def ratios_of(results: PeerResults) -> dict[str, float]:
    """Return the product's figures over each other peer's, of one run each, if both had shown every record.

    None by the wall clock if the machine was busy during one of the two.
    """
    ours = {steady.topics: steady for peer in results.peers if peer.peer == "ours" for steady in peer.steady}
    calm = {peer.peer for peer in results.peers if not _is_busy(peer, results)}
    ratios: dict[str, float] = {}
    for peer in results.peers:
        for theirs in peer.steady if peer.peer != "ours" else ():
            own = ours.get(theirs.topics)
            if own is None or not (own.complete and theirs.complete):
                continue
            for field in ("start_s", "start_cpu_s", *_COMPARED):
                values = getattr(own, field), getattr(theirs, field)
                if all(values) and (field not in _BY_THE_WALL or {"ours", peer.peer} <= calm):
                    ratios[f"ours_over_{peer.peer}_{field}_{theirs.topics}_topics"] = round(values[0] / values[1], 3)
    return ratios


def is_busy(load_1m: float, cores: int) -> bool:
    """Return whether the machine is too busy for seconds to count: a load, less one, above a half for each core."""
    return load_1m > 1 + _BUSY * cores


def _is_busy(peer: PeerReport, results: PeerResults) -> bool:
    return bool(peer.steady) and is_busy(peer.load_1m, int(results.host.get("cores", 1)))


def _busy(peer: PeerReport) -> str:
    return (
        f"- {peer.peer} had a busy machine (load {peer.load_1m:.1f} before its start): its seconds and records/s are "
        "not to be compared; processor seconds, memory, files and counts are"
    )


def merged(all_results: Sequence[PeerResults]) -> list[PeerResults]:
    """Return the merged results of commands that measured different peers, or another number of topics.

    A later result of the same peer, with as many topics or under kills, replaces an earlier one: kills may be measured
    separately.
    """
    by_question: dict[str, PeerResults] = {}
    for results in all_results:
        asked = sorted((name, value) for name, value in results.parameters.items() if name not in {"kills", "topics"})
        first = by_question.setdefault(repr((asked, results.seed)), results)
        if first is results:
            continue
        for name in {"kills", "topics"} & first.parameters.keys() & results.parameters.keys():
            first.parameters[name] = max(first.parameters[name], results.parameters[name])
        reports = {peer.peer: peer for peer in first.peers}
        for peer in results.peers:
            if before := reports.get(peer.peer):
                _join(before, peer)
            else:
                first.peers.append(peer)
    for results in by_question.values():
        for peer in results.peers:
            peer.struck = settled(peer.struck)
        results.ratios = ratios_of(results)
    return list(by_question.values())


def _join(before: PeerReport, later: PeerReport) -> None:
    before.struck_by = later.command if later.struck else before.struck_by or before.command
    before.struck = later.struck or before.struck
    if later.steady:
        steady = {each.topics: each for each in (*before.steady, *later.steady)}
        before.steady = [steady[topics] for topics in sorted(steady)]
        before.command, before.load_1m, before.settings = later.command, later.load_1m, later.settings


def _settings(peer: PeerReport) -> str:
    return "; ".join(f"{name}: {value}" for name, value in peer.settings.items())


def _steady_table(results: PeerResults, topics: int) -> list[str]:
    peers, busy = results.peers, any(_is_busy(peer, results) for peer in results.peers)
    rows_of = [(peer.peer, steady, peer.command) for peer in peers for steady in peer.steady if steady.topics == topics]
    whole = [steady for _, steady, _ in rows_of if steady.complete]
    lines = [
        f"{topics:,} topics, nothing going wrong",
        "",
        f"| peer | {' | '.join(title for title, *_ in _STEADY)} | duplicates / missing | by |",
        f"| --- |{' ---: |' * (len(_STEADY) + 1)} --- |",
    ]
    for name, steady, command in rows_of:
        cells = [_cell(steady, field, shape, best, whole, busy=busy) for _, field, shape, best in _STEADY]
        counted = f"{steady.counted.duplicates:,} / {steady.counted.missing:,}"
        lines.append(f"| {name} | {' | '.join(cells)} | {counted} | `{command}` |")
    return lines


def _cell(steady: Steady, field: str, shape: str, best: object, whole: Sequence[Steady], *, busy: bool) -> str:
    value = getattr(steady, field or "freshness_p50_s")
    if value is None:
        return "-"
    text = f"{value:{shape}}" if field else f"{steady.freshness_p50_s:.1f} / {steady.freshness_p99_s:.1f}"
    if not steady.complete:
        return f"({text})"
    if busy and (field or "freshness_p50_s") in _BY_THE_WALL:
        return text
    values = [item for one in whole if (item := getattr(one, field or "freshness_p50_s")) is not None]
    least_or_most = min(values) if best is min else max(values)
    return f"**{text}**" if value == least_or_most else text


def _struck_row(peer: PeerReport, kinds: Sequence[str]) -> str:
    by_fault = {struck.what: struck for struck in peer.struck}
    cells = [_struck_cell(by_fault.get(kind)) for kind in kinds]
    return f"| {peer.peer} | {' | '.join(cells)} | `{peer.struck_by or peer.command}` |"


def _struck_cell(struck: Struck | None) -> str:
    if struck is None or not struck.times:
        return "-"
    text = f"{struck.duplicates:,} / {struck.missing:,}"
    if struck.duplicates or struck.missing:
        text = f"**{text}**"
    if struck.duplicates_in_folder > struck.duplicates:
        text += f" (by the folder {struck.duplicates_in_folder:,})"
    if struck.unreadable_in_folder:
        text += f" ({struck.unreadable_in_folder:,} unreadable files in the folder)"
    return f"{text} of {struck.records:,}, {struck.times} {'time' if struck.times == 1 else 'times'}"


def middle(values: Sequence[int]) -> int:
    """Return the median, 0 of none."""
    return int(median(values)) if values else 0
