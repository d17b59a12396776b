"""The vocabulary of all other packages: datasets, work units, watermarks, steps, records, ports and errors.

Must not import another package of distcommit except `decoding`. Start reading at `work`, then `interfaces.steps`.
"""
