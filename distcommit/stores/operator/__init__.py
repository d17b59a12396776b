"""Operator actions, and requests to a service.

Must not change a dataset without the required status. Start reading at `operator_actions`.
"""
