"""Shared parts of the converters that use a schema registry: the client, the wire format, policies and decoders.

This package must not depend on the sections of a job file. Start reading at `registry_converter`, then
`wire_format`, then `registry_schema_policy`.
"""
