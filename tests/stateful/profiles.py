"""Hypothesis' profiles, by HYPOTHESIS_PROFILE, for all tests. How long the stateful ones look: `dev` about 15 s in all,
`ci` about a minute, `long` by hand, for hours; `verdict` is `ci`, but what fails is not made smaller: for broken copies
of the product, which only have to fail.

`ci` looks at the same examples each time, so that it fails for a change and not for a day; the others draw new ones.
What fails is kept in `tests/stateful/examples`, to be committed with its mend, and tried first from then on.
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
    """Registers the profiles and loads the one that the environment names."""
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
    """So many examples in `dev`, more in longer profiles, each of up to so many steps."""
    return settings(settings.get_profile(_PROFILE), max_examples=examples * _SCALE[_PROFILE], stateful_step_count=steps)


@contextmanager
def known_ids(ids: random.Random) -> Iterator[None]:
    """Ids that are the same in every run of an example: which of two attempts wins depends on them."""
    with patch("uuid.uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)):
        yield


load()
