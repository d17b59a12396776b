"""Converters of messages whose schemas are in a schema registry.

This package must not implement a format: the formats are in `constructs.registry`. Start reading at `avro`.
"""
