"""File formats: Parquet, Avro, ORC, JSON lines and CSV, written by rows and read back.

Must not know of attempts or folders. Start reading at `encoders`.
"""
