"""What a workspace file defines runs where its job runs, by the installed command."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands
from tests.cli.commands import Result

pytestmark = pytest.mark.slow

WORKSPACE = """
import multiprocessing
from pathlib import Path
import nemo_run as run

def doubled(x): return 2 * x

class Rate:
    def __init__(self, value: float = 0.5):
        self.value = value

class Code(run.Packager):
    def setup(self):
        print("set up by", Path(__file__).name)

@run.cli.entrypoint(namespace="mine")
def train(epochs: int = 1, rate: Rate = Rate(0.25)):
    beside = (Path(__file__).parent / "data").read_text()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("trained", pool.map(doubled, [epochs]), rate.value, beside)

@run.cli.factory
@run.autoconvert
def here() -> run.LocalExecutor:
    return run.LocalExecutor(packager=Code())
"""
TRAIN = ("mine", "train", "run.executor=here", "epochs=4", "rate=Rate(value=0.75)", "--yes")
TRAINED = "trained [8] 0.75 seen"


def nemorun(*words: str, cwd: Path) -> Result:
    return commands.nemorun(*words, cwd=cwd, env={"INCLUDE_WORKSPACE_FILE": "true"})


@pytest.fixture
def below(here: Path) -> Path:
    """A directory below that of a workspace file, from where no module can be imported."""
    (here / "data").write_text("seen")
    directory = here / "a" / "b"
    directory.mkdir(parents=True)
    return directory


@pytest.mark.parametrize("name", ["workspace.py", "workspace_private.py"])
def test_functions_classes_and_packagers_of_a_workspace_file_are_in_the_job(
    below: Path, name: str
) -> None:
    (below.parents[1] / name).write_text(WORKSPACE)
    done = nemorun(*TRAIN, cwd=below)
    assert done.code == 0, done.out + done.err
    assert f"set up by {name}" in done.lines
    assert TRAINED in done.lines


def test_an_experiment_is_run_again_with_the_workspace_file_that_it_had(
    below: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    workspace = below.parents[1] / "workspace.py"
    workspace.write_text(WORKSPACE)
    assert nemorun(*TRAIN, "--name", "first", cwd=below).code == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "workspace.py").write_text(
        WORKSPACE.replace("trained", "changed").replace("2 * x", "3 * x")
    )
    again = nemorun("experiment", "rerun", "first", cwd=elsewhere)
    assert again.code == 0, again.out + again.err
    log = nemorun("experiment", "logs", "first", cwd=elsewhere)
    assert TRAINED in log.out
    assert "changed" not in log.out


def test_a_traceback_names_the_file_that_its_user_wrote(below: Path) -> None:
    workspace = below.parents[1] / "workspace.py"
    workspace.write_text(WORKSPACE.replace("beside = ", "1 / (epochs - 4); beside = "))
    done = nemorun(*TRAIN, cwd=below)
    assert done.code == 1
    assert f'File "{workspace}"' in done.out
    assert "1 / (epochs - 4)" in done.out
