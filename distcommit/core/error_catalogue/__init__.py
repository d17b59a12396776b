"""The catalogue of errors: title, cause, impact and action of each error id. Must not import the error classes, which
an entry names as text. Start reading at `catalogue`.
"""

from distcommit.core.error_catalogue.catalogue import ERRORS
from distcommit.core.error_catalogue.entry import ErrorEntry

__all__ = ["ERRORS", "ErrorEntry"]
