"""Operator actions on datasets, and requests to a service.

Each action requires a status of the dataset and changes nothing otherwise. Start reading at `operator_actions`.
"""
