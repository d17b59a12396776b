"""Executable model of log anchors, by which an older store, output or bucket log is detected.

    python -m tests.spec.anchor_model                 the table: as designed, and every naive variant
    python -m tests.spec.anchor_model sweep_early     one variant, with a history for each thing that went wrong

Model: two buckets with a dataset each. A run of epoch e reads "record e" of both; in dataset a, twins stage it. A run
is a list of steps. It may crash after each step, and may continue as a zombie after each step of the next run. An
operator sets the watermark of dataset a (SET in the bucket's log, HEAD in the job log, then the answer), and deletes
published files on purpose. Each history has one disaster: a part (one bucket's log, the job log, task states, the whole
store, the output, staging) is restored to an earlier moment, or the output is emptied. Whole runs follow.

The rules are those of a run's start (`begin`) and of each bucket (`look`, `fence`). The markers BEGAN and ENDED in the
output anchor the job log. CUT1 follows when everything is fenced and replayed; CUT2 follows the drain and precedes the
marker ENDED. Both anchor the bucket logs by heads. A head stands for the whole log below it; the product stores the
number and the checksum of that segment.

After a death the next run checks the work of the dead runs in a bucket before it fences it. If a file of theirs is
missing, the output is old. If the run with the bucket's newest fence published a file that no log names, the log has
lost its tail. The check looks for published files, not for missing staged ones. So staging may be swept at any time,
and emptying it raises no alarm.

Invariants: without a disaster no run is rejected and no dataset is blocked. After one, no run seals in a dataset whose
log and files disagree, or whose SET is lost. `known_limit` lists the exceptions.

A head names a segment by its number and its own checksum, not by a hash chained through all earlier segments. Numbers
have no gaps (otherwise the log is corrupt). So a log that lost the head's segment has another one at its number, or
none.

Not modelled: the writer of a segment. The checksum must cover the writer, and it does. Otherwise a run that slept while
its bucket lost its tail could close a replayed sequence again and recreate the very log that the head names.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

DATASETS = ("a", "b")
ATTEMPTS = {"a": (1, 2), "b": (1,)}
PARTS = ("log of a", "job log", "task states", "store", "output", "output emptied", "staging")

Rec = tuple[Any, ...]  # (kind, epoch, more)
Log = tuple[Rec, ...]


class World(NamedTuple):
    staged: frozenset[tuple[str, int, int]] = frozenset()  # (dataset, epoch, attempt)
    rows: frozenset[tuple[str, int, int]] = frozenset()
    job: Log = ()
    logs: tuple[Log, Log] = ((), ())
    files: frozenset[tuple[str, int]] = frozenset()  # (dataset, epoch)
    began: int = 0
    ended: int = 0
    claimed: bool = False
    deleted: frozenset[tuple[str, int]] = frozenset()  # files that operators deleted on purpose
    told: int = 0  # confirmed SETs of operators


class Run(NamedTuple):
    e: int = 0
    lost: frozenset[str] = frozenset()  # datasets that are blocked and reported
    is_zombie: bool = False
    fails: str = ""  # the dataset whose work fails in part, so that it is not sealed


class RefusedError(Exception):
    """The run is rejected at its start."""


class FencedError(Exception):
    """A newer run has fenced this one."""


class HarmError(Exception):
    """A run continues although log and output disagree."""


Step = Callable[[World, Run, frozenset[str]], tuple[World, Run]]


# ---- contents of the logs
def newest(log: Log, *kinds: str) -> int:
    return max([r[1] for r in log if r[0] in kinds], default=0)


def log_of(w: World, d: str) -> Log:
    return w.logs[DATASETS.index(d)]


def appended(w: World, d: str, *r: Any) -> World:
    at = DATASETS.index(d)
    return w._replace(logs=(*w.logs[:at], (*w.logs[at], r), *w.logs[at + 1 :]))  # type: ignore[arg-type]


def epochs(w: World, d: str, kind: str) -> set[int]:
    return {r[1] for r in log_of(w, d) if r[0] == kind}


def pending(w: World, d: str) -> list[tuple[int, int]]:
    """Return (epoch, attempt) of each sequence that is sealed and not done."""
    done = epochs(w, d, "DONE")
    return [(r[1], r[2]) for r in log_of(w, d) if r[0] == "INTENT" and r[1] not in done]


def head_of(w: World, d: str) -> Log:
    """Return the newest head of a bucket: its whole log up to there."""
    heads: list[Log] = [log for r in w.job if r[0] != "FENCE" for dataset, log, _ in r[2] if dataset == d]
    return max(heads, key=len, default=())


def is_whole(w: World, d: str) -> bool:
    """Return whether the newest cut found the bucket whole."""
    cuts = [r for r in w.job if r[0] in ("CUT1", "CUT2")]
    return not cuts or (d, True) in {x[::2] for x in cuts[-1][2]}


def has_head(w: World, d: str, v: frozenset[str]) -> bool:
    head, log = head_of(w, d), log_of(w, d)
    return "no_heads" in v or (len(log) >= len(head) if "numbers_only" in v else log[: len(head)] == head)


def harm(w: World, d: str) -> str:
    done, sealed = epochs(w, d, "DONE"), epochs(w, d, "INTENT")
    if any((d, e) not in w.files | w.deleted for e in done):
        return "LOSS: DONE, AND NO FILE"
    if any(dataset == d and e not in sealed for dataset, e in w.files):
        return "TWICE: A FILE WITHOUT ITS SEQUENCE"
    return "SET BY HAND IS GONE" if d == "a" and len(epochs(w, d, "SET")) < w.told else ""


# ---- the steps of a run
def begin(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
    fence, cut1, cut2 = newest(w.job, "FENCE"), newest(w.job, "CUT1"), newest(w.job, "CUT2")
    if "no_marks" not in v:
        if w.began > fence:
            raise RefusedError("store older than its output")
        if fence and w.ended == fence > cut2:
            raise RefusedError("store older than its output: the end of a run")
    if "no_cuts" not in v and cut1 > w.began:
        raise RefusedError("output older than its store")
    if "no_owner" not in v and cut1 and not w.claimed:
        raise RefusedError("output emptied, or elsewhere")
    e = fence + 1
    return w._replace(job=(*w.job, ("FENCE", e, "")), claimed=True), run._replace(e=e)


def mark_began(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
    return w._replace(began=max(w.began, run.e)), run


def look(w: World, d: str, v: frozenset[str]) -> bool:
    """Check whether a bucket has lost records above its head.

    It has if the run of its newest fence published files that are sealed nowhere. The check applies only if that run
    died, or if the bucket was never found whole since. It raises RefusedError if a file of a dead run is missing.
    """
    e = newest(log_of(w, d), "FENCE")
    died = {e for e in epochs(w, d, "DONE") if "look_at_all" in v or e > w.ended}
    if died and (d, max(died)) not in w.files:
        raise RefusedError("output older than its store: a file of a run that died")
    if e <= newest(w.job, "CUT2") and ("look_once" in v or is_whole(w, d)):
        return False
    sealed = epochs(w, d, "INTENT")
    return e not in sealed and (d, e) in w.files and any(row[:2] == (d, e) for row in w.rows)


def fence(d: str) -> Step:
    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        if not has_head(w, d, v) or ("no_look" not in v and look(w, d, v)):
            run = run._replace(lost=run.lost | {d})
        if d in run.lost:
            return w, run
        require(newest(log_of(w, d), "FENCE") <= run.e)
        return appended(w, d, "FENCE", run.e, ""), run

    return step


def require(fenced_in: bool) -> None:
    if not fenced_in:
        raise FencedError


def publish(d: str) -> Step:
    """Rename the staged files of sealed sequences. A file that is neither staged nor published is LOST, and blocks its
    dataset.
    """

    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        for e, attempt in pending(w, d) if d not in run.lost else ():
            if (d, e, attempt) in w.staged:
                w = w._replace(staged=w.staged - {(d, e, attempt)}, files=w.files | {(d, e)})
            elif (d, e) not in w.files:
                run = run._replace(lost=run.lost | {d})
        return w, run

    return step


def close(d: str) -> Step:
    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        for e, _ in pending(w, d) if d not in run.lost else ():
            require(newest(log_of(w, d), "FENCE") == run.e)
            w = appended(w, d, "DONE", e, "")
        return w, run

    return step


def cut(kind: str) -> Step:
    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        require(newest(w.job, "FENCE") == run.e)
        lost = run.lost | {d for d in DATASETS if not has_head(w, d, v) and "cut_unseen" not in v}
        heads = tuple((d, head_of(w, d) if d in lost else log_of(w, d), d not in lost) for d in DATASETS)
        if any(len(log) < len(head_of(w, d)) for d, log, _ in heads):
            return w, run  # (not valid: a head would go back)
        return w._replace(job=(*w.job, (kind, run.e, heads))), run

    return step


def sweep(d: str) -> Step:
    """Delete staged files of older epochs, except those of sequences that are sealed and not done."""

    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        if d in run.lost:
            return w, run
        pending_epochs = {e for e, _ in pending(w, d)}
        return w._replace(
            staged=frozenset(x for x in w.staged if x[0] != d or x[1] >= run.e or x[1] in pending_epochs)
        ), run

    return step


def stage(d: str) -> Step:
    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        if d in run.lost:
            return w, run
        return w._replace(staged=w.staged | {(d, run.e, attempt) for attempt in ATTEMPTS[d]}), run

    return step


def note(d: str) -> Step:
    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        attempts = {(d, run.e, attempt) for attempt in ATTEMPTS[d] if (d, run.e, attempt) in w.staged}
        return (w if d in run.lost else w._replace(rows=w.rows | attempts)), run

    return step


def seal(d: str) -> Step:
    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        if d in run.lost or d == run.fails:
            return w, run
        log = log_of(w, d)
        require(newest(log, "FENCE") == run.e)
        since = log[log.index(("FENCE", run.e, "")) :]
        own_attempts = [attempt for attempt in ATTEMPTS[d] if (d, run.e, attempt) in w.staged & w.rows]
        if (
            own_attempts
            and not pending(w, d)
            and all(r[0] == "FENCE" or (r[0] == "DONE" and r[1] < run.e) for r in since)
        ):
            if harm(w, d) and not run.is_zombie:  # it has read from an invalid watermark
                raise HarmError(harm(w, d))
            w = appended(w, d, "INTENT", run.e, own_attempts[-1])
        return w, run

    return step


def clean(d: str) -> Step:
    """Delete the files of aborted attempts, once the sequence was read as DONE."""

    def step(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
        if run.e in epochs(w, d, "DONE"):
            w = w._replace(staged=frozenset(x for x in w.staged if x[:2] != (d, run.e)))
        return w, run

    return step


def mark_ended(w: World, run: Run, v: frozenset[str]) -> tuple[World, Run]:
    has_ended = newest(w.job, "CUT2") == newest(w.job, "FENCE") == run.e or "ended_first" in v
    return (w._replace(ended=max(w.ended, run.e)) if has_ended else w), run


@cache
def steps_of(v: frozenset[str]) -> list[Step]:
    """Yield the steps of a run in order, each with one effect."""

    def both(*makers: Callable[[str], Step]) -> list[Step]:
        return [maker(d) for d in DATASETS for maker in makers]

    return [
        begin,
        *([] if "began_late" in v else [mark_began]),
        *both(fence),
        *both(publish, close),
        *both(sweep),
        cut("CUT1"),
        *([mark_began] if "began_late" in v else []),
        *both(stage, note),
        *both(seal, publish, close, clean),
        *([mark_ended, cut("CUT2")] if "ended_first" in v else [cut("CUT2"), mark_ended]),
    ]


STEPS = len(steps_of(frozenset()))


# ---- histories
class Moment(NamedTuple):
    """An earlier world and its time: the act, and the number of its steps."""

    world: World
    act: int
    step: int


@lru_cache(maxsize=100_000)
def some_steps(w: World, run: Run, first: int, end: int, v: frozenset[str]) -> tuple[Run, str, list[World]]:
    """Execute steps of a run. Return the run, why it was rejected or what it has lost, and each world."""
    worlds = [w]
    try:
        for step in steps_of(v)[first:end]:
            w, run = step(w, run, v)
            worlds.append(w)
    except RefusedError as error:
        return run, f"refused: {error}", worlds
    except HarmError as error:
        return run, f"UNDETECTED: {error}", worlds
    except FencedError:
        pass
    return run, "", worlds


def went_on(w: World, run: Run, at: int, v: frozenset[str]) -> World:
    """Continue with a run that slept after `at` steps."""
    return some_steps(w, run._replace(is_zombie=True), at, STEPS, v)[2][-1] if run.e else w


class History:
    """A list of acts, the worlds at every moment, and the outcome."""

    def __init__(self, switches: frozenset[str]) -> None:
        self.v, self.world, self.moments = switches, World(), [Moment(World(), 0, 0)]
        self.acts: list[str] = []
        self.died: set[int] = set()
        self.verdict, self.left_alone = "", frozenset[str]()
        self.contradicted = False  # reported by a head, from the disaster on
        self.beneath_a_live_run = False  # the disaster came while a run slept that continued later
        self._zombie: tuple[Run, int] | None = None

    def branch(self) -> History:
        other = History(self.v)
        other.world, other.moments, other.acts, other.died = self.world, self.moments, [*self.acts], set(self.died)
        other.verdict, other.left_alone, other._zombie = self.verdict, self.left_alone, self._zombie
        other.beneath_a_live_run, other.contradicted = self.beneath_a_live_run, self.contradicted
        return other

    def run(self, crash: int = STEPS, fails: str = "", zombie_at: int = -1) -> History:
        """Execute `crash` steps of a run. The run that crashed before wakes up after `zombie_at` of them."""
        zombie, self._zombie = self._zombie, None
        self._act(f"run, {crash} steps{fails and f', {fails} fails'}{f', zombie at {zombie_at}' * (zombie_at >= 0)}")
        state, number, worlds = Run(fails=fails), 0, [self.world]
        if 0 <= zombie_at < crash:
            state, self.verdict, worlds = some_steps(self.world, state, 0, zombie_at, self.v)
            self.world = went_on(worlds[-1], *zombie, self.v) if zombie else worlds[-1]
            number = zombie_at
        if not self.verdict and len(worlds) > number:
            state, self.verdict, more = some_steps(self.world, state, number, crash, self.v)
            worlds, self.world = [*worlds, *more[1:]], more[-1]
        self.moments = [*self.moments, *(Moment(w, len(self.acts), at) for at, w in enumerate(worlds) if at)]
        self.left_alone |= state.lost
        if crash < STEPS:
            self.died.add(len(self.acts))
            self._zombie = (state, crash)
        return self

    def wake(self) -> History:
        if self._zombie:
            self._act("the crashed run continues")
            self.beneath_a_live_run = True
            self.world = went_on(self.world, *self._zombie, self.v)
            self._zombie = None
        return self

    def by_hand(self, steps: int = 3) -> History:
        """Set the watermark of dataset a: SET, its HEAD, the answer."""
        self._act(f"an operator sets the watermark, {steps} steps")
        w, number = self.world, len(epochs(self.world, "a", "SET"))
        if not pending(w, "a") and has_head(w, "a", self.v) and log_of(w, "a"):
            if steps > 0:
                w = appended(w, "a", "SET", number + 1, "")
            if steps > 1 and "no_hand_head" not in self.v:
                w = w._replace(job=(*w.job, ("HEAD", 0, (("a", log_of(w, "a"), True),))))
            if steps > 2:
                w = w._replace(told=number + 1)
        self.world = w
        self.moments = [*self.moments, Moment(w, len(self.acts), steps)]
        return self

    def delete(self) -> History:
        """Delete published files of ended runs on purpose, as an operator does."""
        self._act("files deleted on purpose")
        w = self.world
        deletable = {x for x in w.files if x[1] <= w.ended}
        self.world = w._replace(files=w.files - deletable, deleted=w.deleted | deletable)
        self.moments = [*self.moments, Moment(self.world, len(self.acts), 0)]
        return self

    def restore(self, part: str, moment: Moment) -> History:
        """Restore a part to an earlier moment."""
        self._act(f"{part} of act {moment.act}, step {moment.step}")
        w, was = self.world, moment.world
        match part:
            case "log of a":
                self.world = w._replace(logs=(was.logs[0], w.logs[1]))
            case "job log":
                self.world = w._replace(job=was.job)
            case "task states":
                self.world = w._replace(rows=was.rows)
            case "store":
                self.world = w._replace(job=was.job, logs=was.logs, rows=was.rows)
            case "output":
                self.world = w._replace(files=was.files, began=was.began, ended=was.ended, claimed=was.claimed)
            case "output emptied":
                self.world = w._replace(files=frozenset(), began=0, ended=0, claimed=False)
            case "staging":
                self.world = w._replace(staged=was.staged)
            case _:
                raise ValueError(part)
        self.contradicted = not all(has_head(self.world, d, frozenset()) for d in DATASETS)
        return self

    def _act(self, text: str) -> None:
        self.acts.append(text)


def undisturbed(switches: frozenset[str], stride: int = 1) -> Iterator[History]:
    """Yield histories without a disaster: with crashes, failures, zombies and operators."""
    places = range(0, STEPS + 1, stride)
    for first in places:
        for fails in ("", "b"):
            for second in range(STEPS + 1):
                yield History(switches).run(first, fails).run(second).run().run()
                yield History(switches).run().run(first, fails).run(second).run()
            for at in places:
                yield History(switches).run(first, fails).run(zombie_at=at).run()
                yield History(switches).run(first, fails).run(at, zombie_at=max(at - 2, 0)).run().run()
        for steps in range(4):
            yield History(switches).run(first).by_hand(steps).wake().run().run()
            yield History(switches).run(first).by_hand(steps).run(zombie_at=3).run()
            yield History(switches).run().by_hand(steps).run(first).delete().run().run()


def prefixes(switches: frozenset[str], stride: int) -> Iterator[History]:
    """Yield histories before a disaster."""
    places = range(0, STEPS + 1, stride)
    for first in places:
        yield History(switches).run(first).by_hand()
        yield History(switches).run(first).run().by_hand()
    for last in range(STEPS + 1):
        yield History(switches).run(last)
        yield History(switches).run().run(last)
    for first in places:
        for last in places:
            yield History(switches).run(first).run(last)
            yield History(switches).run(first, "b").run(last)


def disasters(switches: frozenset[str], stride: int = 1) -> Iterator[tuple[str, list[Moment], History]]:
    """Yield (the restored part, the moments that are equal for it, the whole history)."""
    for before in prefixes(switches, stride):
        for part in PARTS:
            same: dict[World, list[Moment]] = {}
            for moment in before.moments:
                same.setdefault(before.branch().restore(part, moment).world, []).append(moment)
            for number, moments in enumerate(same.values()):
                history = before.branch().restore(part, moments[0])
                yield part, moments, history.branch().run().run()
                if number % stride == 0 or part == "log of a":
                    yield part, moments, history.branch().run(STEPS // 2).run().run()
                    yield part, moments, history.branch().wake().run().run()


def known_limit(part: str, moments: list[Moment], history: History) -> str:
    """Return the known limit that applies, if any: a loss that anchors can't detect and
    conf/docs/operate/backup.md documents.
    """
    if not history.verdict.startswith("UNDETECTED"):
        return ""
    if history.beneath_a_live_run and (part in ("store", "output") or not history.contradicted):
        return "put back while a run slept that then went on"
    if part == "store" and "SET" in history.verdict:
        return "what was set by hand since the copy is lost with it"
    if part == "store" and any(moment.act in history.died for moment in moments):
        return "copied in the midst of a run that then died"
    return ""


class Tally(NamedTuple):
    counts: Counter[str]
    examples: dict[str, list[str]]


def endings(switches: str, stride: int) -> Iterator[tuple[str, History]]:
    """Yield each history with its ending."""
    v = frozenset(switches.split())
    for history in undisturbed(v, stride):
        alone = f"{', '.join(sorted(history.left_alone))} is left alone" if history.left_alone else ""
        alarm = history.verdict or alone
        yield f"no disaster: {f'FALSE ALARM: {alarm}' if alarm else 'fine'}", history
    for part, moments, history in disasters(v, stride):
        limit = known_limit(part, moments, history)
        ending = history.verdict or ("named" if history.left_alone else "harmless")
        yield f"{part}: {f'(known: {limit})' if limit else ending}", history


def is_wrong(ending: str) -> bool:
    return "FALSE ALARM" in ending or "UNDETECTED" in ending


def tally(switches: str = "", stride: int = 1) -> Tally:
    """Count the histories by ending, with an example of each."""
    result = Tally(Counter(), {})
    for ending, history in endings(switches, stride):
        result.counts[ending] += 1
        result.examples.setdefault(ending, history.acts)
    return result


NAIVE = (
    ("no_marks", "no markers in the output"),
    ("no_cuts no_owner no_look", "no check for an older or different output"),
    ("no_heads", "no heads"),
    ("numbers_only", "heads are numbers, without a hash"),
    ("cut_unseen", "a cut with heads above the last ones, without a check"),
    ("no_hand_head", "no HEAD after an operator action"),
    ("no_look", "no check of dead runs"),
    ("look_once", "a bucket without its tail is checked only once"),
    ("look_at_all", "a check of the files of ended runs, too"),
    ("ended_first", "ENDED before CUT2"),
    ("began_late", "BEGAN after CUT1"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("switch", nargs="*")
    parser.add_argument("--stride", type=int, default=3, help="1: every place of every crash")
    options = parser.parse_args()
    unexpected, began = 0, time.monotonic()
    for switches, text in [(" ".join(options.switch), "")] if options.switch else [("", "as designed"), *NAIVE]:
        result = tally(switches, options.stride)
        broken = [ending for ending in result.counts if is_wrong(ending)]
        unexpected += bool(switches) != bool(broken)
        print(f"{switches or '-':15s} {text:50s} {sum(result.counts.values()):9,d} {len(broken) or ''}", flush=True)
        for what in sorted(result.counts) if options.switch or not switches else broken[:2]:
            print(f"    {result.counts[what]:8,d}  {what}")
            if what in broken:
                print(f"              {' | '.join(result.examples[what])}")
    print(f"{time.monotonic() - began:.0f} s; {unexpected} result(s) not as expected")
    raise SystemExit(bool(unexpected))


if __name__ == "__main__":
    main()
