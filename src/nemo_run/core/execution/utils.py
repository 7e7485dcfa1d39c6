"""Templates of scripts, filled in with Jinja."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nemo_run.exceptions import ConfigError

TEMPLATES = Path(__file__).parent / "templates"


def fill_template(
    template_name: str, variables: dict[str, Any], template_dir: str | None = None
) -> str:
    """Return a template with ``variables`` in it; by default one of those that come with us.

    Raises:
        ConfigError: the name does not end in ``.j2``.
        FileNotFoundError: there is no such file.
    """
    if not template_name.endswith(".j2"):
        raise ConfigError(f"{template_name!r} is not a template: their names end in .j2.")
    directory = Path(template_dir) if template_dir else TEMPLATES
    path = directory / template_name
    if not path.is_file():
        raise FileNotFoundError(f"There is no template {template_name!r} in {directory}.")
    return render(path.read_text(), variables, directory)


def render(text: str, variables: dict[str, Any], directory: Path = TEMPLATES) -> str:
    """Return the text of a template with ``variables`` in it; others are found in ``directory``."""
    # Not on import: it takes longer than a good part of this package.
    from jinja2 import Environment, FileSystemLoader

    # These are scripts, not pages: nothing is escaped for HTML.
    environment = Environment(
        loader=FileSystemLoader(str(directory)), autoescape=False, keep_trailing_newline=True
    )
    return environment.from_string(text).render(**variables)
