"""What the converters by a schema registry share: the registry's client, the wire format, and their decoders.

Must not know which section of a job file asked. Start reading at `converter`, then `wire`, then `avro_schema`.
"""
