"""Hypothesis profiles for all tests, selected by HYPOTHESIS_PROFILE.

The stateful tests take about 15 s in all with `dev` and about a minute with `ci`; an operator starts `long`, which
takes hours. `verdict` is `ci` without shrinking, for broken copies of the product, which only have to fail. `ci` uses
the same examples each time, so that it fails for a change and not by chance; the others draw new ones. Failing examples
are stored in `tests/stateful/examples`, to be committed with the fix, and are tried first from then on.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

_SCALE = {"dev": 1, "ci": 4, "long": 400, "verdict": 4}
_DATABASE = Path(__file__).parent / "examples"
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")


def load() -> None:
    """Register the profiles and load the one that the environment names."""
    for name in _SCALE:
        settings.register_profile(
            name,
            deadline=None,
            database=None if name in ("ci", "verdict") else DirectoryBasedExampleDatabase(_DATABASE),
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            derandomize=name in ("ci", "verdict"),
            phases=[phase for phase in Phase if name != "verdict" or phase not in (Phase.shrink, Phase.explain)],
        )
    settings.load_profile(_PROFILE)


def effort(examples: int, steps: int = 30) -> settings:
    """Return settings with so many examples in `dev` and more in longer profiles, each with up to so many steps."""
    return settings(settings.get_profile(_PROFILE), max_examples=examples * _SCALE[_PROFILE], stateful_step_count=steps)


@contextmanager
def known_ids(ids: random.Random) -> Iterator[None]:
    """Make ids equal in every run of an example, because they decide which of two attempts wins."""
    with patch("uuid.uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)):
        yield


load()
