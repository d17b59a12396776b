"""Parts of the contract of sinks: the sink under test, and the cases of ledgers, rollbacks and later epochs.

Must not be subclassed alone, except `LaterEpochs`. Start reading at `sink_under_test`.
"""
