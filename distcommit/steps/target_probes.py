"""Probes of a target after a failed commit. A failed probe proves that a target is down; a failed sequence does not."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence

from distcommit.core.errors import DistcommitError, error_text, plain_text, reason_text, split_remedy
from distcommit.core.interfaces.commit_step import StepContext
from distcommit.core.interfaces.committer import CommitterContext, OpensCommitter
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.support.io_batching import IoRequest
from distcommit.protocol.paths.temporary_and_probes import ANY_OUTPUT_PROBE, output_probe_name
from distcommit.steps.sink_step import open_committer

PROBE_BYTES = 64 * 1024
"""Size of the probe file, enough to fail on a full disk or quota, even where renames work."""


class OutputProbe(IoRequest):
    """I/O request that probes the output: it publishes and deletes a file, once for a batch of requests.

    The answer is the error, or empty. If the process dies, a file with the bucket in its name remains.
    """

    def __init__(self, context: StepContext, bucket: int) -> None:
        self._context, self._bucket = context, bucket

    @classmethod
    def answer_batch(cls, requests: Sequence[OutputProbe]) -> list[str]:
        return [requests[0]._answer()] * len(requests)

    def _answer(self) -> str:
        fs, staging, output = self._context.fs, self._context.staging_root, self._context.output_root
        name = output_probe_name(self._bucket, uuid.uuid4().hex)
        try:
            _publish(fs, f"{staging}/{name}", f"{output}/{name}")
            fs.delete(f"{output}/{name}")
            for root in (output, staging):  # a power loss must not bring the file back
                fs.sync([root], root)
        except (OSError, DistcommitError) as error:
            for root in (staging, output):
                with contextlib.suppress(OSError, DistcommitError):
                    fs.delete(f"{root}/{name}")
            actual = split_remedy(error_text(error))[0].replace(name, ANY_OUTPUT_PROBE)
            return plain_text(
                f"a file of {PROBE_BYTES // 1024} KB cannot be written in {staging} and renamed into {output}; found"
                f" {actual}. To do: repair the storage (space, quota, permissions, connection) and run again",
                1000,
            )
        return ""


def _publish(fs: FileSystem, staged: str, target: str) -> None:
    writer = fs.create(staged, target)
    written = False
    try:
        writer.write(bytes(PROBE_BYTES))
        written = True
    finally:
        writer.close_file(sync=written)
    fs.rename(staged, target)


class SinkProbe(IoRequest):
    """I/O request that probes a sink by its committer, once for a batch. The answer is the error, or empty."""

    def __init__(self, sink: OpensCommitter, context: CommitterContext) -> None:
        self._sink, self._context = sink, context

    @classmethod
    def answer_batch(cls, requests: Sequence[SinkProbe]) -> list[str]:
        probes = {request._sink.name: request for request in requests}
        answers = {name: probe._answer() for name, probe in probes.items()}
        return [answers[request._sink.name] for request in requests]

    def _answer(self) -> str:
        try:
            with open_committer(self._sink, self._context) as committer:
                committer.probe()
        except Exception as error:  # noqa: BLE001 - any error of a custom sink is an outage
            text = error_text(error)
            return reason_text(f"the sink {self._sink.name!r} does not work: {text}", 1000)
        return ""
