"""Shared parts of the converters that use a schema registry: the client, the wire format, policies and decoders.

This package must not depend on the sections of a job file. Start reading at `converter`, then `wire`, then `policy`.
"""
