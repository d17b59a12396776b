"""Figures about the documentation: pages, words, paragraphs, code blocks and broken links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec

import distcommit

ROOT = Path(distcommit.__file__).parents[1]
DOCS = ROOT / "conf" / "docs"
README = ROOT / "README.md"
GENERATED = frozenset(
    {DOCS / "reference" / f"{name}.md" for name in ("commands", "configuration", "errors", "metrics", "packages")}
    | {DOCS / "reference" / f"{name}.md" for name in ("gobblin-properties", "problems", "python-api")}
    | {DOCS / "reference" / f"{path.stem}.md" for path in (ROOT / "tests" / "unit" / "designs").glob("*.toml")}
)
"""Pages that a generator writes; their length is not limited."""
COMMAND_FOLDERS = ("get-started", "guides", "operate")
"""Folders whose pages show commands."""
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n+)+")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)")


class Page(msgspec.Struct, frozen=True):
    """A page and its number of words, code included."""

    name: str
    words: int


class Pages(msgspec.Struct, frozen=True):
    """Figures of the hand-written pages in `conf/docs`."""

    pages: int
    generated: int
    words: int
    median_words: float
    largest: Page
    paragraph_median_words: float
    """Of paragraphs and list items, without headings, tables and code."""
    blocks_per_1000_words: float
    """Code blocks on the pages that show commands: get-started, guides and operate."""
    readme_words: int
    broken_links: list[str]
    """`PAGE: TARGET` for each link, on any page and in README, whose file or heading does not exist."""


def pages() -> Pages:
    """Count the documentation."""
    every = sorted(DOCS.rglob("*.md"))
    written = [page for page in every if page not in GENERATED]
    texts = {page: page.read_text(encoding="utf-8") for page in written}
    sizes = {page: len(text.split()) for page, text in texts.items()}
    largest = max(written, key=lambda page: sizes[page])
    of_commands = [page for page in written if page.relative_to(DOCS).parts[0] in COMMAND_FOLDERS]
    return Pages(
        pages=len(written),
        generated=len(every) - len(written),
        words=sum(sizes.values()),
        median_words=median(sizes.values()),
        largest=Page(str(largest.relative_to(DOCS)), sizes[largest]),
        paragraph_median_words=median(len(part.split()) for text in texts.values() for part in paragraphs(text)),
        blocks_per_1000_words=round(
            1000 * sum(code_blocks(texts[page]) for page in of_commands) / sum(sizes[page] for page in of_commands), 1
        ),
        readme_words=len(README.read_text(encoding="utf-8").split()),
        broken_links=[f"{page.relative_to(ROOT)}: {link}" for page in [README, *every] for link in broken_links(page)],
    )


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs and list items of a page."""
    plain = _INDENTED.sub("\n", _FENCE.sub("", text))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", plain):
        if block.strip() and not block.lstrip().startswith(("#", "|", ":::")):
            yield block


def code_blocks(text: str) -> int:
    """Return the number of code blocks, fenced or indented."""
    return len(_FENCE.findall(text)) + len(_INDENTED.findall(_FENCE.sub("", text)))


def broken_links(page: Path) -> Iterator[str]:
    """Yield the links of a page whose file or heading does not exist."""
    text = page.read_text(encoding="utf-8")
    for target, heading in _LINK.findall(_FENCE.sub("", text)):
        file = (page.parent / target).resolve() if target else page
        link = f"{target}#{heading}" if heading else target
        if not file.exists() or (heading and heading not in _anchors(file)):
            yield link


def _anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
