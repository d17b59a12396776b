"""Protobuf messages by registered schemas: compiler, layout and decoders.

Must not ask a registry. Start reading at `schema`, then `layout`.
"""
