"""How tables look: the same as the tables of the command line's help."""

from __future__ import annotations

from typing import Any

from rich import box
from typer import rich_utils

TABLE_STYLES: dict[str, Any] = {
    "highlight": True,
    "show_header": False,
    "expand": True,
    "box": None,
    "show_lines": rich_utils.STYLE_COMMANDS_TABLE_SHOW_LINES,
    "leading": rich_utils.STYLE_COMMANDS_TABLE_LEADING,
    "border_style": rich_utils.STYLE_COMMANDS_TABLE_BORDER_STYLE,
    "row_styles": rich_utils.STYLE_COMMANDS_TABLE_ROW_STYLES,
    "pad_edge": rich_utils.STYLE_COMMANDS_TABLE_PAD_EDGE,
    "padding": rich_utils.STYLE_COMMANDS_TABLE_PADDING,
}

BOX_STYLE: box.Box | None = getattr(box, rich_utils.STYLE_COMMANDS_TABLE_BOX, None)
