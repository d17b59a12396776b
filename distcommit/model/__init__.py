"""The words that all others speak: datasets, work units, watermarks, steps, records, ports and errors.

Plain values and interfaces; must not read, write or decide. Start reading at `work`, `watermark` and `log_records`.
"""
