"""Inputs that once changed values, lost records or stopped another dataset, each with its right value."""
