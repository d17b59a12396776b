"""Iceberg catalogs in databases or behind the REST protocol.

Must not know of datasets or ledgers. Start reading at `tables`.
"""
