"""Docstrings as Markdown, with ``Args:`` and its like as lists.

autodoc2 looks for the class ``Parser`` in this module.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

from myst_parser.parsers.sphinx_ import MystParser

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_ITEM = re.compile(r"^([\w*, .]+): (.*)$")


class Parser(MystParser):
    """Reads a docstring."""

    def parse(self, inputstring: str, document: Any) -> None:
        super().parse(to_markdown(inputstring), document)


def to_markdown(docstring: str) -> str:
    """Return ``docstring`` with each section's items as a list, everything else as it was."""
    lines = docstring.splitlines()
    # All lines but the first carry the indentation of the code around them.
    lines = lines[:1] + textwrap.dedent("\n".join(lines[1:])).splitlines()
    out: list[str] = []
    in_section = False
    for line in lines:
        section = _SECTION.match(line)
        if section:
            in_section = True
            out += [f"**{section[1]}**", ""]
        elif in_section and line and not line.startswith(" "):
            in_section = False
            out.append(line)
        elif in_section:
            out.append(_item(line))
        else:
            out.append(line)
    return "\n".join(out)


def _item(line: str) -> str:
    if line.startswith("     "):  # goes on with the item before
        return f"  {line.strip()}"
    text = line.strip()
    item = _ITEM.match(text)
    if item:
        names = ", ".join(f"`{name}`" for name in item[1].split(", "))
        return f"- {names}: {item[2]}"
    return f"- {text}" if text else ""
