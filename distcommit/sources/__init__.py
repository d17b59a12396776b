"""Where records come from: Kafka, classes of the user's own, micro-batches of a stream.

Each says what there is to read and reads it; must not know what becomes of it. Start reading at `python`, then `kafka`.
"""
