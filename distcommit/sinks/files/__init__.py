"""Files of Parquet, Avro, ORC, JSON lines and CSV, published by renaming them.

Must not publish: that is its commit steps'. Start reading at `sink`; `footer` and `offsets` are what audits and
rebuilds read, whatever has become of the store.
"""

SETTINGS = "sink:FileSink"
