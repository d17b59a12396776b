"""Operator actions on datasets, and requests to a service.

An action must not change a dataset without the required status. Start reading at `operator_actions`.
"""
