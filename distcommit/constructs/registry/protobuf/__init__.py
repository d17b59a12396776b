"""Decoder of Protobuf messages.

Must not send requests to a registry. Start reading at `protobuf_decoder`.
"""
