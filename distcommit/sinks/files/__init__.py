"""Files in Parquet, Avro, ORC, JSON lines and CSV, which are published by renaming them.

Must not publish files: commit steps do. Start reading at `sink`.
"""

SETTINGS = "sink:FileSink"
