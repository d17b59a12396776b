"""Protobuf messages by registered schemas: compiler, layout and decoders.

Must not know the registry's client beyond the schema that it found. Start reading at `schema`, then `layout`.
"""
