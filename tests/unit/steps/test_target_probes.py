"""Probes of sinks: each sink of a batch is probed, and once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from distcommit.core.interfaces.committer import CommitterContext
from distcommit.core.support.io_batching import BatchedWork, run_batched
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.steps.target_probes import SinkProbe

CONTEXT = CommitterContext(LocalFileSystem(), "/staging", "/output", "store")


@dataclass
class ProbedSink:
    """A sink whose probe fails if it is down, and which counts its probes."""

    name: str
    is_down: bool = False
    probes: list[str] = field(default_factory=list)

    def open_committer(self, context: CommitterContext) -> ProbedSink:
        return self

    def probe(self) -> None:
        self.probes.append(self.name)
        if self.is_down:
            raise OSError("connection refused")

    def close(self) -> None: ...

    def release(self) -> None: ...


def probing(sink: ProbedSink) -> BatchedWork[str]:
    answer: str = yield SinkProbe(sink, CONTEXT)  # type: ignore[arg-type]
    return answer


@pytest.mark.parametrize("order", ["up down", "down up", "up down up down"])
def test_sinks_of_one_batch_are_probed_once_each_and_answer_for_themselves(order: str) -> None:
    sinks = {name: ProbedSink(name, is_down=name == "down") for name in ("up", "down")}
    answers = run_batched([probing(sinks[name]) for name in order.split()])
    assert [bool(answer) for answer in answers] == [name == "down" for name in order.split()]
    assert [sink.probes for sink in sinks.values()] == [["up"], ["down"]]
