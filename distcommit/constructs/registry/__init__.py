"""Shared parts of the converters that use a schema registry: the client, the wire format, policies and decoders.

Must not know which section of a job file asked. Start reading at `converter`, then `wire`, then `policy`.
"""
