"""How the documentation is built: ``make docs``, where a warning is an error."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from nemo_run import __version__

project = "nemo_run"
author = "the nemo_run contributors"
version = release = __version__

extensions = ["myst_parser", "autodoc2"]
exclude_patterns = ["_build", "_ext"]
html_theme = "furo"
html_title = f"nemo_run {version}"
# Nothing is fetched from elsewhere, so the pages can be read without a network.
html_copy_source = False

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

# The reference is read from the sources, which are not imported for it.
autodoc2_packages = [{"path": "../src/nemo_run", "auto_mode": True}]
autodoc2_output_dir = "apidocs"
autodoc2_render_plugin = "myst"
autodoc2_hidden_objects = {"private", "dunder"}
autodoc2_docstring_parser_regexes = [(".*", "google_sections")]
autodoc2_sort_names = False
# What starts with an underscore may change without notice.
autodoc2_skip_module_regexes = [
    r".*\._.*",
    # Rooms of the command line: what is public of them is in cli.api, cli.cli_parser and cli.lazy.
    r".*\.cli\.(commands|experiments|registry|terminal|values)(\..*)?",
    r".*\.cli\.lazy\..*",
]
