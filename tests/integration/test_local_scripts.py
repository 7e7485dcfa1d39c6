"""Scripts and functions as users launch them, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, log_of, script, states
from tests.integration.launching import launch, only_experiment, write

import nemo_run as run
from nemo_run.exceptions import ConfigError


class TestScripts:
    def test_a_path_is_relative_to_where_one_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "job.sh").write_text("echo from the file $1\n")
        with experiment() as exp:
            exp.add(run.Script("./job.sh", args=["a b"]), name="a")
            exp.run()
        assert log_of(exp, "a") == "from the file a b\n"

    def test_an_inline_script_runs_unchanged(self) -> None:
        text = 'x="a  b"; echo "$x" \'$x\' `echo sub` "\\$x"'
        with experiment() as exp:
            exp.add(script(text), name="a")
            exp.run()
        assert log_of(exp, "a") == "a  b $x sub $x\n"
        assert Path(exp._exp_dir, "a", "scripts", "a.sh").read_text().endswith(text)

    def test_a_module_is_run_as_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "pkg").mkdir()
        (tmp_path / "pkg" / "mod.py").write_text("import sys; print(__name__, sys.argv[1:])\n")
        with experiment() as exp:
            exp.add(
                run.Script("pkg.mod", entrypoint="python", m=True, args=["--lr", "1 2"]), name="a"
            )
            exp.run()
        assert log_of(exp, "a") == "__main__ ['--lr', '1 2']\n"

    def test_its_variables_are_visible(self) -> None:
        values = {"A": "1", "B": 'it\'s "quoted"', "C": "line\nbreak", "D": "$HOME"}
        with experiment() as exp:
            exp.add(script('printf "%s|" "$A" "$B" "$C" "$D"', env=values), name="a")
            exp.run()
        assert log_of(exp, "a") == "".join(f"{value}|" for value in values.values())

    def test_a_whole_command_line_works_or_is_refused_with_advice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "train.py").write_text("import sys; print('training', sys.argv[1])\n")
        try:
            with experiment() as exp:
                exp.add(run.Script("python train.py --lr=1"), name="a")
                exp.run()
        except ConfigError as err:
            assert "inline" in str(err)
        else:
            assert log_of(exp, "a") == "training --lr=1\n"

    def test_python_inline_needs_its_entrypoint(self) -> None:
        with experiment() as exp:
            exp.add(script("print('x')", entrypoint="python"), name="a")
            exp.run()
        assert log_of(exp, "a") == "x\n"

    @pytest.mark.parametrize(
        "name", ["with space", "it's", 'say "hi"', "naïve ☃", "$HOME", "-rf", "a&b;c"]
    )
    def test_odd_names_work(self, name: str) -> None:
        with experiment() as exp:
            exp.add(script("echo hi"), name=name)
            exp.run()
        assert states(exp) == {name: "SUCCEEDED"}
        assert log_of(exp, name) == "hi\n"
        assert states(run.Experiment.from_id(exp._id)) == {name: "SUCCEEDED"}

    @pytest.mark.parametrize("title", ["with space", "it's", "naïve ☃", "$HOME"])
    def test_odd_titles_work(self, title: str) -> None:
        with experiment(title) as exp:
            exp.add(script("echo hi"), name="a")
            exp.run()
        assert states(run.Experiment.from_title(title)) == {"a": "SUCCEEDED"}


@pytest.mark.slow
class TestMainModule:
    def test_functions_of_the_launching_script_run(self, tmp_path: Path) -> None:
        path = write(
            tmp_path,
            "from dataclasses import dataclass\n"
            "@dataclass\nclass Net:\n    width: int = 8\n"
            "def fit(net: Net, steps: int = 1):\n    print('width', net.width, steps)\n"
            "if __name__ == '__main__':\n"
            "    with run.Experiment('mine', clean_mode=True, check=True) as exp:\n"
            "        exp.add(run.Partial(fit, net=run.Config(Net, width=3), steps=2), name='fit')\n"
            "        exp.run()\n",
        )
        done = launch(path)
        assert done.returncode == 0, done.stderr
        exp = only_experiment("mine")
        assert log_of(exp, "fit") == "width 3 2\n"
        assert Path(exp._exp_dir, "__main__.py").read_text() == path.read_text()

    def test_without_a_script_there_is_an_empty_file(self, tmp_path: Path) -> None:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import nemo_run as run\n"
                "with run.Experiment('mine', clean_mode=True) as exp:\n"
                "    exp.add(run.Script(inline='true'), name='a')\n"
                "    exp.run()\n",
            ],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert Path(only_experiment("mine")._exp_dir, "__main__.py").read_text() == ""

    def test_modules_beside_the_script_are_found(self, tmp_path: Path) -> None:
        (tmp_path / "beside.py").write_text("def hi():\n    print('beside')\n")
        path = write(
            tmp_path,
            "import beside\n"
            "if __name__ == '__main__':\n"
            "    with run.Experiment('mine', clean_mode=True, check=True) as exp:\n"
            "        exp.add(run.Partial(beside.hi), name='a')\n"
            "        exp.run()\n",
        )
        done = launch(path)
        assert done.returncode == 0, done.stderr
        assert log_of(only_experiment("mine"), "a") == "beside\n"

    def test_a_failed_job_is_the_exit_code_of_the_launcher(self, tmp_path: Path) -> None:
        path = write(
            tmp_path,
            "bad = script('echo last words; exit 3')\n"
            "run.run(bad, executor=run.LocalExecutor(), name='bad')\n",
        )
        done = launch(path)
        assert done.returncode == 1
        assert "Job bad FAILED with exit code 3\n  | last words\n" in done.stderr

    def test_reset_executes_the_saved_script_only_when_it_runs(self, tmp_path: Path) -> None:
        evidence = tmp_path / "executed"
        path = write(
            tmp_path,
            f"open({str(evidence)!r}, 'a').write('x\\n')\n"
            "def mine():\n    print('mine')\n"
            "if __name__ == '__main__':\n"
            "    with run.Experiment('mine', clean_mode=True) as exp:\n"
            "        exp.add(run.Partial(mine), name='a')\n"
            "        exp.run()\n",
        )
        done = launch(path)
        assert done.returncode == 0, done.stderr
        evidence.unlink()
        again = write(
            tmp_path,
            "exp = run.Experiment.from_title('mine')\n"
            "exp.status(); exp.logs('a'); exp.cancel('a'); exp.jobs\n"
            "again = exp.reset()\n"
            f"assert not os.path.exists({str(evidence)!r}), 'executed too early'\n"
            "with again:\n    again.run()\n"
            "again.raise_if_failed()\n",
            "again.py",
        )
        done = launch(again)
        assert done.returncode == 0, done.stderr
        assert evidence.exists()
        _, second = run.Experiment.catalog("mine")
        assert log_of(run.Experiment.from_id(second), "a") == "mine\n"

    def test_another_process_sees_status_logs_and_tasks(self, tmp_path: Path) -> None:
        with experiment("seen") as exp:
            exp.add(script("echo from before; exit 3"), name="a")
            exp.run()
        path = write(
            tmp_path,
            "for exp in (run.Experiment.from_title('seen'), run.Experiment.from_id(sys.argv[1])):\n"
            "    entry = exp.status(return_dict=True)['a']\n"
            "    print(entry['status'].name, entry['exit_code'], exp.tasks[0].inline)\n"
            "    exp.logs('a')\n",
        )
        done = launch(path, exp._id)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "FAILED 3 echo from before; exit 3\n" * 2
        assert done.stderr.count("from before\n") == 2
