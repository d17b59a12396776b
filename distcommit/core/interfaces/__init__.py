"""Interfaces of sources, sinks, committers, constructs and commit steps.

Must not know an implementation of them. Start reading at `source`, then `sink`.
"""
