"""One peer under kills, with an audit after each kind of fault."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.peers.audit import Counted, Watch, audit
from benchmarks.peers.clock import SetClock
from benchmarks.peers.peer import Peer, Place, Running
from benchmarks.peers.records import CLIENT
from benchmarks.peers.report import Struck
from benchmarks.peers.steady import TIMEOUT_S, NotStartedError, end_of
from benchmarks.runner import Tell
from tests.servers.kafka import KafkaServer
from tests.servers.process import ServerUnavailableError

KILLED = "killed in the middle of a commit"
_CLOCK_SET, _HOUR_S = "clock set back by an hour, and right again", 3600
_LEAST_PATIENCE_S, _STARTS, _AWAY_S = 60.0, 3, 3.0
_KINDS = rb"\x00\x01\x08\x18\x19\x1a\x1c"
ASKED_BY_PEERS = rb"\A.{4}\x00[%s].{8}(?!broker-|%s)" % (_KINDS, CLIENT.encode())
"""Beginning of a peer's request to a broker.

It has the length, the API key (to produce, to fetch, to commit offsets, to add to a transaction or to end one),
version, number, and the client's name, which is not another broker's, nor the sender's of records.
"""
_SECOND_BROKER = 2


@dataclass
class Trial:
    """A peer that goes through one kind of fault after another on the same topics; each audit reports the changes
    since the previous one."""

    peer: Peer
    place: Place
    kafka: KafkaServer
    watch: Watch
    rng: random.Random
    batch: int
    patience_s: float
    tell: Tell
    found: list[Struck]
    _before: Counted = field(default_factory=lambda: Counted(0, 0, 0, 0, 0))
    _before_in_folder: Counted = field(default_factory=lambda: Counted(0, 0, 0, 0, 0))

    def killed(self, times: int, *, coordinator: bool) -> None:
        """Kill it as soon as a commit has begun, or up to 0.3 s later, and start it again, that many times.

        Args:
            times: how often.
            coordinator: only that process is killed, and the others have to continue by themselves first.
        """
        begin, struck = self.place.stream.sent, 0
        for _ in range(times):
            with self._started() as running:
                observed = self.peer.commit_begins(self.place)
                self.place.stream.send(self.batch)
                deadline_s = time.monotonic() + self.patience_s
                while self.peer.commit_begins(self.place) == observed and time.monotonic() < deadline_s:
                    time.sleep(0.005)
                time.sleep(self.rng.random() * 0.3 if self.rng.random() < 0.5 else 0)
                if not coordinator:
                    running.kill()
                    struck += 1
                elif leader := self.peer.coordinator(self.place):
                    os.kill(leader, signal.SIGKILL)
                    struck += 1
                    self._settle(begin, running)
        with self._started() as running:
            note = self._settle(begin, running)
        what = "coordinator alone killed in the middle of a commit" if coordinator else KILLED
        self._note(what, struck, begin, note)

    def broker_restarted(self) -> None:
        """Kill the broker that leads half of the topics while records arrive, and restart it three seconds later."""
        begin = self.place.stream.sent
        with self._started() as running:
            self.place.stream.send(self.batch)
            self.kafka.kill_broker(_SECOND_BROKER)
            time.sleep(_AWAY_S)
            self.kafka.start_broker(_SECOND_BROKER)
            self.place.stream.send(self.batch)
            note = self._settle(begin, running)
        self._note("broker restarted", 1, begin, note)

    def answers_lost(self, times: int) -> None:
        """Lose that many answers of a broker to its requests, and of the server that its commits use, if any.

        The server has executed the request, and the connection ends.
        """
        begin, lost = self.place.stream.sent, 0
        ways = [(self.place.broker_proxy, ASKED_BY_PEERS), *filter(None, [self.peer.asked()])]
        with self._started() as running:
            for _ in range(times):
                for proxy, request in ways:
                    if proxy is not None:
                        proxy.lose_answer_to(request)
                        self.place.stream.send(self.batch)
                        lost += proxy.wait_for_loss(self.patience_s)
            note = self._settle(begin, running)
        self._note("answers of the network lost", lost, begin, note)

    def clock_set(self) -> None:
        """Set the clock of its processes, not of brokers, back by an hour while it runs, and restart it; then
        correct the clock while it runs, and restart it."""
        begin, note = self.place.stream.sent, ""
        try:
            clock = SetClock(self.place.root / "clock")
        except ServerUnavailableError as error:
            self._note(_CLOCK_SET, 0, begin, f"not done: {error}")
            return
        for ahead_s in (-_HOUR_S, 0):
            with self._started(clock.environment) as running:
                self.place.stream.send(self.batch)
                note += self._settle(begin, running)
                clock.set(ahead_s)
                self.place.stream.send(self.batch)
                note += self._settle(begin, running)
        with self._started() as running:
            self.place.stream.send(self.batch)
            note += self._settle(begin, running)
        self._note(_CLOCK_SET, 2, begin, note)

    def older_checkpoint(self) -> None:
        """Restore its checkpoint of a commit ago, as from a backup, without the output."""
        begin = self.place.stream.sent
        copy = self.peer.keep(self.place)
        with self._started() as running:
            self.place.stream.send(self.batch)
            note = self._settle(begin, running)
        self.peer.put_back(self.place, copy)
        middle = self.place.stream.sent
        self.place.stream.send(self.batch)
        with self._started() as running:
            gone_on = self._settle(middle, running)
        if gone_on and (command := self.peer.refused(self.place)):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            named = " ".join(["distcommit", *command[1:2]])
            gone_on = f"refused to resume until `{named}` (exit code {done.returncode}) "
            with self._started() as running:
                gone_on += self._settle(middle, running)
        self._note("restarted from an older checkpoint", 1, begin, note + gone_on)

    def _started(self, environment: Mapping[str, str] | None = None) -> Running:
        return Running(self.peer, self.place, environment)

    def _settle(self, begin: int, running: Running) -> str:
        """Wait until all records from `begin` on are visible, or it is given up; return the remark for the report.

        A peer that ends by itself is started again, as by a supervisor.
        """
        ended, reason, observed, changed_s = 0, "", -1, time.monotonic()
        while not self.watch.wait(begin, self.place.stream.sent, quiet_s=2, timeout_s=2):
            if not running.alive():
                reason = end_of(running.log, 2)[-300:]
                if ended == _STARTS:
                    return f"ended by itself, {ended + 1} times: {reason} "
                ended += 1
                running.start_again()
            if (now := self.watch.seen(begin, self.place.stream.sent)) != observed:
                observed, changed_s = now, time.monotonic()
            if time.monotonic() > changed_s + self.patience_s:
                return f"goes on, and shows no more of what is missing for {self.patience_s:.0f} s "
        return f"ended by itself, and was started again, {ended} times: {reason} " if ended else ""

    def _note(self, what: str, times: int, begin: int, note: str) -> None:
        time.sleep(0.5)
        stream, peer = self.place.stream, self.peer
        now = audit(peer.visible(self.place), stream.sent, stream.topics)
        in_folder = audit(peer.lying(self.place) if peer.reads_folders else (), stream.sent, stream.topics)
        one = Struck(
            what,
            times,
            stream.sent - begin,
            now.duplicates - self._before.duplicates,
            now.missing - self._before.missing,
            in_folder.duplicates - self._before_in_folder.duplicates if peer.reads_folders else -1,
            in_folder.unreadable - self._before_in_folder.unreadable,
            note.strip(),
        )
        self._before, self._before_in_folder = now, in_folder
        self.found.append(one)
        self.tell(f"{peer.name}: {one}")


def struck(
    peer: Peer,
    place: Place,
    kafka: KafkaServer,
    *,
    kills: int,
    batch: int,
    seed: int,
    tell: Tell,
    found: list[Struck],
) -> None:
    """Apply all kinds of faults, one after the other.

    Args:
        peer: the peer.
        place: an empty folder, and topics without records.
        kafka: two brokers, of which the second is restarted, and loses answers.
        kills: how often it is killed in the middle of a commit, and answers of each kind are lost.
        batch: records that are sent for each.
        seed: of the kills' moments.
        tell: receives each finding.
        found: receives the findings one by one, so that they stay if the peer fails later.
    """
    most = batch * (4 * kills + 13) + place.stream.topics
    with peer.prepare(place), Watch(lambda: peer.visible(place), most) as watch:
        place.stream.send(place.stream.topics)
        began = time.monotonic()
        with Running(peer, place) as running:
            if not watch.wait(0, place.stream.topics, TIMEOUT_S, TIMEOUT_S):
                raise NotStartedError(end_of(running.log))
        patience_s = _LEAST_PATIENCE_S + _STARTS * (time.monotonic() - began)  # a start depends on the machine
        trial = Trial(peer, place, kafka, watch, random.Random(seed), batch, patience_s, tell, found)
        trial.killed(kills, coordinator=False)
        if not peer.one_process:
            trial.killed(kills, coordinator=True)
        trial.broker_restarted()
        trial.answers_lost(kills)
        trial.clock_set()
        trial.older_checkpoint()
