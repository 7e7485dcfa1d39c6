"""What importing the parsing layer costs, seen from a new interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests import patience

import nemo_run.cli


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience.seconds(60),
    )
    return set(done.stdout.split())


HEAVY = {"typer", "click", "rich", "torchx", "omegaconf", "yaml", "catalogue"}


def test_importing_the_package_loads_nothing() -> None:
    assert not loaded_by("import nemo_run.cli") & {"fiddle", *HEAVY}


@pytest.mark.parametrize("module", ["cli_parser", "api", "lazy"])
def test_the_parser_needs_fiddle_and_little_else(module: str) -> None:
    assert not loaded_by(f"import nemo_run.cli.{module}") & HEAVY


def test_all_public_names_resolve() -> None:
    for name in nemo_run.cli.__all__:
        assert getattr(nemo_run.cli, name).__name__ == name
        assert name in dir(nemo_run.cli)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = nemo_run.cli.no_such_name


def test_modules_are_reachable_as_attributes() -> None:
    code = "import nemo_run as run; run.cli.config.ConfigSerializer; run.cli.lazy.LazyTarget"
    assert "fiddle" in loaded_by(code)


def test_there_is_an_empty_workspace_module() -> None:
    import nemo_run.cli.workspace as workspace

    assert not [name for name in vars(workspace) if not name.startswith("__")]


def test_the_help_of_a_script_loads_nothing_that_changes_or_stores_tasks() -> None:
    code = (
        "import sys; sys.argv = ['fit.py', '--help']; import nemo_run as run\n"
        "def fit(x: int = 1): pass\n"
        "run.cli.main(fit)\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience.seconds(60),
    )
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert "nemo_run.cli.registry.entrypoint_help" in loaded
    needless = {
        "nemo_run.cli.values.edit",
        "nemo_run.cli.values.grammar",
        "difflib",
        "json",
        "argparse",
    }
    assert not loaded & {*HEAVY, *needless, "fiddle._src.experimental.serialization"}
