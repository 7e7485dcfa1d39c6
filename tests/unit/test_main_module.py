"""Functions and classes of the script that launches, however it is written and started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fiddle as fdl
import pytest
from tests import patience
from tests.contract.experiments import log_of
from tests.integration.launching import launch, only_experiment, write

import nemo_run as run
from nemo_run.exceptions import ConfigError

pytestmark = pytest.mark.slow

LAUNCH = (
    "    with run.Experiment('mine', clean_mode=True, check=True) as exp:\n"
    "        exp.add(run.Partial(f), name='a')\n"
    "        exp.run()\n"
)
GUARDED = "if __name__ == '__main__':\n" + LAUNCH


def python(*arguments: str, cwd: Path, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        input=input,
        capture_output=True,
        text=True,
        timeout=patience.seconds(60),
        check=False,
    )


@pytest.mark.parametrize(
    "top_level",
    [
        "run.run(run.Partial(f), executor=run.LocalExecutor(), name='a')\n",
        "run.run(run.Partial(f), executor=run.LocalExecutor(), name='a')\nprint('beyond')\n",
        "if True:\n" + LAUNCH.replace("'mine'", "'a'"),
    ],
    ids=["run", "run and more", "experiment"],
)
def test_a_script_without_a_guard_runs_its_functions_once(top_level: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"def f():\n    print('ran')\n{top_level}")
    done = launch(path)
    assert done.returncode == 0, done.stderr
    assert log_of(only_experiment("a"), "a") == "ran\n"


def test_functions_that_are_in_no_file_are_refused_with_advice(tmp_path: Path) -> None:
    done = python("-c", f"import nemo_run as run\ndef f(): pass\nif True:\n{LAUNCH}", cwd=tmp_path)
    assert done.returncode == 1
    assert "python -c" in done.stderr
    assert "Put it into a module" in done.stderr
    assert run.Experiment.catalog("mine") == []


def test_also_without_a_name_and_from_standard_input(tmp_path: Path) -> None:
    text = "import nemo_run as run\ndef f(): pass\nrun.run(run.Partial(f), run.LocalExecutor())\n"
    for arguments, input in ((["-c", text], ""), (["-"], text)):
        done = python(*arguments, cwd=tmp_path, input=input)
        assert done.returncode == 1
        assert "Put it into a module" in done.stderr
    assert run.Experiment.catalog() == []


def test_a_script_may_have_any_name(tmp_path: Path) -> None:
    path = write(tmp_path, f"def f():\n    print('ran')\n{GUARDED}", "train")
    done = launch(path)
    assert done.returncode == 0, done.stderr
    assert log_of(only_experiment("mine"), "a") == "ran\n"


def test_a_module_with_relative_imports_runs_its_functions(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("WORD = 'relative'\n")
    write(package, f"from .words import WORD\ndef f():\n    print(WORD)\n{GUARDED}", "train.py")
    done = python("-m", "pkg.train", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert log_of(only_experiment("mine"), "a") == "relative\n"


def test_each_stored_experiment_has_its_own_script(tmp_path: Path) -> None:
    for word in ("one", "two"):
        path = write(
            tmp_path,
            f"def f():\n    return {word!r}\n{GUARDED.replace('mine', word)}",
            f"{word}.py",
        )
        done = launch(path)
        assert done.returncode == 0, done.stderr
    found = [only_experiment(word).tasks[0] for word in ("one", "two")]
    assert [fdl.build(task)() for task in found] == ["one", "two"]


def test_a_packager_of_the_script_is_set_up_in_the_job(tmp_path: Path, nemorun_home: Path) -> None:
    path = write(
        tmp_path,
        "from dataclasses import dataclass\n"
        "@dataclass(kw_only=True)\n"
        "class Announcing(run.Packager):\n"
        "    word: str = ''\n"
        "    def setup(self):\n"
        "        print('set up', self.word, flush=True)\n"
        "def f():\n    print('ran')\n"
        "if __name__ == '__main__':\n"
        "    executor = run.LocalExecutor(packager=Announcing(word='here'))\n"
        f"{LAUNCH.replace('Partial(f)', 'Partial(f), executor=executor')}",
    )
    done = launch(path)
    assert done.returncode == 0, done.stderr
    # Nobody else has that class, and can look at the job all the same.
    exp = only_experiment("mine")
    assert log_of(exp, "a") == "set up here\nran\n"
    assert type(exp.jobs[0].executor.packager) is run.Packager


def test_a_script_in_another_encoding_runs_its_functions(tmp_path: Path) -> None:
    path = tmp_path / "launch.py"
    path.write_bytes(
        b"# -*- coding: latin-1 -*-\n# caf\xe9\nimport nemo_run as run\n"
        b"def f():\n    print(ascii('caf\xe9'))\n" + GUARDED.encode()
    )
    done = launch(path)
    assert done.returncode == 0, done.stderr
    exp = only_experiment("mine")
    assert log_of(exp, "a") == "'caf\\xe9'\n"
    assert Path(exp._exp_dir, "__main__.py").read_bytes() == path.read_bytes()


def test_the_search_path_of_the_executor_reaches_functions(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.py").write_text("WORD = 'far'\n")
    (tmp_path / "elsewhere" / "both.py").write_text("WORD = 'far'\n")
    (tmp_path / "both.py").write_text("WORD = 'beside the script'\n")
    path = write(
        tmp_path,
        "def f():\n    import both, far\n    print(far.WORD, both.WORD, sep=', ')\n"
        "if __name__ == '__main__':\n"
        f"    paths = {{'PYTHONPATH': {os.fspath(tmp_path / 'elsewhere')!r}}}\n"
        "    executor = run.LocalExecutor(env_vars=paths)\n"
        f"{LAUNCH.replace('Partial(f)', 'Partial(f), executor=executor')}",
    )
    done = launch(path)
    assert done.returncode == 0, done.stderr
    assert log_of(only_experiment("mine"), "a") == "far, beside the script\n"


def test_a_job_whose_packager_cannot_be_had_is_not_run_with_another(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "from dataclasses import dataclass\n"
        "@dataclass(kw_only=True)\nclass Own(run.Packager):\n    word: str = ''\n"
        "def f():\n    pass\n"
        "if __name__ == '__main__':\n"
        "    own = run.HybridPackager(sub_packagers={'part': Own(word='here')})\n"
        "    executor = run.LocalExecutor(packager=own)\n"
        f"{LAUNCH.replace('Partial(f)', 'Partial(f), executor=executor')}",
    )
    done = launch(path)
    assert done.returncode == 0, done.stderr
    exp = only_experiment("mine")
    stored = exp._directory.read_tasks()
    exp.resume()
    assert exp._directory.read_tasks() == stored
    Path(exp._exp_dir, "__main__.py").write_text("")
    with pytest.raises(ConfigError, match=r"Job 'a' cannot be run from here.*Own"):
        exp.reset()
    assert len(run.Experiment.catalog("mine")) == 1
