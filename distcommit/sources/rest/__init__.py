"""Lists of JSON records that a server gives page by page, as datasets, read in ranges of a watermark field.

Must not ask a server as it plans. Start reading at `source`, then `plan` and `extractor`; `client` is all that
connects, `paging` says how an answer leads to the next one, and `answers` what is in them.
"""

SETTINGS = "source:RestSource"
