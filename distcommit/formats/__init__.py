"""Data formats that several parts of the pipeline read or write, and the limits on what a schema may ask for.

Must not know sources, constructs or sinks. Start reading at `schema_bounds`, then `avro.reader`.
"""
