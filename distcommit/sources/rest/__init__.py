"""Source of JSON records that a server lists page by page, in ranges of a watermark field.

Must not send requests at planning. Start reading at `source`, then `plan_dataset` and `extractor`.
"""

SETTINGS = "source:RestSource"
