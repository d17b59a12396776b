"""Decoder of Protobuf messages by registered schemas.

This package must not send requests to a registry. Start reading at `protobuf_decoder`, then `message_columns`.
"""
