"""Readers that see whole commits: which cut they get, and the files that it shows.

Must not need Spark (but for the data source) nor a source's client, nor write anything. Start reading at `readers`.
"""
