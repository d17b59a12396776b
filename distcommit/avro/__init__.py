"""Avro: records, container files, and schemas.

Must not know sources, constructs or sinks. Start reading at `datum_reader`, then `container_format`.
"""

from typing import Any

AvroSchema = Any
"""An Avro schema in its JSON form: a name, a union (list), or a complex type (dict)."""
