"""Operator actions: what an operator may do to a dataset, and asks of a service.

Must not act on a dataset in another state than the action needs. Start reading at `operator_actions`.
"""
