"""A cache of decoded bytes: recoveries from crashes of one run read the same segments and tables repeatedly."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from distcommit.stores.logs import log_view
from distcommit.stores.state import run_plans, task_states

_DECODERS = (
    (log_view, "decode_segment", 50_000),
    (run_plans, "decode_plan", 5_000),
    (task_states, "decode_task_states", 5_000),
)
"""Cached decoders, and the sizes of their caches. Each returns equal, immutable values for equal bytes."""


@contextmanager
def decoded_once() -> Iterator[None]:
    """Cache decoded values in the block; unreadable bytes are decoded each time."""
    with ExitStack() as stack:
        for module, name, cache_size in _DECODERS:
            stack.enter_context(patch.object(module, name, functools.lru_cache(cache_size)(getattr(module, name))))
        yield
