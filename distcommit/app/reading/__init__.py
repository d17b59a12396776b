"""Snapshot readers, which return only complete commits. They must not write anything, nor need the client of a source
or (except the data source) Spark. Start reading at `snapshot_reader`.
"""
