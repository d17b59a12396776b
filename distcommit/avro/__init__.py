"""Avro: the decoder of records, container files, and the schemas of written files.

Must not know sources, constructs or sinks. Limits on schemas are in `schemas.schema_size_limits`. Start reading at
`datum_reader`, then `container_format`.
"""

from typing import Any

AvroSchema = Any
"""An Avro schema in its JSON form: a name, a union (list), or a complex type (dict)."""
