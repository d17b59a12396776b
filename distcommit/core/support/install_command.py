"""The command that installs optional dependencies of the running installation."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

_PROJECT = "distcommit"
_ROOT = Path(__file__).resolve().parents[3]
"""The folder that has the package: a checkout or `site-packages`."""


def install_command(*extras: str) -> str:
    """Return the shell command that installs extras of distcommit with pip, for the interpreter that runs now."""
    return pip_install(*_requirement(f"[{','.join(extras)}]"))


def pip_install(*arguments: str) -> str:
    """Return the shell command that calls `pip install` of the interpreter that runs now."""
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *arguments])


def _requirement(extras: str, root: Path = _ROOT, direct_url: str | None = None) -> list[str]:
    """Return the arguments of pip that name distcommit and its extras, from where it was installed.

    Args:
        root: the folder that has the package.
        direct_url: the content of pip's record `direct_url.json`; default: that of this installation.
    """
    if (root / "pyproject.toml").is_file():
        return ["-e", f"{root}{extras}"]
    record = json.loads((_direct_url() if direct_url is None else direct_url) or "{}")
    url = str(record.get("url", ""))
    if url.startswith("file:") and "vcs_info" not in record:  # a wheel or a checkout
        return [f"{unquote(urlsplit(url).path)}{extras}"]
    if version_control := record.get("vcs_info"):
        url = f"{version_control['vcs']}+{url}@{version_control['commit_id']}"
    return [f"{_PROJECT}{extras} @ {url}" if url else f"{_PROJECT}{extras}"]


def _direct_url() -> str:
    """Return pip's record of the URL that distcommit was installed from; empty for a package index."""
    try:
        return distribution(_PROJECT).read_text("direct_url.json") or ""
    except PackageNotFoundError:
        return ""
