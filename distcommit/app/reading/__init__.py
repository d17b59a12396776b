"""Snapshot readers: they see only whole commits. Must not write anything, nor need a source's client or (but for the
data source) Spark. Start reading at `readers`."""
