"""The check that listed topics or tables exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from distcommit.core.errors import SourceError


def require_listed(
    setting: str, missing: Sequence[str], existing: Collection[str], *, id: str, selected: int, todo: str = ""
) -> None:
    """Raise SourceError with similar existing names if `missing` is not empty.

    Args:
        setting: the setting that lists the names, such as `topics`.
        selected: number of existing names that the job reads.
        todo: end of the remedy: how this user may see existing names.
    """
    if not missing:
        return
    near = {name: difflib.get_close_matches(name, existing, n=3) for name in missing[:20]}
    hints = [f"{name} (similar: {', '.join(names)})" if names else name for name, names in near.items()]
    more = f" and {len(missing) - len(near):,} more" if len(missing) > len(near) else ""
    raise SourceError(
        f"names in source.{setting} do not exist",
        id=id,
        selected=f"{selected:,} of {len(existing):,} {setting}",
        found=f"no {', '.join(hints)}{more}",
        todo=f"correct source.{setting}, or create them{todo}",
    )
