"""Chooses the Hypothesis profile for these tests: HYPOTHESIS_PROFILE=dev (default), ci, long or verdict."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.stateful import profiles

profiles.load()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes are what is done here; the product would report each."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(before)
