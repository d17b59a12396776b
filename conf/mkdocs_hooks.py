"""Adapt pages, which are written to be read as files of the repository, to the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s:]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: object) -> str:
    """Replace links to files outside the site, such as tests and job files, by their text and their path."""
    docs = Path(config.docs_dir).resolve()
    folder = (docs / page.file.src_uri).parent

    def outside(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(docs):
            return link[0]
        path = target.relative_to(docs.parents[1])
        text = link[1].strip("`")
        return f"`{path}`" if text in str(path) else f"{link[1]} (`{path}`)"

    return _LINK.sub(outside, markdown)
