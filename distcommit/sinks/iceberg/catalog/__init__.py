"""Iceberg catalogs, by SQL or the REST protocol.

Must not know of datasets or ledgers. Start reading at `tables`.
"""
