"""Times as text, in the one form that most producers write, told without a regular expression."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_SECONDS = b"0000-00-00T00:00:00"
_MOST = 27  # with microseconds, and Z


def are_alike_in_utc(texts: pa.Array) -> bool:
    """Whether all of them are times such as `2024-02-29T12:00:00.123456Z`, each with as many digits, of the years 1000
    to 9899. Whether there is such a day is not looked at. If not, they may be times all the same.

    Args:
        texts: strings.
    """
    rows = len(texts)
    if not rows or texts.null_count:
        return False
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + rows + 1]
    size = int(bounds[-1] - bounds[0]) // rows
    if size not in (len(_SECONDS) + 1, *range(len(_SECONDS) + 3, _MOST + 1)):
        return False
    if not np.array_equal(bounds[1:] - bounds[:-1], np.full(rows, size, np.int32)):
        return False
    text = np.frombuffer(texts.buffers()[2], np.uint8)[bounds[0] : bounds[-1]].reshape(rows, size)
    form = _SECONDS + (b"." + b"0" * (size - 21) if size > len(_SECONDS) + 1 else b"") + b"Z"
    above = text - np.frombuffer(form, np.uint8)  # what is below comes out as large numbers
    most = np.array([9 if letter == ord("0") else 0 for letter in form], np.uint8)
    most[[11, 14, 17]] = 2, 5, 5
    if not (above <= most).all():
        return False
    centuries, hours = above[:, 0] * 10 + above[:, 1], above[:, 11] * 10 + above[:, 12]
    return bool(centuries.min() >= 10 and centuries.max() <= 98 and hours.max() <= 23)
