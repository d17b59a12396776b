"""Files of Parquet, Avro, ORC, JSON lines and CSV, published by renaming them.

Start reading at `sink`; `footer` and `offsets` are what audits and rebuilds read, whatever has become of the store.
"""

SETTINGS = "sink:FileSink"
