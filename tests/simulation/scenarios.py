"""Small workloads for the explorers: enough to reach every rule of the protocol, small enough to try every crash."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distcommit.core.errors import SourceUnavailableError
from distcommit.core.interfaces.clock import Clock
from distcommit.core.records.freshness_targets import Freshness
from distcommit.core.records.run_reasons import MAX_REASONS
from distcommit.engine.driver.run import RunResult
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.models.model_flow import flow_of_formats, model_flow, without_right
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.two_disks import STORE_DISK, TwoDisks
from tests.simulation.world import FILE_A_RECORD, World


@dataclass(frozen=True, slots=True)
class Scenario:
    """A history: `before` are undisturbed runs, `disturbed` is the run that crashes, `after` the source of the
    recovering run."""

    name: str
    world: World
    before: tuple[ModelSource, ...]
    disturbed: ModelSource
    after: ModelSource

    def run(self, calls: PosixCalls, source: ModelSource, clock: Clock | None = None) -> RunResult | None:
        """Run the job once; return None if the run reports that its source was missing."""
        try:
            return self.world.run(calls, source, clock)
        except SourceUnavailableError:
            return None

    def machine(self) -> SimulatedPosix:
        """Return a machine after the undisturbed runs, all of it durable."""
        calls = TwoDisks() if self.world.store_apart else SimulatedPosix()
        calls.mkdir("/job")
        if self.world.store_apart:
            calls.mkdir(STORE_DISK)
        for source in self.before:
            self.world.run(calls, source)
        for disk in ("/", STORE_DISK):
            calls.syncfs(disk)
        return calls


def _source(**partitions: dict[str, int]) -> ModelSource:
    return ModelSource({urn: ModelDataset(counts) for urn, counts in partitions.items()})


_ONE = _source(a={"0": 3})
_ONE_MORE = _source(a={"0": 5})
_TWO = _source(a={"0": 2, "1": 2}, b={"0": 1})
_TWO_MORE = _source(a={"0": 3, "1": 4}, b={"0": 1})
_THREE = _source(a={"0": 1, "1": 1, "2": 1, "3": 1}, b={"0": 2}, c={"0": 1})
_BOTH = _source(a={"0": 1}, c={"0": 1})
_ALL_THREE = _source(a={"0": 2}, b={"0": 1}, c={"0": 3})
_FAILING = ModelSource(
    {
        "a": ModelDataset({"0": 4, "1": 2}, units=2, fails=frozenset({"1"})),
        "b": ModelDataset({"0": 2}),
    }
)
_SHORT = ModelSource({"a": ModelDataset({"0": 6}, units=2, short=1), "b": ModelDataset({"0": 2})})
_DOWN = ModelSource(_TWO_MORE.datasets, refuses="plan")
_CLOSED = ModelSource(_TWO_MORE.datasets, refuses="open")
_LEAKY = ModelSource(_ONE.datasets, refuses="close")
_CARELESS = ModelSource({**_ONE_MORE.datasets, "b": ModelDataset({"0": 1}), "none": ModelDataset({})}, careless=True)
_PROBLEMS = ModelSource(
    {
        **{f"no topic {number}": ModelDataset({"0": 1}, problem="no such topic") for number in range(MAX_REASONS)},
        "a": ModelDataset({"0": 1}),
        "b": ModelDataset({"0": 1}, problem="no such topic"),
        "": ModelDataset({"0": 1}),
    }
)
_EXPIRED = ModelSource({"a": ModelDataset({"0": 7}, expired={"0": 5}), "c": ModelDataset({"0": 2}, short=1)})
_EXPIRED_READ = ModelSource({"a": ModelDataset({"0": 7}, expired={"0": 5}), "c": ModelDataset({"0": 2})})
_HOLES = ModelSource(
    {"a": ModelDataset({"0": 6, "1": 2}, units=3, holes={"0": frozenset({0, 1, 3, 5}), "1": frozenset({1})})}
)
_MORE_HOLES = ModelSource(
    {"a": ModelDataset({"0": 8, "1": 3}, holes={"0": frozenset({0, 1, 3, 5, 6, 7}), "1": frozenset({1})})}
)
_BEYOND_A_GAP = ModelSource({"a": ModelDataset({"0": 2}, units=2, bad={"0": 0})})
_UNITS = ModelSource({"a": ModelDataset({"0": 7}, units=2), "b": ModelDataset({"0": 2})})
_TWO_FILES = _source(a={"0": 3}, b={"0": 2})
_MENDED = _source(a={"0": 4, "1": 2}, b={"0": 2})

_STUMBLES = ModelSource({"a": ModelDataset({"0": 4, "1": 2}, units=2, bad={"0": 3}), "b": ModelDataset({"0": 2})})
_STUMBLES_EARLY = ModelSource({"a": ModelDataset({"0": 4, "1": 2}, bad={"0": 1, "1": 1}), "b": ModelDataset({"0": 2})})
_PARTIAL = World(policy=CommitPolicy.PARTIAL)

_RESUMED = World(policy=CommitPolicy.SUCCESSFUL, resume_across_runs=True)

_FORKED = _source(a={"0": 3}, b={"0": 1})
_FORKED_MORE = _source(a={"0": 6, "1": 2}, b={"0": 2})
_FORKED_UNITS = ModelSource({"a": ModelDataset({"0": 8}, units=3), "b": ModelDataset({"0": 4}, units=2)})
_FORKED_FAILING = ModelSource({"a": ModelDataset({"0": 6}, units=2), "b": ModelDataset({"0": 2}, fails=frozenset("0"))})

_TARGETS = Freshness(60, (("b", 5.0),), records_per_run=40_000, slice_s=1)
_AHEAD = _source(a={"0": 9, "1": 2}, b={"0": 3}, c={"0": 1}).datasets
_BEHIND = ModelSource(_AHEAD, weight=10_000, behind_s={"a": 100.0, "b": 30.0})
_UNHEARD = ModelSource(_AHEAD, weight=10_000, refuses="lags")

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("first-run", World(), (), _ONE, _ONE),
        Scenario("first-run-two", World(), (), _TWO, _TWO),
        Scenario("first-run-three", World(buckets=2, partitions=2), (), _THREE, _THREE),
        Scenario("second-run", World(), (_ONE,), _ONE_MORE, _ONE_MORE),
        Scenario("second-run-two", World(buckets=2), (_TWO,), _TWO_MORE, _TWO_MORE),
        Scenario("one-commit", World(buckets=3, min_interval_s=1), (_BOTH,), _ALL_THREE, _ALL_THREE),
        Scenario("hdfs", World(buckets=2, on_hdfs=True), (), _TWO, _TWO_MORE),
        Scenario(
            "hdfs-into-folders",
            World(files=FILE_A_RECORD, on_hdfs=True),
            (_source(a={"0": 1}, b={"0": 1}),),
            _TWO_FILES,
            _TWO_FILES,
        ),
        Scenario("hdfs-forks", World(flow=model_flow, on_hdfs=True), (_FORKED,), _FORKED_MORE, _FORKED_MORE),
        Scenario("store-apart", World(buckets=2, store_apart=True), (_TWO,), _TWO_MORE, _TWO_MORE),
        Scenario("store-apart-first", World(buckets=2, partitions=2, store_apart=True), (), _THREE, _THREE),
        Scenario("store-apart-job-level", World(job_level=True, store_apart=True), (_TWO,), _TWO_MORE, _TWO_MORE),
        Scenario("store-apart-hdfs", World(buckets=2, store_apart=True, on_hdfs=True), (_TWO,), _TWO_MORE, _TWO_MORE),
        Scenario("repeated", World(buckets=2, partitions=2, repeats=True), (_TWO,), _TWO_MORE, _TWO_MORE),
        Scenario(
            "repeated-job-level",
            World(buckets=2, job_level=True, task_attempts=2, repeats=True),
            (_source(a={"0": 1}),),
            _TWO_MORE,
            _TWO_MORE,
        ),
        Scenario("tries-again", World(task_attempts=2), (_ONE,), _UNITS, _UNITS),
        Scenario("several-files", World(files=FILE_A_RECORD), (_source(a={"0": 1}),), _TWO_FILES, _TWO_FILES),
        Scenario("more-after-the-crash", World(), (_TWO,), _TWO_MORE, _source(a={"0": 3, "1": 6}, b={"0": 2})),
        Scenario("partial-success", World(policy=CommitPolicy.SUCCESSFUL), (), _FAILING, _MENDED),
        Scenario("gap", World(policy=CommitPolicy.SUCCESSFUL), (), _BEYOND_A_GAP, _source(a={"0": 2})),
        Scenario("failed-dataset", World(), (), _FAILING, _MENDED),
        Scenario("short-reads", World(), (), _SHORT, _source(a={"0": 6}, b={"0": 2})),
        Scenario("job-level", World(buckets=2, job_level=True), (_TWO,), _TWO_MORE, _TWO_MORE),
        Scenario("job-level-failure", World(buckets=2, job_level=True), (), _FAILING, _MENDED),
        Scenario("source-down", World(), (_TWO,), _DOWN, _TWO_MORE),
        Scenario("source-closed", World(), (_TWO,), _CLOSED, _TWO_MORE),
        Scenario("ingest-lost", World(watched=True, max_seconds=60, loses_ingest=True), (), _LEAKY, _ONE),
        Scenario("careless-source", World(), (_ONE,), _CARELESS, _source(a={"0": 5}, b={"0": 1})),
        Scenario("problems", World(), (), _PROBLEMS, _source(a={"0": 1}, b={"0": 1})),
        Scenario("expired", World(job_level=True), (_source(a={"0": 3}, c={"0": 1}),), _EXPIRED, _EXPIRED_READ),
        Scenario("holes", World(), (), _HOLES, _MORE_HOLES),
        Scenario("at-least-once", World(at_least_once=True), (_TWO,), _TWO_MORE, _TWO_MORE),
        Scenario("at-least-once-first", World(buckets=2, partitions=2, at_least_once=True), (), _THREE, _THREE),
        Scenario(
            "at-least-once-one-commit",
            World(buckets=3, min_interval_s=1, at_least_once=True),
            (),
            _ALL_THREE,
            _ALL_THREE,
        ),
        Scenario("at-least-once-failed", World(at_least_once=True), (), _FAILING, _MENDED),
        Scenario("forks", World(flow=model_flow), (), _FORKED, _FORKED),
        Scenario("forks-second-run", World(flow=model_flow, buckets=2), (_FORKED,), _FORKED_MORE, _FORKED_MORE),
        Scenario(
            "forks-one-commit", World(flow=model_flow, min_interval_s=1), (_FORKED,), _FORKED_UNITS, _FORKED_UNITS
        ),
        Scenario("forks-at-least-once", World(flow=model_flow, at_least_once=True), (), _FORKED, _FORKED_MORE),
        Scenario("forks-job-level", World(flow=model_flow, job_level=True), (), _FORKED_FAILING, _FORKED_MORE),
        Scenario("forks-optional", World(flow=without_right), (), _FORKED, _FORKED_MORE),
        Scenario(
            "forks-optional-units", World(flow=without_right, task_attempts=2), (_FORKED,), _FORKED_UNITS, _FORKED_UNITS
        ),
        Scenario("formats", World(flow=flow_of_formats), (), _FORKED, _FORKED_MORE),
        Scenario("formats-second-run", World(flow=flow_of_formats, buckets=2), (_FORKED,), _FORKED_MORE, _FORKED_MORE),
        Scenario("freshness", World(freshness=_TARGETS), (_ONE,), _BEHIND, _BEHIND),
        Scenario("freshness-two-tasks", World(buckets=2, partitions=2, freshness=_TARGETS), (_TWO,), _BEHIND, _UNHEARD),
        Scenario("partial", _PARTIAL, (), _STUMBLES, _MENDED),
        Scenario("partial-attempts", replace(_PARTIAL, task_attempts=2), (_ONE,), _STUMBLES_EARLY, _MENDED),
        Scenario("partial-forks", replace(_PARTIAL, flow=model_flow), (), _STUMBLES, _MENDED),
        Scenario("partial-at-least-once", replace(_PARTIAL, at_least_once=True), (), _STUMBLES_EARLY, _MENDED),
        Scenario("resumed", _RESUMED, (_ONE,), _UNITS, _UNITS),
        Scenario("resumed-forks", replace(_RESUMED, flow=model_flow), (_FORKED,), _FORKED_UNITS, _FORKED_UNITS),
        Scenario("resumed-partial", replace(_RESUMED, policy=CommitPolicy.PARTIAL), (), _STUMBLES, _MENDED),
        Scenario(
            "checkpoint",
            World(),
            tuple(_source(a={"0": n}, b={"0": n}) for n in range(1, 9)),
            _source(a={"0": 9}, b={"0": 9}),
            _source(a={"0": 9}, b={"0": 10}),
        ),
    )
}
