"""``import nemo_run`` is cheap, and its names resolve in whatever order they are touched."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import nemo_run

HEAVY = (
    "torchx",
    "fiddle",
    "rich",
    "typer",
    "click",
    "yaml",
    "omegaconf",
    "tomli_w",
    "jinja2",
    "docker",
    "requests",
    "graphviz",
    "sky",
    "skypilot",
    "leptonai",
    "kubernetes",
    "ray",
    "fabric",
    "paramiko",
    "torch",
    "networkx",
    "catalogue",
)


def in_new_interpreter(code: str, *, cwd: Path | None = None) -> str:
    """Run code in an interpreter of its own, warnings as errors; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_loads_no_heavy_library() -> None:
    code = f"""
        import sys
        before = set(sys.modules)
        import nemo_run
        loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
        print(sorted(loaded & set({HEAVY!r})))
    """
    assert in_new_interpreter(code) == "[]"


def test_importing_loads_nothing_from_outside_the_standard_library() -> None:
    code = """
        import sys
        before = set(sys.modules)
        import nemo_run
        loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(loaded - set(sys.stdlib_module_names) - {"nemo_run"}))
    """
    assert in_new_interpreter(code) == "[]"


@pytest.mark.parametrize(
    "touch",
    [
        "nemo_run.__version__",
        "nemo_run.__all__",
        "dir(nemo_run)",
        "nemo_run.exceptions",
        "nemo_run.package_info",
        "hasattr(nemo_run, 'no_such_name')",
    ],
)
def test_looking_around_loads_no_heavy_library(touch: str) -> None:
    code = f"""
        import sys
        import nemo_run
        {touch}
        loaded = {{name.partition(".")[0] for name in sys.modules}}
        print(sorted(loaded & set({HEAVY!r})))
    """
    assert in_new_interpreter(code) == "[]"


VENDORS = ("sky", "leptonai", "kubernetes", "ray", "torch", "fabric", "paramiko", "docker")


@pytest.mark.parametrize(
    "name",
    [name for name in nemo_run.__all__ if name.endswith("Executor")],
)
def test_touching_an_executor_loads_no_vendor_library(name: str) -> None:
    code = f"""
        import sys
        import nemo_run
        nemo_run.{name}
        loaded = {{name.partition(".")[0] for name in sys.modules}}
        print(sorted(loaded & set({VENDORS!r})))
    """
    assert in_new_interpreter(code) == "[]"


def test_a_local_job_loads_no_other_backend() -> None:
    code = """
        import sys
        import nemo_run as run
        with run.Experiment("one", clean_mode=True) as exp:
            exp.add(run.Script(inline="true"), executor=run.LocalExecutor())
            exp.run()
        others = ("slurm", "skypilot", "lepton", "dgxcloud", "kubeflow", "tunnel")
        found = [name for name in sys.modules if name.rpartition(".")[2] in others]
        sys.exit(f"loaded {found}" if found else 0)
    """
    in_new_interpreter(code)


RUN_ORDERS = {
    "attribute first": "import nemo_run; nemo_run.run; import nemo_run.run.experiment",
    "submodule first": "import nemo_run.run.experiment; import nemo_run; nemo_run.run",
    "package first": "import nemo_run.run",
    "from import": "from nemo_run import run; import nemo_run",
    "from import of a submodule": "from nemo_run.run.experiment import Experiment; import nemo_run",
    "alias": "import nemo_run.run as r; import nemo_run; assert r is nemo_run.run",
    "function module first": "import nemo_run.run.api; import nemo_run",
    "star import": "from nemo_run.config import *; import nemo_run.run.experiment; import nemo_run",
    "another name first": "import nemo_run; nemo_run.Config; nemo_run.Experiment",
}


@pytest.mark.slow
@pytest.mark.parametrize("order", RUN_ORDERS.values(), ids=RUN_ORDERS)
def test_run_is_function_and_package_in_any_order(order: str) -> None:
    code = f"""
        {order}
        assert callable(nemo_run.run)
        assert nemo_run.run.experiment.Experiment is nemo_run.Experiment
        import sys
        assert sys.modules["nemo_run.run"].experiment is sys.modules["nemo_run.run.experiment"]
        from nemo_run import run
        assert callable(run)
        import nemo_run.run.experiment
        assert callable(nemo_run.run)
        print("both")
    """
    assert in_new_interpreter(code) == "both"


@pytest.mark.parametrize(
    "code",
    [
        "import nemo_run.run as r; print(r.experiment.__name__)",
        "from nemo_run import run; print(run.experiment.__name__)",
        "import nemo_run; print(nemo_run.run.experiment.Experiment.__module__)",
        "from nemo_run.run import experiment; print(experiment.__name__)",
    ],
)
@pytest.mark.slow
def test_submodules_of_run_are_reachable(code: str) -> None:
    assert in_new_interpreter(code) == "nemo_run.run.experiment"


def test_calling_run_calls_the_function() -> None:
    code = """
        import nemo_run
        try:
            nemo_run.run()
        except TypeError as error:
            print(error)
    """
    assert "fn_or_script" in in_new_interpreter(code)


HELP_ORDERS = {
    "attribute first": "import nemo_run; nemo_run.help; import nemo_run.help",
    "module first": "import nemo_run.help; import nemo_run; nemo_run.help",
    "from the module": "from nemo_run.help import help_for_callable; import nemo_run",
    "from the package": "from nemo_run import help; import nemo_run; import nemo_run.help",
    "alias": "import nemo_run.help as h; import nemo_run; assert callable(h)",
}


@pytest.mark.parametrize("order", HELP_ORDERS.values(), ids=HELP_ORDERS)
def test_help_is_function_and_module_in_any_order(order: str) -> None:
    code = f"""
        {order}
        assert callable(nemo_run.help)
        from nemo_run.help import class_to_str, help, help_for_callable, help_for_type
        assert callable(help)
        import nemo_run.help
        assert callable(nemo_run.help)
        import textwrap
        nemo_run.help(textwrap.dedent)
    """
    assert in_new_interpreter(code) != ""


@pytest.mark.parametrize(
    "name",
    ("config", "cli", "core", "exceptions", "package_info", "api", "devspace"),
)
def test_submodules_are_reachable_after_a_plain_import(name: str) -> None:
    assert in_new_interpreter(f"import nemo_run as run; print(run.{name}.__name__)") == (
        f"nemo_run.{name}"
    )


@pytest.mark.parametrize(
    "code",
    [
        "run.config.set_nemorun_home('/x'); print(run.config.get_nemorun_home())",
        "from nemo_run.config import set_nemorun_home, get_nemorun_home as home; "
        "set_nemorun_home('/x'); print(home())",
    ],
)
def test_the_home_directory_can_be_set_the_usual_way(code: str) -> None:
    assert in_new_interpreter(f"import nemo_run as run; {code}") == "/x"


def test_dir_shows_every_public_name_once() -> None:
    shown = dir(nemo_run)
    assert set(nemo_run.__all__) <= set(shown)
    assert {"api", "config", "core", "exceptions", "package_info"} <= set(shown)
    assert len(shown) == len(set(shown))
    assert shown == sorted(shown)


def test_a_name_once_resolved_is_an_ordinary_attribute() -> None:
    code = """
        import nemo_run
        nemo_run.Config
        print("Config" in vars(nemo_run))
    """
    assert in_new_interpreter(code) == "True"


@pytest.mark.slow
def test_a_star_import_brings_what_is_there() -> None:
    code = """
        import nemo_run
        from nemo_run import *
        print([name for name in nemo_run.__all__ if name not in globals()])
    """
    assert in_new_interpreter(code) == "[]"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("Confg", "Config"), ("experiment", "Experiment"), ("LocalExecuter", "LocalExecutor")],
)
def test_a_misspelled_name_is_an_attribute_error_with_a_suggestion(wrong: str, right: str) -> None:
    with pytest.raises(AttributeError, match=rf"nemo_run.*{wrong}.*{right}"):
        getattr(nemo_run, wrong)


def test_a_name_like_no_other_is_an_attribute_error_without_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="zzzzzzzz") as caught:
        getattr(nemo_run, "z" * 8)
    assert "mean" not in str(caught.value)


def test_a_misspelled_name_cannot_be_imported() -> None:
    with pytest.raises(ImportError, match="Confg"):
        exec("from nemo_run import Confg")


TYPED = """
import nemo_run as run
from nemo_run import Config, LocalExecutor

config: run.Config[LocalExecutor] = run.Config(LocalExecutor, ntasks_per_node=2)
partial: run.Partial[int] = run.Partial(int)
script = run.Script(inline="echo hi")
same: Config[LocalExecutor] = config
text: str = script.inline
executor = run.LocalExecutor(ntasks_per_node=2)
count: int = executor.ntasks_per_node
home: str = run.config.get_nemorun_home()
error: type[ValueError] = run.exceptions.SetValueError
version: str = run.__version__
"""


MISTAKEN = """
import nemo_run as run
run.Confg
run.Script(inline=3)
run.LocalExecutor(ntask=2)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_type_checker_sees_the_names_and_mistakes(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    (tmp_path / "mistaken.py").write_text(MISTAKEN, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n", encoding="utf-8")
    cache = ["--cache-dir", str(tmp_path / "cache")]
    # One call for both: it reads the whole package.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *cache, "typed.py", "mistaken.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    found = [line.partition(": error: ")[0] for line in done.stdout.splitlines()]
    assert 'mistaken.py:3: error: Module has no attribute "Confg"' in done.stdout
    assert found[:-1] == ["mistaken.py:3", "mistaken.py:4", "mistaken.py:5"]


@pytest.mark.parametrize(
    "name",
    [
        "core.execution.slurm.SlurmJobDetails",
        "core.execution.base.Executor",
        "core.execution.utils.fill_template",
        "core.tunnel.client.Tunnel",
        "core.tunnel.rsync.rsync",
        "core.packaging.git.GitArchivePackager",
        "core.serialization.zlib_json.ZlibJSONSerializer",
        "core.frontend.console.api.CONSOLE",
        "core.runners.fdl_runner",
        "run.sweep",
        "run.torchx_backend.schedulers.slurm.create_scheduler",
        "run.torchx_backend.components.torchrun",
    ],
)
def test_modules_are_attributes_of_their_packages(name: str) -> None:
    in_new_interpreter(f"import nemo_run\nnemo_run.{name}")
