"""The catalogue of errors: what each id means and how to resolve it. Must not import the error classes, which it names
by their class names. Start reading at `catalogue`."""

from distcommit.core.error_catalogue.catalogue import ERRORS
from distcommit.core.error_catalogue.entry import ErrorEntry

__all__ = ["ERRORS", "ErrorEntry"]
