"""A Markdown table of ratios, with the notes on how to read them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.reports.compared import compared
from benchmarks.results import Results, Sample


def markdown(all_results: Sequence[Results]) -> str:
    """Return one section for each question."""
    return "\n".join(_section(results) for results in all_results)


def _section(results: Results) -> str:
    compares = {name: compared(results.question, name) for name in results.ratios}
    title, rule = (" what it compares |", " --- |") if any(compares.values()) else ("", "")
    lines = [f"## {results.question}", "", f"| ratio | measured |{title}", f"| --- | ---: |{rule}"]
    for name, ratio in results.ratios.items():
        lines.append(f"| `{name}` | {_shown(ratio)} |" + (f" {compares[name]} |" if title else ""))
    if results.samples:
        lines += ["", "| arm | datasets | median s | least | most | µs a file | samples |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
        groups: dict[tuple[str, int], list[Sample]] = {}
        for sample in results.samples:
            groups.setdefault((sample.arm, sample.datasets), []).append(sample)
        lines += [_row(arm, datasets, samples) for (arm, datasets), samples in groups.items()]
    lines += ["", *(f"- {note}" for note in results.notes)]
    lines += [f"- not measured: {arm}: {reason}" for arm, reason in results.skipped.items()]
    about = [*results.parameters.items(), ("seed", results.seed), *results.versions.items(), *results.host.items()]
    return "\n".join([*lines, "", "; ".join(f"{name} {value}" for name, value in about), ""])


def _row(arm: str, datasets: int, samples: Sequence[Sample]) -> str:
    seconds = [sample.seconds for sample in samples]
    files = max(1, datasets * samples[0].files)
    return (
        f"| {arm} | {datasets:,} | {median(seconds):.3f} | {min(seconds):.3f} | {max(seconds):.3f} "
        f"| {median(seconds) / files * 1e6:.1f} | {len(seconds)} |"
    )


def _shown(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:,.3f}"
