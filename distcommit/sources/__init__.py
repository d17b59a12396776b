"""Sources of records: Kafka, files, SQL databases, REST, Spark readers, micro-batches of a stream, custom classes.

Each source plans and reads. It must not know how records are processed. A package here is a source type of job files,
and its `SETTINGS` is the class of the section. Start reading at `python`, then `kafka`.
"""
