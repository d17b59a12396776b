"""The comparison with peers: its audit finds losses and duplicates, its table the better peer, and it really runs."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.peers.audit import Counted, Watch, audit
from benchmarks.peers.clock import SetClock
from benchmarks.peers.peer import parquet_files
from benchmarks.peers.question import PEERS
from benchmarks.peers.records import CLIENT, topic_token
from benchmarks.peers.report import PeerReport, PeerResults, Steady, Struck, markdown, merged, ratios_of, settled
from benchmarks.peers.spark import committed_files
from benchmarks.peers.struck import ASKED_BY_PEERS
from tests.benchmarks.commands import ROOT
from tests.servers.java import jars
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.process import free_ports

TOPICS = 2


def write(folder: Path, topic: int, *numbers: int, text: bool = False) -> Path:
    """Write a file of a topic with these records; values are bytes, or text for some peers."""
    path = folder / f"p.{topic_token(topic)}" / f"{'-'.join(map(str, numbers))}.parquet"
    path.parent.mkdir(exist_ok=True)
    values = [f"{number:012d} {1000 + number:013d} filler".encode() for number in numbers]
    pq.write_table(pa.table({"value": pa.array(values).cast(pa.string() if text else pa.binary())}), path)
    return path


def test_audit_of_all_sent_records_is_exact(tmp_path: Path) -> None:
    files = [write(tmp_path, 0, 0, 2, 4), write(tmp_path, 1, 1, 3, text=True)]
    assert audit(files, 5, TOPICS) == Counted(sent=5, found=5, missing=0, duplicates=0, foreign=0)


def test_audit_finds_missing_duplicate_and_misplaced_records(tmp_path: Path) -> None:
    files = [write(tmp_path, 0, 0, 0), write(tmp_path, 0, 0, 2), write(tmp_path, 1, 1, 1, 4, 9)]
    assert audit(files, 6, TOPICS) == Counted(sent=6, found=8, missing=2, duplicates=3, foreign=2)
    (tmp_path / "torn.parquet").touch()
    assert audit([tmp_path / "torn.parquet"], 0, TOPICS).unreadable == 1
    assert audit([], 6, TOPICS) == Counted(sent=6, found=0, missing=6, duplicates=0, foreign=0)


def test_watch_sees_records_once_they_are_visible(tmp_path: Path) -> None:
    with Watch(lambda: parquet_files(tmp_path), 10, every_s=0.01) as watch:
        write(tmp_path / ".", 0, 0, 2)
        assert watch.wait(0, 1, quiet_s=10, timeout_s=10)
        assert not watch.wait(0, 3, quiet_s=0.2, timeout_s=10)
        write(tmp_path / ".", 1, 1)
        assert watch.wait(0, 3, quiet_s=10, timeout_s=10)
    assert len(watch.delays_s(0, 10)) == 3
    assert watch.delays_s(0, 3)[0] == pytest.approx(watch.last_seen_s(0, 1) - 1, abs=1)


CLOCK = """
import threading, time
def tell():
    began = time.monotonic()
    threading.Event().wait(0.2)
    print(round(time.time()), time.monotonic() - began >= 0.2, flush=True)
tell()
input()
tell()
"""


def test_set_clock_applies_to_its_processes_alone(tmp_path: Path) -> None:
    clock = SetClock(tmp_path / "clock")
    command = [sys.executable, "-c", CLOCK]
    with subprocess.Popen(
        command, env=os.environ | clock.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before, waited = process.stdout.readline().split()
        assert abs(float(before) - time.time()) < 5
        assert waited == "True"
        clock.set(-3600)
        process.stdin.write("\n")
        process.stdin.flush()
        after, waited = process.stdout.readline().split()
    assert abs(float(after) - (time.time() - 3600)) < 5
    assert waited == "True"


def test_hidden_files_are_not_counted(tmp_path: Path) -> None:
    file = write(tmp_path, 0, 0)
    for hidden in (tmp_path / "_spark_metadata", tmp_path / ".staging"):
        hidden.mkdir()
        (hidden / "x.parquet").touch()
    (tmp_path / ".part-0.parquet").touch()
    assert parquet_files(tmp_path) == {file}


def test_file_names_in_the_log_of_sparks_file_sink_are_read(tmp_path: Path) -> None:
    def batch(name: str, *files: str) -> None:
        entries = [json.dumps({"path": f"file:///out/{file}", "action": "add"}) for file in files]
        (tmp_path / name).write_text("\n".join(["v1", *entries]))

    assert committed_files(tmp_path / "none") == set()
    batch("0", "a%20b")
    batch("1", "c")
    assert committed_files(tmp_path) == {Path("/out/a b"), Path("/out/c")}
    batch("2.compact", "a%20b", "d")  # compaction drops entries that are too old
    batch("2", "z")
    batch("3", "e")
    (tmp_path / ".4.tmp").touch()
    assert committed_files(tmp_path) == {Path(f"/out/{name}") for name in ("a b", "d", "e")}


def a_steady(**changed: float | None) -> Steady:
    counted = Counted(sent=10, found=10, missing=0, duplicates=0, foreign=0)
    one = Steady(100, True, 5.0, 15.0, 1000.0, 50.0, 2.0, 4.0, 6.0, 700.0, 100, 4000, 20, counted)
    return msgspec.structs.replace(one, **changed)


def results_of(*peers: PeerReport) -> PeerResults:
    return PeerResults("peers", list(peers), {"cores": "2"}, {"python": "3"}, 1, {"topics": 100}, ["a note"])


OURS = PeerReport("ours", "distcommit", "measured", "run ours", {"a": "b"}, steady=[a_steady()])
OTHER = PeerReport(
    "other",
    "Other 1.0",
    "measured",
    "run other",
    {"c": "d"},
    steady=[a_steady(records_per_s=2000.0, complete=True)],
    struck=[Struck("killed", 3, 500, duplicates=7, missing=1, duplicates_in_folder=9, note="log ends")],
)


def test_table_shows_the_better_peer_and_its_losses() -> None:
    shown = markdown(
        results_of(OURS, OTHER, PeerReport("gone", "Gone", "not started", "run gone", {}, reason="no jar"))
    )
    rows = {line.split(" | ")[0]: line for line in shown.splitlines() if line.startswith("| o")}
    assert "| **2,000** |" in shown
    assert "| 1,000 |" in shown
    assert rows["| other"] == "| other | **7 / 1** (by the folder 9) of 500, 3 times | `run other` |"
    assert "- other, killed: log ends" in shown
    assert "- gone not started: no jar" in shown
    assert "run gone" not in shown


def test_busy_machine_is_reported() -> None:
    calm, busy = (msgspec.structs.replace(OTHER, load_1m=load) for load in (1.9, 2.1))
    assert "had a busy machine" not in markdown(results_of(OURS, calm))
    assert "| **2,000** |" in markdown(results_of(OURS, calm))
    assert "| 2,000 |" in markdown(results_of(OURS, busy))
    assert "| **50** |" in markdown(results_of(OURS, busy))
    assert "- other had a busy machine (load 2.1 before its start)" in markdown(results_of(OURS, busy))


def test_peer_with_missing_records_is_best_in_no_figure() -> None:
    failing = msgspec.structs.replace(OTHER, steady=[a_steady(records_per_s=9999.0, complete=False)])
    shown = markdown(results_of(OURS, failing))
    assert "| (9,999) |" in shown
    assert "| **1,000** |" in shown


def test_report_puts_results_of_the_same_question_into_one_table(tmp_path: Path) -> None:
    for peer in (OURS, OTHER):
        (tmp_path / f"{peer.peer}.json").write_bytes(msgspec.json.encode(results_of(peer)))
    files = [str(tmp_path / f"{peer.peer}.json") for peer in (OURS, OTHER)]
    done = CliRunner().invoke(app, ["report", *files, "--to", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "out" / "results.md").read_text()
    assert text.count("100 topics, nothing going wrong") == 1
    assert "`run ours`" in text
    assert "`run other`" in text
    joined = msgspec.json.decode((tmp_path / "out" / "peers.json").read_bytes(), type=PeerResults)
    assert [peer.peer for peer in joined.peers] == ["ours", "other"]
    assert joined.ratios["ours_over_other_records_per_s_100_topics"] == 0.5
    assert (tmp_path / "out" / "peers.png").stat().st_size > 10_000


def test_later_result_of_a_peer_replaces_an_earlier_one() -> None:
    killed = msgspec.structs.replace(OTHER, steady=[])
    calm = msgspec.structs.replace(OTHER, steady=[a_steady(records_per_s=3000.0)], struck=[])
    (both,) = merged([results_of(OURS, msgspec.structs.replace(OTHER)), results_of(killed), results_of(calm)])
    assert [peer.peer for peer in both.peers] == ["ours", "other"]
    assert both.peers[1].steady[0].records_per_s == 3000
    assert both.peers[1].struck == OTHER.struck
    other_question = results_of(OTHER)
    other_question.parameters["interval_s"] = 7
    assert len(merged([results_of(OURS), other_question])) == 2


def test_results_for_other_numbers_of_topics_are_added() -> None:
    struck = msgspec.structs.replace(OTHER, command="kill other", load_1m=9.0)
    calm = msgspec.structs.replace(
        OTHER, steady=[a_steady(topics=3000), a_steady(records_per_s=3000.0)], struck=[], load_1m=0.5
    )
    many = results_of(calm)
    many.parameters["topics"] = 3000
    (both,) = merged([results_of(struck), many])
    (other,) = both.peers
    assert [(steady.topics, steady.records_per_s) for steady in other.steady] == [(100, 3000), (3000, 1000)]
    assert (other.command, other.struck_by, other.load_1m) == ("run other", "kill other", 0.5)
    assert both.parameters["topics"] == 3000
    shown = markdown(both)
    assert shown.count("`run other`") == 2
    assert "of 500, 3 times | `kill other` |" in shown


def test_ratios_use_only_complete_peers_on_a_calm_machine() -> None:
    twice = [a_steady(records_per_s=2000.0, cpu_s_per_million_records=25.0, idle_cpu_s_per_minute=None)]
    calm, busy = (msgspec.structs.replace(OTHER, load_1m=load, steady=twice) for load in (0.5, 9.0))
    of_calm, of_busy = ratios_of(results_of(OURS, calm)), ratios_of(results_of(OURS, busy))
    assert of_calm["ours_over_other_records_per_s_100_topics"] == 0.5
    assert of_calm["ours_over_other_cpu_s_per_million_records_100_topics"] == 2
    assert "ours_over_other_idle_cpu_s_per_minute_100_topics" not in of_calm
    assert {name for name in of_calm if name not in of_busy} == {
        f"ours_over_other_{name}_100_topics"
        for name in ("start_s", "records_per_s", "freshness_p50_s", "freshness_p99_s")
    }
    half_shown = msgspec.structs.replace(calm, steady=[a_steady(complete=False)])
    assert ratios_of(results_of(OURS, half_shown)) == {}


def test_late_records_are_not_missing() -> None:
    stuck, lost = Struck("stuck", 1, 50, 0, 20, note="goes on"), Struck("lost", 1, 50, 0, 7)
    later = settled([lost, stuck, Struck("restarted", 1, 50, 3, -15), Struck("more", 1, 50, 0, -4)])
    assert [struck.missing for struck in later] == [7, 1, 0, 0]
    assert later[1].note.startswith("goes on; 15 shown only after it was started again (restarted); 4 shown only")
    assert later[2].duplicates == 3


def test_skipped_measurement_is_not_a_result() -> None:
    shown = markdown(
        results_of(msgspec.structs.replace(OTHER, struck=[Struck("clock set", 0, 0, 0, 0, note="no library")]))
    )
    assert "| other | - | `run other` |" in shown
    assert "- other, clock set: no library" in shown


@pytest.mark.parametrize(
    ("asks_for", "client", "loses"),
    [
        (1, "rdkafka", True),  # to fetch
        (26, "connect", True),  # to end a transaction
        (3, "rdkafka", False),  # for metadata
        (1, "broker-1-fetcher-0", False),
        (0, CLIENT, False),
    ],
)
def test_lost_answer_pattern_matches_only_requests_of_peers(asks_for: int, client: str, loses: bool) -> None:
    header = struct.pack(">hhih", asks_for, 12, 7, len(client)) + client.encode() + bytes(20)
    request = len(header).to_bytes(4) + header
    assert (re.search(ASKED_BY_PEERS, request, re.DOTALL) is not None) is loses
    assert re.search(ASKED_BY_PEERS, b"more of a batch " + request, re.DOTALL) is None


def test_proxy_outlives_a_stopped_server() -> None:
    (port,) = free_ports(1)
    with LossyProxy(port) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as refused:
            assert refused.recv(1) == b""
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client,
        ):
            server.settimeout(10)
            with server.accept()[0] as accepted:
                accepted.sendall(b"x")
                assert client.recv(1) == b"x"


def test_unknown_peer_is_refused() -> None:
    done = CliRunner().invoke(app, ["peers", "--peer", "oracle"])
    assert done.exit_code == 2
    assert all(name in done.output for name in PEERS)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("peer", ["ours", "spark_files"])
def test_peers(peer: str, tmp_path: Path) -> None:
    jars("kafka")
    command = [sys.executable, "-m", "benchmarks", "peers", "--peer", peer, "--topics", "4", "--records", "400"]
    small = ["--kills", "1" if peer == "ours" else "0", "--idle-s", "0", "--interval-s", "1"]
    done = subprocess.run(
        [*command, *small, "--folder", str(tmp_path), "--json"], capture_output=True, cwd=ROOT, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    (report,) = msgspec.json.decode(done.stdout, type=PeerResults).peers
    if report.status == "not started" and not report.steady:
        pytest.skip(report.reason)
    (steady,) = report.steady
    assert report.status == "measured", report.reason
    assert steady.complete
    assert (steady.counted.missing, steady.counted.duplicates, steady.counted.foreign) == (0, 0, 0)
    assert steady.freshness_p50_s is not None
    assert steady.freshness_p99_s is not None
    assert 0 < steady.freshness_p50_s <= steady.freshness_p99_s
    assert steady.files >= 4
    if peer == "ours":
        assert {(struck.missing, struck.duplicates) for struck in report.struck} == {(0, 0)}
        assert len(report.struck) == 5
        assert {struck.times for struck in report.struck if not struck.note} <= {1, 2}
