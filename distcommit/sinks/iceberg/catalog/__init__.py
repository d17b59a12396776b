"""Iceberg catalogs: load, create and change many tables at a time, by SQL or by the REST protocol.

Must not know of datasets or ledgers. Start reading at `tables`.
"""
