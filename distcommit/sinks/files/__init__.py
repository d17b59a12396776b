"""Files in Parquet, Avro, ORC, JSON lines and CSV.

Must not publish files: commit steps do. Start reading at `sink`.
"""

SETTINGS = "sink:FileSink"
