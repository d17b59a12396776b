"""The bytes of one log segment: a readable header line, and a checked, compressed record.

    distcommit-segment <version> epoch=12 writer=<hex> raw=<bytes> xxh3=<hex>\\n
    <zlib of the MessagePack of the record>

The checksum covers the header up to it and the compressed record. Specification:
`conf/docs/reference/log-records.md`.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field

import msgspec
from xxhash import xxh3_64_hexdigest

from distcommit.core.errors import CorruptError, DistcommitError, UnknownVersionError
from distcommit.core.records.log_records import Record
from distcommit.core.support.decoding import from_msgpack

FORMAT_VERSION = 1
_MAX_RAW_BYTES = 1 << 30
_encoder = msgspec.msgpack.Encoder()
_HEADER = re.compile(
    rb"distcommit-segment (?P<version>\d{1,9}) epoch=(?P<epoch>\d{1,18}) writer=(?P<writer>[0-9a-f]{1,64})"
    rb" raw=(?P<raw>\d{1,12}) xxh3=(?P<sum>[0-9a-f]{16})\n"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """One record and its writer.

    Attributes:
        epoch: epoch of the writer; 0 for an operator.
        writer_id: random id of the writer, in hexadecimal digits.
        record: the record.
        checksum: the stored checksum, as 16 hexadecimal digits; empty before the segment is stored.
    """

    epoch: int
    writer_id: str
    record: Record
    checksum: str = field(default="", compare=False)


def encode_segment(segment: Segment) -> bytes:
    """Return the bytes of a segment. Raise DistcommitError if the record is too large to be decoded."""
    raw = _encoder.encode(segment.record)
    if len(raw) >= _MAX_RAW_BYTES:
        raise DistcommitError(
            "a log record is too large",
            record=type(segment.record).__name__,
            expected=f"less than {_MAX_RAW_BYTES:,} bytes",
            found=f"{len(raw):,} bytes",
            todo="reduce the commit infos or the number of files of a run, then run again; nothing was written",
        )
    body = zlib.compress(raw, 1)
    head = f"distcommit-segment {FORMAT_VERSION} epoch={segment.epoch} writer={segment.writer_id} raw={len(raw)}"
    return f"{head} xxh3={xxh3_64_hexdigest(head.encode() + body)}\n".encode() + body


def decode_segment(data: bytes, path: str) -> Segment:
    """Return the segment in `data`. Decoding runs no code and is bounded in size.

    Args:
        data: bytes of the file.
        path: path of the file, for the error.

    Raises:
        UnknownVersionError: if the segment is undamaged and of another format version.
        CorruptError: if it is truncated, foreign or altered.
    """
    line_end = data.find(b"\n", 0, 300)
    header = _HEADER.fullmatch(data[: line_end + 1])
    if header is None:
        raise _corrupt(path, f"{len(data)} bytes that begin with {data[:40]!r}")
    body = data[line_end + 1 :]
    if xxh3_64_hexdigest(data[: header.start("sum") - len(" xxh3=")] + body) != header["sum"].decode():
        raise _corrupt(path, "bytes that do not match their checksum")
    if int(header["version"]) != FORMAT_VERSION:
        raise UnknownVersionError(
            "a log segment has an unknown format version",
            path=path,
            expected=str(FORMAT_VERSION),
            found=header["version"].decode(),
            todo="run the version of distcommit that wrote it",
        )
    raw_bytes = int(header["raw"])
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(body, min(raw_bytes + 1, _MAX_RAW_BYTES))
        if len(raw) != raw_bytes or not inflater.eof:
            raise _corrupt(path, f"a record that is not {raw_bytes} bytes long")
        record = from_msgpack(raw, Record)
    except (zlib.error, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _corrupt(path, f"an undecodable record ({error})") from error
    return Segment(int(header["epoch"]), header["writer"].decode(), record, header["sum"].decode())


def checksum_in(data: bytes) -> str:
    """Return the checksum in the header of a segment's bytes; empty if there is no valid header."""
    header = _HEADER.match(data)
    return header["sum"].decode() if header else ""


def _corrupt(path: str, actual: str) -> CorruptError:
    return CorruptError(
        "a log segment is corrupt",
        id="LOG_SEGMENT_CORRUPT",
        path=path,
        expected=f"a segment of format version {FORMAT_VERSION}",
        found=actual,
        todo="restore this file from a backup; if it is lost, `distcommit store rebuild` repairs a log from the"
        " published files. The datasets of this log are skipped until then",
    )
