"""Stored schemas of datasets.

Rules for schemas are in the package `schemas`. Start reading at `schema_history`.
"""
