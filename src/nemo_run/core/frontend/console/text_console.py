"""A console of rich's that shows what others wrote as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment

from nemo_run._jobs.shown_text import as_text


class TextConsole(Console):
    """On a terminal, control characters in what is printed are shown, not sent.

    rich itself sends those in a text as they are; its own colours and movements of the cursor are
    not part of a text.
    """

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        rendered = super().render(renderable, options)
        if not self.is_terminal:
            return rendered
        return (
            segment if segment.control else segment._replace(text=as_text(segment.text))
            for segment in rendered
        )
