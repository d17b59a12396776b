"""Results as tables and lines for people.

Must not read stores. Start reading at `pieces`, then `status_view`.
"""
