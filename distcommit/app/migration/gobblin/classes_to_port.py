"""Java classes of a Gobblin job, and the Python classes that have to replace them."""

from __future__ import annotations

import re
from typing import Any

PORTS = "gobblin_ports"
"""The module that a converted job file names for classes that must still be written in Python."""


def simple_name(java_class: str) -> str:
    """Return the name of a Java class without its package."""
    return java_class.strip().rpartition(".")[2]


def port_of(java_class: str) -> dict[str, Any]:
    """Return a section with the Python class that replaces a Java class."""
    name = re.sub(r"\W", "_", simple_name(java_class))
    return {"type": "python", "class": f"{PORTS}:{name}"}


def port_note(*java_classes: str) -> str:
    """Return the note on settings that name classes to write; empty if there are none."""
    names = ", ".join(map(simple_name, java_classes))
    return f"write {names} in {PORTS}.py (conf/docs/guides/custom-parts.md), or remove it" if names else ""
