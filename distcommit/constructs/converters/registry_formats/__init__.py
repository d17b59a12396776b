"""Converters of messages whose schemas are in a schema registry.

The formats are implemented in `constructs.registry`. Start reading at `avro`.
"""
