"""Protobuf messages by registered schemas: compiler, layout and decoders.

This package sends no requests to a registry. Start reading at `schema`, then `layout`.
"""
