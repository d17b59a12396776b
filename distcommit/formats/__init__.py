"""Data formats that several parts of the pipeline read or write.

Must not know sources, constructs or sinks. Limits on schemas are in `schemas.limits`. Start reading at
`avro.datum_reader`.
"""
