"""Results as tables and lines of text.

Must not read stores. Start reading at `status_view`.
"""
