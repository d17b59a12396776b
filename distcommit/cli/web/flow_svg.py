"""The task flow as an SVG image, readable on light and dark pages, without external files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from distcommit.app.checks.flow_description import FlowColumn, FlowDescription, FlowPart
from distcommit.cli.views.flow_view import shown_columns
from distcommit.core.errors import printable

_WIDTH, _GAP, _ARROW, _PAD = 330, 36, 26, 12
"""In pixels: width of boxes, gap between branches, height of arrows, padding of boxes."""
_LINE, _LETTER, _LINES = 15, 6.65, 6
"""Height of a line and width of a letter in pixels; the most lines of settings or notes in a box."""
_COLORS = {
    "source": "#2b6cb0",
    "converter": "#2f855a",
    "row checker": "#b7791f",
    "fork": "#6b46c1",
    "sink": "#2b6cb0",
    "task checker": "#b7791f",
    "error branch": "#c53030",
}
_STYLE = """
text { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 11px; fill: #1a202c }
.kind { fill: #4a5568 } .name { font-size: 13px; font-weight: bold } .note { fill: #744210 }
.title { font-size: 15px; font-weight: bold } .box { fill: #ffffff; stroke-width: 1.5 }
.branch { fill: #f7fafc; stroke: #cbd5e0 } .line { stroke: #718096; stroke-width: 1.5; fill: none }
.rule { stroke: #e2e8f0 } .page { fill: #ffffff }
"""


@dataclass(frozen=True, slots=True)
class _Block:
    """A box of a part of the flow, such as the source or a converter: compartments, each a CSS class and its lines."""

    part: FlowPart
    compartments: Sequence[tuple[str, Sequence[str]]]

    @property
    def height(self) -> int:
        lines = sum(len(texts) for _, texts in self.compartments)
        return 2 * _PAD + _LINE + lines * _LINE + 8 * len(self.compartments)


def flow_svg(result: FlowDescription) -> str:
    """Return an SVG image: the source at the top, sinks at the bottom, one column for each branch."""
    reached = result.parts[-1].columns
    shared = [*_blocks(result.parts, None), *_blocks([result.fork] if result.fork else [], None)]
    columns = [_blocks(branch.parts, reached) for branch in result.branches]
    if result.fork is None:
        shared, columns = [*shared, *columns[0]], []
    width = max(1, len(columns)) * (_WIDTH + _GAP) + _GAP
    svg = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", width=str(width), role="img")
    ET.SubElement(svg, "title").text = printable(f"task flow of job {result.job}")
    ET.SubElement(svg, "style").text = _STYLE
    page = _rectangle(svg, 0, 0, width, 0, "page")
    _text(svg, _GAP, 28, f"job {result.job}", "title")
    center = (width - _WIDTH) // 2
    bottom = _column(svg, shared, center, 48)
    ends = [bottom]
    for number, blocks in enumerate(columns):
        x, top = _GAP + number * (_WIDTH + _GAP), bottom + 2 * _ARROW
        middle, to = width // 2, x + _WIDTH // 2
        _arrow(svg, [(middle, bottom), (middle, bottom + _ARROW), (to, bottom + _ARROW), (to, top)])
        branch = result.branches[number]
        ends.append(_branch(svg, f"{branch.name} (optional)" if branch.optional else branch.name, blocks, x, top))
    height = max(ends) + _GAP
    if result.errors is not None:
        height = _column(svg, _blocks([result.errors], None), center, height) + _GAP
    for element, sizes in ((page, {"height": height}), (svg, {"height": height, "viewBox": f"0 0 {width} {height}"})):
        element.attrib.update({name: str(size) for name, size in sizes.items()})
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def _blocks(parts: Sequence[FlowPart], columns: Sequence[FlowColumn] | None) -> list[_Block]:
    """Return the boxes of parts of the flow. `columns` are the record columns before the first part."""
    blocks = []
    for part in parts:
        shown = [line for column in shown_columns(part, columns) for line in _wrapped(column, lines=1)]
        texts = [("settings", _wrapped(part.settings)), ("note", _wrapped(part.on_rejected)), ("column", shown)]
        blocks.append(_Block(part, [(name, lines) for name, lines in texts if lines]))
        columns = part.columns
    return blocks


def _branch(svg: ET.Element, name: str, blocks: Sequence[_Block], x: int, top: int) -> int:
    frame = _rectangle(svg, x - _PAD, top, _WIDTH + 2 * _PAD, 0, "branch", rx=8)
    _text(svg, x, top + 20, f"branch {name}", "name")
    end = _column(svg, blocks, x, top + 32) + _PAD
    frame.set("height", str(end - top))
    return end


def _wrapped(text: str, lines: int = _LINES) -> list[str]:
    letters = int((_WIDTH - 2 * _PAD) / _LETTER)
    return textwrap.wrap(printable(text), letters, max_lines=lines, placeholder=" ...")


def _column(svg: ET.Element, blocks: Sequence[_Block], x: int, top: int) -> int:
    middle = x + _WIDTH // 2
    for number, block in enumerate(blocks):
        if number:
            _arrow(svg, [(middle, top), (middle, top + _ARROW)])
            top += _ARROW
        _draw(svg, block, x, top)
        top += block.height
    return top


def _draw(svg: ET.Element, block: _Block, x: int, top: int) -> None:
    box = _rectangle(svg, x, top, _WIDTH, block.height, "box", rx=6)
    box.set("stroke", _COLORS[block.part.kind])
    if block.part.kind == "error branch":
        box.set("stroke-dasharray", "5 4")
    y = top + _PAD + 11
    _text(svg, x + _PAD, y, block.part.name, "name")
    _text(svg, x + _WIDTH - _PAD, y, block.part.kind, "kind").set("text-anchor", "end")
    for name, lines in block.compartments:
        y += 8
        ET.SubElement(svg, "path", {"class": "rule", "d": f"M{x + 1} {y} H{x + _WIDTH - 1}"})
        for line in lines:
            y += _LINE
            _text(svg, x + _PAD, y, line, name)


def _rectangle(svg: ET.Element, x: int, y: int, width: int, height: int, name: str, rx: int = 0) -> ET.Element:
    sizes = {"x": x, "y": y, "width": width, "height": height, "rx": rx}
    return ET.SubElement(svg, "rect", {"class": name, **{key: str(value) for key, value in sizes.items()}})


def _text(svg: ET.Element, x: int, y: int, text: str, name: str) -> ET.Element:
    element = ET.SubElement(svg, "text", {"class": name, "x": str(x), "y": str(y)})
    element.text = printable(text)
    return element


def _arrow(svg: ET.Element, points: Sequence[tuple[int, int]]) -> None:
    x, y = points[-1]
    ET.SubElement(svg, "path", {"class": "line", "d": "M" + " L".join(f"{a} {b}" for a, b in points)})
    ET.SubElement(svg, "path", {"fill": "#718096", "d": f"M{x} {y} l-5 -8 h10 z"})
