"""Pictures of configs, drawn by Graphviz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run.exceptions import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from graphviz import Graph


def draw(config: Any, **kwargs: Any) -> Graph:
    """Return the Graphviz graph of a config."""
    from fiddle._src.graphviz import render

    return render(config, **kwargs)


def draw_diff(old: Any, new: Any, *, trim: bool = True, **kwargs: Any) -> Graph:
    """Return the Graphviz graph of what changed from ``old`` to ``new``."""
    from fiddle._src.graphviz import render_diff

    return render_diff(old=old, new=new, trim=trim, **kwargs)


def save_png(config: Any, path: str) -> None:
    """Write a picture to ``path``; a path without a suffix is a directory for ``config.png``.

    Raises:
        ConfigError: the suffix is something else than ``.png``.
        MissingDependencyError: Graphviz's ``dot`` is not installed.
    """
    target = Path(path)
    if not target.suffix:
        target = target / "config.png"
    if target.suffix != ".png":
        raise ConfigError(f"Cannot save a picture as {target.suffix!r}. Use a path ending in .png.")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_pipe(draw(config), "png"))


def svg(config: Any) -> str:
    """Return a picture as SVG text.

    Raises:
        MissingDependencyError: Graphviz's ``dot`` is not installed.
    """
    return _pipe(draw(config), "svg").decode("utf-8")


def _pipe(graph: Graph, image_format: str) -> bytes:
    from graphviz.backend import ExecutableNotFound

    try:
        return graph.pipe(format=image_format)
    except ExecutableNotFound as err:
        raise MissingDependencyError(
            "Drawing a config needs Graphviz's 'dot' program, which is not on the PATH. "
            "Install it, for example with: apt-get install graphviz",
            extra="graphviz",
        ) from err
