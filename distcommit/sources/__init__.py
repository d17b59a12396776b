"""Where records come from: Kafka, files, SQL databases, REST, readers of Spark, micro-batches of a stream, classes
of the user's own.

Each says what there is to read and reads it; must not know what becomes of it. A package here is a type that a job file
can name: its `SETTINGS` says which class its section is. Start reading at `python`, then `kafka`.
"""
