"""What sinks share that put data files into tables of Iceberg or Delta.

Must not know their clients. Start reading at `data_files`.
"""
