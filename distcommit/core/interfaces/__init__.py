"""What sources, sinks, committers, constructs and commit steps have to be.

Must not know any of them. Start reading at `source`, then `sink`.
"""
