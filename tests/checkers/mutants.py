"""Mutation analysis of the commit protocol: wrong products, and the check that notices each.

Each mutant is a copy of the product with one change. `kill_suite` runs on it, from unit tests to crash exploration,
until a check fails. A survivor is equivalent, and `equivalent_mutants.toml` argues why, or it shows a gap.
"""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from xxhash import xxh3_64_hexdigest

from distcommit.core.errors import ConfigurationError
from tests.checkers.kill_suite import REACHED, Budgets
from tests.checkers.mutant_sources import Mutant, generated_mutants
from tests.checkers.named_mutants import named_mutants
from tests.checkers.reaching_tests import Reached

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).parent / "equivalent_mutants.toml"
KNOWN = Path(__file__).parent / "noticed_late.json"
"""By mutant: the unit test that noticed it, if that took long; it is tried before all others."""
_LONG_S = 10
_BESIDE = ("pyproject.toml", "conf")
FULL = Budgets()
_WALL_S = 3600
"""A kill suite beyond this time counts as hung, whatever the load of this machine."""


class Outcome(msgspec.Struct, frozen=True):
    """Result of one mutant. `stage`: where it was killed, empty if it survived. `why`: the test or history."""

    id: str
    description: str
    stage: str
    why: str
    seconds: float


def mutants(
    seconds: float,
    seed: int,
    processes: int,
    sample: int = 0,
    only: str = "",
    budgets: Budgets = FULL,
    *,
    skip_argued: bool = False,
    before: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Try mutants, the named ones first, until all are tried or time is up.

    Args:
        seconds: no mutant is begun later than this; 0 for no limit.
        seed: the order of the generated ones, and the explorers' choices.
        processes: the number of concurrent processes.
        sample: the number of generated ones; 0 for all. The named ones are always included.
        only: those whose id contains one of these texts, separated by commas.
        budgets: the work of the kill suite.
        skip_argued: leave out those that are argued equivalent: they take the longest.
        before: an earlier result on the same product: mutants killed then are not tried again.
        say: receives each mutant's result, a line each.

    Returns:
        plain values: `mutants` (tried), `killed`, `by` stage, `survivors` with `argued`, `named`, `skipped` (argued
            equivalent before, not tried), `not_tried`, `retry_count`, `product` (a checksum of the mutated modules).

    Raises:
        ConfigurationError: if this is not a checkout, the sound product does not pass, or `before` is of another one.
    """
    began, product = time.monotonic(), _checksum()
    argued, noticed = arguments(), noticed_late()
    wanted = choose(ROOT, seed, sample, only)
    skipped = [mutant for mutant in wanted if skip_argued and mutant.id in argued]
    chosen = [mutant for mutant in wanted if mutant not in skipped]
    outcomes = _killed_before(before, chosen, product)
    killed_before = {outcome.id for outcome in outcomes}
    tried = [mutant for mutant in chosen if mutant.id not in killed_before]
    with _copies(processes, seed, budgets) as (copies, reached):

        def attempt(mutant: Mutant) -> None:
            if seconds and time.monotonic() - began > seconds:
                return
            copy = copies.get()
            try:
                outcome = _try(copy, mutant, seed, budgets, noticed.get(mutant.id, ""), reached)
                outcomes.append(outcome)
                fate = f"killed by {outcome.stage}" if outcome.stage else "survived"
                say(f"{len(outcomes)} of {len(chosen)}: {mutant.id} {fate} in {outcome.seconds:.0f} s")
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(attempt, tried))
    by_id = {mutant.id: mutant for mutant in chosen}
    survivors = [by_id[outcome.id] for outcome in outcomes if not outcome.stage]
    return {
        "mutants": len(outcomes),
        "killed": len(outcomes) - len(survivors),
        "by": dict(Counter(outcome.stage for outcome in outcomes if outcome.stage)),
        "survivors": [_shown(mutant, argued) for mutant in survivors],
        "skipped": [_shown(mutant, argued) for mutant in skipped],
        "unexplained": sum(1 for mutant in survivors if mutant.id not in argued),
        "named": [msgspec.to_builtins(outcome) for outcome in outcomes if by_id[outcome.id].is_named],
        "outcomes": [msgspec.to_builtins(outcome) for outcome in outcomes],
        "not_tried": len(chosen) - len(outcomes),
        "retry_count": len(tried) if before else 0,
        "seconds": round(time.monotonic() - began + (before["seconds"] if before else 0), 1),
        "seed": seed,
        "product": product,
    }


def _killed_before(before: Mapping[str, Any] | None, chosen: Sequence[Mutant], product: str) -> list[Outcome]:
    """Return the mutants that an earlier result records as killed.

    Raises:
        ConfigurationError: if it is of another product.
    """
    if before is None:
        return []
    if before.get("product") != product:
        raise ConfigurationError(
            "the earlier result is of another product",
            expected=product,
            found=str(before.get("product")),
            todo="try all of them again",
        )
    names = {mutant.id for mutant in chosen}
    outcomes = [msgspec.convert(row, Outcome) for row in before["outcomes"]]
    return [outcome for outcome in outcomes if outcome.stage and outcome.id in names]


def _checksum() -> str:
    """Return a checksum of the mutated modules: in other ones a name may be another mutant's."""
    every = [*generated_mutants(ROOT), *named_mutants(ROOT)]
    paths = sorted({path for mutant in every for path in mutant.sources})
    return xxh3_64_hexdigest(b"".join((ROOT / path).read_bytes() for path in paths))


def _shown(mutant: Mutant, argued: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": mutant.id,
        "description": mutant.description,
        "diff": mutant.diff,
        "argued": argued.get(mutant.id, ""),
    }


def choose(root: Path, seed: int, sample: int, only: str) -> list[Mutant]:
    """Return named mutants, then generated ones in an order that the seed chooses."""
    generated = list(generated_mutants(root))
    random.Random(seed).shuffle(generated)
    texts = only.split(",")
    wanted = [mutant for mutant in [*named_mutants(root), *generated] if any(text in mutant.id for text in texts)]
    named = sum(mutant.is_named for mutant in wanted)
    return wanted[: named + sample] if sample else wanted


def arguments() -> dict[str, str]:
    """Return the arguments for equivalent mutants, by their ids."""
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    return {row["mutant"]: row["why"] for row in rows}


def stale_arguments(root: Path = ROOT) -> list[str]:
    """Return the argued ids without a mutant: the product has changed, and the argument must be repeated."""
    ids = {mutant.id for mutant in [*generated_mutants(root), *named_mutants(root)]}
    return [name for name in arguments() if name not in ids]


def noticed_late() -> dict[str, str]:
    """Return tests by mutants, as `remember` has stored them."""
    tests: dict[str, str] = json.loads(KNOWN.read_text(encoding="utf-8"))
    return tests


def remember(result: Mapping[str, Any]) -> None:
    """Store which unit tests have noticed mutants that took long, without their parameters.

    Entries of untried mutants stay, and those of mutants that passed again are removed.
    """
    tests, outcomes = noticed_late(), [msgspec.convert(row, Outcome) for row in result["outcomes"]]
    for each in outcomes:
        if each.stage == "unit" and each.seconds > _LONG_S:
            tests[each.id] = each.why
        elif each.id in tests and not each.why.startswith(tests[each.id]):
            del tests[each.id]
    KNOWN.write_text(json.dumps(tests, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def table(result: Mapping[str, Any]) -> str:
    """Return the result as a page, `tests/crash/mutants.md`."""
    lived = [*result["survivors"], *result["skipped"]]
    by = ", ".join(f"{count} by {stage}" for stage, count in sorted(result["by"].items(), key=lambda item: -item[1]))
    lines = [
        "# Mutants of the commit protocol",
        "",
        "Written by `python -m tests.checkers mutants`. Each mutant is the product with one change; it is killed if"
        " a unit test, the crash explorer, the interleaver or the fault injector notices. A mutant that hangs is killed"
        " (`timeout`).",
        "",
        f"{result['mutants']} mutants, {result['killed']} killed ({by}), {len(result['survivors'])} survived,"
        f" {result['unexplained']} of them unexplained; {len(result['skipped'])} argued equivalent were not tried,"
        f" {result['not_tried']} were not reached. {result['seconds']:.0f} s, seed {result['seed']}."
        + f" {result['retry_count']} that had lived were tried again, with new tests."
        * bool(result["retry_count"]),
        "",
        *_rows(("named mutant", "what it does", "killed by"), map(_named_row, result["named"])),
        "",
        *_rows(
            ("survivor", "what it does", "why it is equivalent"),
            map(_survivor_row, lived),
        ),
    ]
    return "\n".join(lines) + "\n"


def _named_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    killed = f"{row['stage']}: {row['why'].partition(' ')[0]}" if row["stage"] else "**survived**"
    return row["id"].rpartition(":")[2], row["description"], killed


def _survivor_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return f"`{row['id']}`", row["description"], row["argued"] or "**unexplained**"


def _rows(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


@contextmanager
def _copies(number: int, seed: int, budgets: Budgets) -> Iterator[tuple[queue.Queue[Path], Reached]]:
    """Yield copies of the repository, on the first of which the kill suite has passed, and the lines that its tests
    reach."""
    if not (ROOT / "tests" / "unit").is_dir():
        raise ConfigurationError("the repository's own tests are not there", path=str(ROOT), todo="use a checkout")
    with tempfile.TemporaryDirectory(prefix="distcommit-mutants-") as folder:
        first = Path(folder) / "0"
        shutil.copytree(ROOT / "distcommit", first / "distcommit", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "tests", first / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        for name in _BESIDE:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, first / name)
            elif (ROOT / name).exists():
                shutil.copy(ROOT / name, first / name)
        stage, why = _run(first, "", seed, budgets, compiles=True)
        if stage:
            raise ConfigurationError(
                "the product fails without any mutation",
                found=f"{stage}: {why}",
                todo="repair it first: mutants are killed by checks that the product passes",
            )
        copies: queue.Queue[Path] = queue.Queue()
        copies.put(first)
        for place in range(1, number):
            copies.put(shutil.copytree(first, Path(folder) / str(place)))
        yield copies, msgspec.json.decode((first / REACHED).read_bytes(), type=Reached)


def _try(copy: Path, mutant: Mutant, seed: int, budgets: Budgets, known: str, reached: Reached) -> Outcome:
    began = time.monotonic()
    originals = {path: (copy / path).read_text(encoding="utf-8") for path in mutant.sources}
    try:
        for path, source in mutant.sources.items():
            _replace(copy / path, source)
        area = next(iter(mutant.sources)).split("/")[1]
        first = [known] if (copy / known.partition("::")[0]).is_file() else []
        stage, why = _run(copy, area, seed, budgets, first=[*first, *reached.first(mutant, originals)])
    finally:
        for path, source in originals.items():
            _replace(copy / path, source)
    return Outcome(mutant.id, mutant.description, stage, why, round(time.monotonic() - began, 1))


def _replace(path: Path, source: str) -> None:
    """Write a module and delete its compiled file, which Python would match by seconds and size."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()
    path.write_text(source, encoding="utf-8")


def _run(
    copy: Path, area: str, seed: int, budgets: Budgets, *, first: Sequence[str] = (), compiles: bool = False
) -> tuple[str, str]:
    """Run the kill suite; return the failed stage and its finding, both empty if all passed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    environment |= {"PYTHONPATH": str(copy), "PYTHONHASHSEED": "0", "HYPOTHESIS_STORAGE_DIRECTORY": str(copy / "hyp")}
    command = [sys.executable, *([] if compiles else ["-B"]), "-m", "tests.checkers.kill_suite"]
    with (copy / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [*command, area, str(seed), msgspec.json.encode(budgets).decode(), msgspec.json.encode(first).decode()],
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=_WALL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "timeout", f"not ended after {_WALL_S} s"
    shutil.rmtree(copy / "tmp", ignore_errors=True)
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith(b"{")]
    if not lines:
        return "import", _tail(copy / "output.txt")
    if "killed" in lines[-1]:
        return lines[-1]["killed"], lines[-1]["why"]
    if process.returncode < 0:
        return "timeout", f"in {lines[-1]['stage']}"
    return lines[-1]["stage"], _tail(copy / "output.txt")


def _tail(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[-300:]
