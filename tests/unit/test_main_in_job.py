"""Inside of a job the launching script is what it is under plain ``python``: the main module."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.experiments import log_of
from tests.integration.launching import HEADER, launch, only_experiment, write
from tests.unit.test_runner_module import fdl_runner

pytestmark = pytest.mark.slow

LAUNCH = (
    "    with run.Experiment('mine', clean_mode=True, check=True) as exp:\n"
    "        exp.add(run.Partial(f), executor=run.LocalExecutor(time_limit_s=60), name='a')\n"
    "        exp.run()\n"
)
GUARD = "if __name__ == '__main__':\n"

SQUARES = """\
import concurrent.futures, dataclasses, multiprocessing
@dataclasses.dataclass
class Square:
    of: int
    @property
    def size(self):
        return self.of ** 2
def square(number):
    return Square(number)
def grandchild(number):
    context = multiprocessing.get_context('spawn')
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        return pool.submit(square, number).result(200)
def put(queue, number):
    queue.put(square(number))
"""

BY_POOL = """\
def f():
    with multiprocessing.get_context(METHOD).Pool(2) as pool:
        print([found.size for found in pool.map_async(square, [1, 2, 3]).get(200)])
"""
BY_PROCESS = """\
def f():
    context = multiprocessing.get_context(METHOD)
    queue = context.Queue()
    for number in (1, 2, 3):
        context.Process(target=put, args=(queue, number)).start()
    print(sorted(queue.get(timeout=200).size for _ in range(3)))
"""
BY_EXECUTOR = """\
def f():
    context = multiprocessing.get_context(METHOD)
    with concurrent.futures.ProcessPoolExecutor(2, context) as pool:
        print([found.size for found in pool.map(grandchild, [1, 2, 3], timeout=200)])
"""


def logged(directory: Path, text: str) -> str:
    """Run a script and return the log of its only job, which has to succeed."""
    done = launch(write(directory, text))
    assert done.returncode == 0, done.stderr
    return log_of(only_experiment("mine"), "a")


def saved(directory: Path, text: str) -> str:
    """Save a script whose function ``f`` is a task, as for a machine that lacks it; its path."""
    configs = directory / "mine" / "job" / "configs"
    configs.mkdir(parents=True)
    script = directory / "launch.py"
    script.write_text(
        f"{text}import nemo_run as run\n"
        "from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer\n"
        f"{GUARD}    print(ZlibJSONSerializer().serialize(run.Partial(f)), end='')\n"
    )
    packed = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    (configs / "task").write_text(packed.stdout)
    (configs / "_SCRIPT").write_text(str(script))
    script.rename(configs / "__main__.py")
    return str(configs / "task")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("way", [BY_POOL, BY_PROCESS, BY_EXECUTOR], ids=["pool", "process", "nest"])
def test_processes_that_a_job_spawns_find_what_the_script_defines(
    method: str, way: str, tmp_path: Path
) -> None:
    text = SQUARES + way.replace("METHOD", repr(method)) + GUARD + LAUNCH
    assert logged(tmp_path, text) == "[1, 4, 9]\n"


def test_spawned_processes_launch_nothing_where_the_script_has_no_guard(tmp_path: Path) -> None:
    text = SQUARES + BY_POOL.replace("METHOD", "'spawn'") + "if True:\n" + LAUNCH
    assert logged(tmp_path, text) == "[1, 4, 9]\n"


def test_processes_that_a_function_of_a_module_spawns_load_no_script(tmp_path: Path) -> None:
    (tmp_path / "squares.py").write_text(SQUARES + BY_POOL.replace("METHOD", "'spawn'"))
    text = "print('loaded')\nfrom squares import f\n" + GUARD + LAUNCH
    assert logged(tmp_path, text) == "[1, 4, 9]\n"


def test_the_script_loads_what_its_job_has_pickled(tmp_path: Path) -> None:
    text = (
        "import pickle\n"
        "class Result:\n    class Part:\n        word = 'inner'\n"
        "def f():\n    pickle.dump(Result.Part(), open('result.pkl', 'wb'))\n"
        f"{GUARD}{LAUNCH}    print(pickle.load(open('result.pkl', 'rb')).word)\n"
    )
    done = launch(write(tmp_path, text))
    assert (done.returncode, done.stdout) == (0, "inner\n"), done.stderr
    with pytest.raises(AttributeError, match="Result"):
        pickle.loads((tmp_path / "result.pkl").read_bytes())  # of __main__, which is another here


def test_a_job_knows_the_script_by_its_own_name_and_place(tmp_path: Path) -> None:
    text = (
        "def f():\n"
        "    print(__name__, f.__module__, __file__, sys.modules['__main__'].f is f)\n"
        f"{GUARD}{LAUNCH}"
    )
    assert logged(tmp_path, text) == f"__main__ __main__ {tmp_path}/launch.py True\n"


@pytest.mark.parametrize(
    "guard",
    [
        "if '__main__' == __name__:\n",
        "if __name__ in ('__main__', 'main') and not os.environ.get('NONE'):\n",
        "if __name__ != '__main__':\n    pass\nelse:\n",
        "def is_main():\n    return __name__ == '__main__'\nif is_main():\n",
    ],
)
def test_a_guard_may_be_written_in_other_ways(guard: str, tmp_path: Path) -> None:
    launching = f"    print('launching')\n{LAUNCH}"
    assert logged(tmp_path, f"def f():\n    print('ran')\n{guard}{launching}") == "ran\n"


@pytest.mark.parametrize("word", ["", "async "], ids=["function", "coroutine"])
def test_a_traceback_names_the_script_and_nothing_of_ours(word: str, tmp_path: Path) -> None:
    launching = LAUNCH.replace("check=True", "check=False")
    path = write(
        tmp_path,
        f"def g():\n    raise LookupError('nothing there')\n{word}def f():\n    g()\n"
        f"{GUARD}{launching}",
    )
    done = launch(path)
    assert done.returncode == 0, done.stderr
    first = HEADER.count("\n")
    told = [line for line in log_of(only_experiment("mine"), "a").splitlines() if "^" not in line]
    assert told == [
        "Traceback (most recent call last):",
        f'  File "{path}", line {first + 4}, in f',
        "    g()",
        f'  File "{path}", line {first + 2}, in g',
        "    raise LookupError('nothing there')",
        "LookupError: nothing there",
    ]


def test_lines_are_shown_where_the_script_is_not_there(tmp_path: Path) -> None:
    task = saved(tmp_path, "def f():\n    raise LookupError('nothing there')\n")
    done = fdl_runner(task)
    assert done.returncode == 1
    assert f'File "{tmp_path}/launch.py", line 2, in f' in done.stderr
    assert "    raise LookupError('nothing there')\n" in done.stderr


def test_code_can_read_its_source_and_spawn_where_the_script_is_not_there(tmp_path: Path) -> None:
    way = BY_POOL.replace("METHOD", "'spawn'") + "    print(inspect.getsource(square))\n"
    done = fdl_runner(saved(tmp_path, f"import inspect\n{SQUARES}{way}"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1, 4, 9]\ndef square(number):\n    return Square(number)\n\n"


def test_a_script_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    task = saved(tmp_path, "def f():\n    print('ran')\n")
    main = Path(task).with_name("__main__.py")
    main.write_text("import not_on_this_machine\n" + main.read_text())
    done = fdl_runner(task)
    assert done.returncode == 1
    assert f'File "{tmp_path}/launch.py", line 1' in done.stderr
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'not_on_this_machine'\n")


def test_a_job_launches_functions_of_the_same_script(tmp_path: Path) -> None:
    text = (
        SQUARES + "def g():\n    print('inner', square(3).size)\n"
        "def f():\n"
        "    with run.Experiment('nested', clean_mode=True, check=True) as exp:\n"
        "        exp.add(run.Partial(g), executor=run.LocalExecutor(), name='b')\n"
        "        exp.run()\n"
        f"{GUARD}{LAUNCH}"
    )
    logged(tmp_path, text)
    assert log_of(only_experiment("nested"), "b") == "inner 9\n"
