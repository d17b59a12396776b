"""Inputs that once changed values, lost records or stopped a neighbour, each with its right value."""
