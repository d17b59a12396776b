"""Files in Parquet, Avro, ORC, JSON lines and CSV, which are published by renaming them.

Must not publish files: commit steps do. Start reading at `sink`. Audits and rebuilds read `footer` and `offset_sets`
without the store.
"""

SETTINGS = "sink:FileSink"
