"""The words that all other packages use: datasets, work units, watermarks, steps, records, ports and errors.

Must not import another package of distcommit but `decoding`. Start reading at `work`, then `interfaces.steps`.
"""
