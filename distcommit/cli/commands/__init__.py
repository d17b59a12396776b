"""The commands: each calls `app` and shows the result.

Must not contain the work itself. Start reading at `running`.
"""
