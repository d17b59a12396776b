"""Shared parts of the converters that use a schema registry.

Must not depend on the sections of a job file. Start reading at `registry_converter`, then `wire_format`.
"""
