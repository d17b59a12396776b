"""The time from produce to visible is measured on records that are all published once, also if the service is
killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks.questions.freshness import Trickled, calls_of, freshness, topic_name
from benchmarks.workloads.trickle import Trickle, cpu_seconds
from distcommit.app.demo.broker import MockBroker


@pytest.mark.long
@pytest.mark.slow
def test_freshness_with_a_kill(tmp_path: Path) -> None:
    topics = {topic_name(number): 1 for number in range(8)}
    asked = Trickled(len(topics), rate=20, seconds=8, interval_s=1, buckets=2, kills=1, quiet_s=5, seed=1)
    with MockBroker.start(topics) as broker:
        results = freshness(asked, folder=tmp_path, tell=lambda text: None, brokers=broker.bootstrap_servers)
    ratios = results.ratios
    assert 0 < ratios["produce_to_visible_p50_s"] <= ratios["produce_to_visible_p99_s"]
    assert ratios["quiet_cpu_s_per_hour"] > 0
    (sample,) = results.samples
    assert sample.parts["records"] == pytest.approx(160, abs=20)
    assert sample.parts["kills"] == 1
    if not results.skipped:
        assert ratios["quiet_file_calls_per_hour"] > 0
        assert ratios["quiet_broker_requests_per_hour"] > 0


def test_record_counts_once_it_is_below_the_visible_position() -> None:
    with MockBroker.start({"a": 1}) as broker:
        trickle = Trickle(broker.bootstrap_servers, ["a"], rate=1, seed=1)
        trickle.send(["a", "a", "a"])
        time.sleep(0.05)
        trickle.see("a", 2)
        trickle.see("other", 9)
        assert trickle.waiting == 1
        assert len(trickle.delays) == 2
        assert min(trickle.delays) >= 0.05
        assert not trickle.errors


def test_calls_of_a_trace_are_on_files_below_the_folder_or_to_the_broker() -> None:
    trace = """
7 openat(AT_FDCWD</work>, "/data/store/log/1.seg", O_RDONLY) = 3</data/store/log/1.seg>
7 openat(AT_FDCWD</work>, "/etc/x", O_RDONLY) = 3</etc/x>
8 sendmsg(12<TCP:[127.0.0.1:5000->127.0.0.1:9092]>, {msg_name=NULL}, 0) = 40
8 sendto(13<TCP:[127.0.0.1:5000->127.0.0.1:4040]>, ""..., 5, 0, NULL, 0) = 5
9 fsync(4</data/store/log> <unfinished ...>
9 <... fsync resumed>) = 0 </data/store/log>
"""
    assert calls_of(trace, "/data", "127.0.0.1:9092") == (2, 1)


def test_processor_time_counts_live_processes() -> None:
    before = cpu_seconds([os.getpid(), 1 << 30])
    began = time.process_time()
    while time.process_time() - began < 0.1:
        pass
    assert cpu_seconds([os.getpid()]) - before >= 0.05
