"""Sources of records: Kafka, files, SQL databases, REST, Spark readers, micro-batches of a stream, custom classes.

A source plans work units and reads them. It must not know how records are processed. Each package is a source type of
job files. Its `SETTINGS` names the class of the section `source`. Start reading at `python`, then `kafka`.
"""
