"""A Kafka broker for the demo and the tests: librdkafka's mock cluster in its own process.

The mock has no CreateTopics request, and by its configuration it creates only topics of 4 partitions. The process
therefore calls its C functions (``rdkafka_mock.h``), which take a partition count.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import confluent_kafka.cimpl

START_TIMEOUT_S = 20.0
"""Seconds the child process may take to report its address."""

REPLY_TIMEOUT_S = 60.0
"""Seconds the child process may take to answer one request for topics."""

STOP_TIMEOUT_S = 5.0
"""Seconds the child process may take to end before it is killed."""

_PACKAGE_ROOT = Path(__file__).resolve().parents[3]
_BROKER_COUNT = 1
_PRODUCER_TYPE = 0  # rd_kafka_type_t: RD_KAFKA_PRODUCER
_ERROR_TEXT_BYTES = 512
_CREATE_PAUSE_S = 0.0002
"""Seconds between topics. The mock can miss a request that follows on the one before it at once,
and then sees it only up to 1 s later."""


class BrokerError(RuntimeError):
    """The mock broker did not start, has ended, or refused a request."""


class MockBroker:
    """A mock Kafka cluster of one broker, in a process of its own on the loopback interface.

    The process leads its own session, so that a signal to the process group of a job does not reach it. It ends at end
    of file on its standard input, even if its parent is killed. It has all records in memory, at most 5 MB and 100,000
    records a partition; beyond that it drops the oldest batches.

    Attributes:
        bootstrap_servers: ``host:port`` for the ``bootstrap.servers`` of any Kafka client.
    """

    def __init__(self, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
        """Use `start` instead."""
        self._process = process
        self._stderr = stderr
        self._unread = b""
        self.bootstrap_servers = ""

    @classmethod
    def start(cls, topics: Mapping[str, int] | None = None) -> MockBroker:
        """Start a broker and wait until it answers. Close it, or use it as a context manager.

        Args:
            topics: partition count by topic name, for topics to create at once. Any other topic gets 4 partitions when
                a client asks for it.

        Raises:
            BrokerError: if the process did not start, or refused one of the topics.
        """
        search_path = [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search_path))}
        with contextlib.ExitStack() as undo:
            stderr = undo.enter_context(tempfile.TemporaryFile())
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "distcommit.app.demo.broker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    bufsize=0,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise BrokerError(f"the mock broker's process did not start: {error}") from error
            broker = cls(process, stderr)
            undo.callback(broker.close)
            broker.bootstrap_servers = str(broker._reply(START_TIMEOUT_S)["bootstrap_servers"])
            broker.create_topics(topics or {})
            undo.pop_all()
        return broker

    @property
    def pid(self) -> int:
        """Process id of the broker, which is also its process group and session id."""
        return self._process.pid

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics that do not exist yet.

        Args:
            topics: partition count, at least 1, by topic name.

        Raises:
            BrokerError: if the broker has ended, or a topic exists or has a bad name or count. The topics before it
                have been created.
        """
        if not topics:
            return
        request = json.dumps(dict(topics)).encode() + b"\n"
        stdin = self._process.stdin
        try:
            while stdin is not None and request:
                request = request[stdin.write(request) or 0 :]
        except (OSError, ValueError) as error:
            raise BrokerError(f"the mock broker has ended: {self._last_words()}") from error
        self._reply(REPLY_TIMEOUT_S)

    def close(self) -> None:
        """End the process and drop its records. A second call does nothing."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def __enter__(self) -> MockBroker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _reply(self, timeout_s: float) -> dict[str, Any]:
        """Return the child's next line, a JSON object. Raises BrokerError if the object is an error."""
        stdout = self._process.stdout
        if stdout is None or stdout.closed:
            raise BrokerError("the mock broker is closed")
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            remaining_s = max(0.0, deadline - time.monotonic())
            if not select.select([stdout], [], [], remaining_s)[0]:
                raise BrokerError(f"the mock broker did not answer within {timeout_s:g} s")
            chunk = stdout.read(65536)
            if not chunk:
                raise BrokerError(f"the mock broker has ended: {self._last_words()}")
            self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise BrokerError(f"the mock broker reports: {reply['error']}")
        return reply

    def _last_words(self) -> str:
        """Return the last line of the child's standard error, or its exit status if there is none."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        lines: list[bytes] = []
        if not self._stderr.closed:
            self._stderr.seek(0)
            lines = self._stderr.read().splitlines()
        if lines:
            return lines[-1].decode(errors="replace")
        return f"exit status {self._process.returncode}"


class _MockCluster:
    """librdkafka's mock cluster in this process. Its threads end with the process."""

    def __init__(self, broker_count: int) -> None:
        # Opening the extension module finds the functions of the librdkafka it links to.
        library = ctypes.CDLL(confluent_kafka.cimpl.__file__)
        pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        prototypes: dict[str, tuple[Any, list[Any]]] = {
            "rd_kafka_conf_new": (pointer, []),
            "rd_kafka_new": (pointer, [integer, pointer, text, ctypes.c_size_t]),
            "rd_kafka_mock_cluster_new": (pointer, [pointer, integer]),
            "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
            "rd_kafka_mock_topic_create": (integer, [pointer, text, integer, integer]),
            "rd_kafka_err2str": (text, [integer]),
        }
        try:
            for name, (result, arguments) in prototypes.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except AttributeError as error:
            raise BrokerError(f"this librdkafka has no mock cluster: {error}") from error
        message = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        conf = library.rd_kafka_conf_new()
        client = library.rd_kafka_new(_PRODUCER_TYPE, conf, message, len(message))
        if not client:
            raise BrokerError(f"librdkafka made no client: {message.value.decode()}")
        self._library = library
        self._cluster = library.rd_kafka_mock_cluster_new(client, broker_count)
        if not self._cluster:
            raise BrokerError("librdkafka made no mock cluster")

    @property
    def bootstrap_servers(self) -> str:
        address: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        return address.decode()

    def create_topic(self, name: str, partitions: int) -> None:
        """Create one topic. Raises BrokerError if it exists, or its name or partition count is invalid."""
        if not name or partitions < 1:
            raise BrokerError(f"topic {name!r} cannot have {partitions} partitions")
        create = self._library.rd_kafka_mock_topic_create
        code = create(self._cluster, name.encode(), partitions, _BROKER_COUNT)
        if code:
            reason = self._library.rd_kafka_err2str(code).decode()
            raise BrokerError(f"topic {name!r} was not created: {reason}")
        time.sleep(_CREATE_PAUSE_S)


def _answers(requests: IO[str]) -> Iterator[dict[str, Any]]:
    """Run a cluster: yield its address, then one answer for each line of `requests`."""
    try:
        cluster = _MockCluster(_BROKER_COUNT)
    except BrokerError as error:
        yield {"error": str(error)}
        return
    yield {"bootstrap_servers": cluster.bootstrap_servers}
    for line in requests:
        topics: dict[str, int] = json.loads(line)
        try:
            for name, partitions in topics.items():
                cluster.create_topic(name, partitions)
        except BrokerError as error:
            yield {"error": str(error)}
        else:
            yield {"created": len(topics)}


def main() -> None:
    """Serve until end of file on standard input, with one JSON object per line each way."""
    try:
        for answer in _answers(sys.stdin):
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    os._exit(0)  # The mock's threads need no orderly end, and its records are in memory only.


if __name__ == "__main__":
    main()
