"""Converters of messages whose schemas are in a schema registry.

Must not implement a format: `constructs.registry` does. Start reading at `avro`.
"""
