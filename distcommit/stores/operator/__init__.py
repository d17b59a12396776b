"""Operator actions on datasets, and requests to a service.

Must not act on a dataset in another state than the action needs. Start reading at `operator_actions`.
"""
