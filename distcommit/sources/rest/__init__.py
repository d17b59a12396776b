"""Source of JSON records that a server lists page by page, read in ranges of a watermark field.

Must not send requests at planning. Start reading at `source`, then `plan_dataset` and `extractor`. Only `client`
connects; `paging` finds the next request, and `responses` parses answers.
"""

SETTINGS = "source:RestSource"
