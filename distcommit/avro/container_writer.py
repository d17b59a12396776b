"""Writer of Avro container files (Apache Avro 1.12 specification, Object Container Files).

fastavro encodes only the records. Its container writer needs more libraries, and represents timestamps as Python does.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping

import msgspec
import pyarrow as pa

from distcommit.avro.compression import AvroCodec, compress
from distcommit.avro.container_format import SYNC_BYTES, block_bytes, header_bytes
from distcommit.avro.schemas_from_arrow import avro_schema, plain_schema, without_logical_types

_BLOCK_BYTES = 256 << 10
_MAX_BLOCK_ROWS = 4096


def write_table(
    rows: pa.Table, codec: AvroCodec, metadata: Mapping[str, str], write: Callable[[bytes], object]
) -> None:
    """Write a whole container file in blocks of about 256 KiB of Arrow data.

    Args:
        metadata: further entries of the header.
        write: called with the file's bytes, part by part.

    Raises:
        ConfigurationError: if a column can't be written to Avro.
    """
    import fastavro  # noqa: PLC0415 - of this format alone

    schema = avro_schema(rows.schema)
    datum_schema = fastavro.parse_schema(without_logical_types(schema))
    sync = os.urandom(SYNC_BYTES)
    write(header_bytes(msgspec.json.encode(schema), codec, sync, metadata))
    block_rows = min(_MAX_BLOCK_ROWS, max(1, _BLOCK_BYTES * rows.num_rows // max(rows.nbytes, 1)))
    for batch in rows.cast(plain_schema(rows.schema)).to_batches(max_chunksize=block_rows):
        block = io.BytesIO()
        for row in batch.to_pylist():
            fastavro.schemaless_writer(block, datum_schema, row)
        write(block_bytes(batch.num_rows, compress(codec, block.getvalue()), sync))
