"""Base classes of sinks, writers and committers.

Must not depend on a particular target. Start reading at `committer_sink`.
"""
