"""Scripts: what is checked, what they are called and the command they become."""

from __future__ import annotations

import dataclasses
import stat
import subprocess
from pathlib import Path
from typing import Any

import fiddle as fdl
import pytest

from nemo_run.config import Config, ConfigurableMixin, Script
from nemo_run.exceptions import ConfigError


class TestFields:
    def test_it_is_a_dataclass_that_can_describe_itself(self) -> None:
        assert dataclasses.is_dataclass(Script)
        assert issubclass(Script, ConfigurableMixin)

    def test_fields_come_in_this_order(self) -> None:
        assert [field.name for field in dataclasses.fields(Script)] == [
            "path",
            "inline",
            "args",
            "env",
            "entrypoint",
            "m",
            "metadata",
        ]

    @pytest.mark.parametrize(
        ("name", "default"),
        [
            ("inline", ""),
            ("args", []),
            ("env", {}),
            ("entrypoint", "bash"),
            ("m", False),
            ("metadata", {}),
        ],
    )
    def test_a_field_has_this_default(self, name: str, default: Any) -> None:
        assert getattr(Script("job.sh"), name) == default

    def test_the_path_is_empty_for_an_inline_script(self) -> None:
        assert Script(inline="true").path == ""

    def test_the_first_argument_is_the_path(self) -> None:
        assert Script("job.sh").path == "job.sh"

    @pytest.mark.parametrize("name", ["args", "env", "metadata"])
    def test_defaults_are_not_shared(self, name: str) -> None:
        assert getattr(Script("a"), name) is not getattr(Script("a"), name)

    def test_it_becomes_a_config_that_builds_it_again(self) -> None:
        script = Script("job.sh", args=["a"], env={"A": "1"}, metadata={"k": [1]})
        cfg = script.to_config()
        assert isinstance(cfg, Config)
        assert fdl.build(cfg) == script


class TestChecks:
    @pytest.mark.parametrize("error", [ConfigError, AssertionError, ValueError])
    @pytest.mark.parametrize(
        "kwargs",
        [
            {},
            {"path": "", "inline": ""},
            {"path": "job.sh", "entrypoint": ""},
            {"path": "pkg.mod", "m": True},
            {"path": "pkg.mod", "m": True, "entrypoint": "bash"},
        ],
        ids=["nothing to run", "empty", "no entrypoint", "m with bash by default", "m with bash"],
    )
    def test_a_wrong_setting_is_refused(
        self, kwargs: dict[str, Any], error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            Script(**kwargs)

    @pytest.mark.parametrize("entrypoint", ["python", "python3.11", "/usr/bin/python3"])
    def test_a_module_needs_python_somewhere_in_the_entrypoint(self, entrypoint: str) -> None:
        assert Script("pkg.mod", entrypoint=entrypoint, m=True).m


class TestName:
    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("echo hello world", "echo_hello"),
            ("  \n echo hello", "echo_hello"),
            ("ls", "ls"),
            ("a  ---  b  c", "a_b_"),
            ("a_ b", "a_b"),
            ("#!/bin/sh\n", "_bin_sh"),
        ],
    )
    def test_an_inline_script_is_called_after_its_start(self, text: str, name: str) -> None:
        assert Script(inline=text).get_name() == name

    @pytest.mark.parametrize("path", ["job.sh", "./job.sh", "/a/b/job.sh", "../x/job.sh"])
    def test_a_script_file_is_called_after_the_file(self, path: str) -> None:
        assert Script(path).get_name() == "job.sh"

    def test_a_module_is_called_after_its_path(self) -> None:
        assert Script("pkg.mod", entrypoint="python", m=True).get_name() == "pkg.mod"

    @pytest.mark.parametrize(
        "line",
        [
            "python train.py --lr=1",
            "python -u scripts/train.py --out /tmp/x",
            "./run.sh --name 'a b'",
            "/usr/bin/env python3 /opt/train.py",
        ],
    )
    def test_a_command_line_has_a_name_fit_for_a_job(self, line: str) -> None:
        name = Script(line).get_name()
        assert name
        assert not set(name) & set(" /")

    def test_a_command_line_is_not_called_after_its_interpreter(self) -> None:
        assert Script("python train.py --lr=1").get_name() != "python"


class TestPathCommand:
    @pytest.mark.parametrize(
        ("script", "command"),
        [
            (Script("job.sh"), ["job.sh"]),
            (Script("job.sh", args=["a", "b c"]), ["job.sh", "a", "b c"]),
            (
                Script("pkg.mod", entrypoint="python", m=True, args=["--lr", "1"]),
                ["-m", "pkg.mod", "--lr", "1"],
            ),
        ],
        ids=["plain", "arguments", "module"],
    )
    def test_path_and_arguments_make_the_command(self, script: Script, command: list[str]) -> None:
        assert script.to_command() == command
        assert script.to_command(with_entrypoint=True) == [script.entrypoint, *command]

    def test_a_file_whose_name_has_blanks_is_one_word(self, tmp_path: Path) -> None:
        path = tmp_path / "my job.sh"
        path.write_text("true")
        script = Script(str(path), args=["x"])
        assert script.to_command(with_entrypoint=True) == ["bash", str(path), "x"]

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("python train.py --lr=1", ["python", "train.py", "--lr=1"]),
            ("python train.py --name 'a b'", ["python", "train.py", "--name", "a b"]),
            ('./run.sh "x y"  z', ["./run.sh", "x y", "z"]),
        ],
    )
    def test_a_command_line_is_split_as_a_shell_would(self, line: str, words: list[str]) -> None:
        assert Script(line).to_command(with_entrypoint=True) == words


class TestInlineWithoutFile:
    @pytest.mark.parametrize(
        ("text", "quoted"),
        [("echo hi", '"echo hi"'), ('echo "hi"', '"echo \\"hi\\""'), ("a\nb", '"a\nb"')],
    )
    def test_the_text_is_one_quoted_word(self, text: str, quoted: str) -> None:
        assert Script(inline=text).to_command() == ["-c", quoted]

    def test_the_entrypoint_comes_first(self) -> None:
        script = Script(inline="print(1)", entrypoint="python")
        assert script.to_command(with_entrypoint=True) == ["python", "-c", '"print(1)"']


class TestInlineWithFile:
    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        return tmp_path / "scripts" / "job.sh"

    @pytest.mark.parametrize(
        ("entrypoint", "shebang"),
        [
            ("bash", "#!/usr/bin/bash"),
            ("sh", "#!/usr/bin/env sh"),
            ("python", "#!/usr/bin/env python"),
            ("python3", "#!/usr/bin/env python3"),
        ],
    )
    def test_the_file_holds_the_text_after_a_fitting_first_line(
        self, target: Path, entrypoint: str, shebang: str
    ) -> None:
        Script(inline='x = "1"\n$y', entrypoint=entrypoint).to_command(filename=str(target))
        assert target.read_text() == f'{shebang}\nx = "1"\n$y'

    def test_missing_parents_are_made(self, tmp_path: Path) -> None:
        target = tmp_path / "a" / "b" / "job.sh"
        Script(inline="true").to_command(filename=str(target))
        assert target.is_file()

    def test_the_file_may_be_run(self, target: Path) -> None:
        Script(inline="true").to_command(filename=str(target))
        assert stat.S_IMODE(target.stat().st_mode) & 0o755 == 0o755

    def test_bits_that_were_set_stay_set(self, target: Path) -> None:
        target.parent.mkdir()
        target.touch()
        target.chmod(0o620)
        Script(inline="true").to_command(filename=str(target))
        assert stat.S_IMODE(target.stat().st_mode) & 0o775 == 0o775

    def test_an_older_file_is_replaced(self, target: Path) -> None:
        Script(inline="echo a much longer text").to_command(filename=str(target))
        Script(inline="true").to_command(filename=str(target))
        assert target.read_text() == "#!/usr/bin/bash\ntrue"

    def test_text_beyond_ascii_is_kept(self, target: Path) -> None:
        Script(inline="echo naïve ✓").to_command(filename=str(target))
        assert target.read_text(encoding="utf-8").endswith("echo naïve ✓")

    def test_locally_the_command_is_the_file(self, target: Path) -> None:
        assert Script(inline="true").to_command(filename=str(target), is_local=True) == [
            str(target)
        ]

    def test_elsewhere_it_is_the_file_in_the_job_directory(self, target: Path) -> None:
        assert Script(inline="true").to_command(filename=str(target)) == [
            "/nemo_run/scripts/job.sh"
        ]

    def test_the_entrypoint_comes_first(self, target: Path) -> None:
        script = Script(inline="1", entrypoint="python")
        assert script.to_command(with_entrypoint=True, filename=str(target)) == [
            "python",
            "/nemo_run/scripts/job.sh",
        ]

    @pytest.mark.parametrize("is_local", [True, False])
    def test_arguments_follow_the_file(self, target: Path, is_local: bool) -> None:
        script = Script(inline="true", args=["a", "b c"])
        command = script.to_command(filename=str(target), is_local=is_local)
        assert command[1:] == ["a", "b c"]

    @pytest.mark.parametrize(
        ("entrypoint", "text"),
        [
            ("bash", "printf '%s\\n' \"$@\""),
            ("python3", "import sys\nfor arg in sys.argv[1:]:\n    print(arg)"),
        ],
    )
    @pytest.mark.parametrize("with_entrypoint", [True, False])
    def test_the_command_runs_and_gets_its_arguments(
        self, target: Path, entrypoint: str, text: str, with_entrypoint: bool
    ) -> None:
        script = Script(inline=text, entrypoint=entrypoint, args=["a b", "$HOME", "'"])
        command = script.to_command(with_entrypoint, filename=str(target), is_local=True)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "a b\n$HOME\n'\n"


class TestRunDirectory:
    @staticmethod
    def _written(text: str, tmp_path: Path, root: str | None) -> str:
        target = tmp_path / "job.sh"
        Script(inline=text).to_command(filename=str(target), substitute_rundir_path=root)
        return target.read_text().removeprefix("#!/usr/bin/bash\n")

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("cd /nemo_run", "cd /jobs/1"),
            ("cd /nemo_run/code/x", "cd /jobs/1/code/x"),
            ("cd '/nemo_run' && ls \"/nemo_run/a\"", "cd '/jobs/1' && ls \"/jobs/1/a\""),
            ("x --dir=/nemo_run; y", "x --dir=/jobs/1; y"),
            ("P=/a:/nemo_run:/b", "P=/a:/jobs/1:/b"),
            ("echo x >/nemo_run/out", "echo x >/jobs/1/out"),
            ("$(ls /nemo_run)", "$(ls /jobs/1)"),
            ("/nemo_run\n/nemo_run", "/jobs/1\n/jobs/1"),
        ],
    )
    def test_the_job_directory_is_replaced(self, text: str, expected: str, tmp_path: Path) -> None:
        assert self._written(text, tmp_path, "/jobs/1") == expected

    @pytest.mark.parametrize(
        "text",
        [
            "cd /nemo_run_x",
            "cd /nemo_runs/a",
            "cd /nemo_run-2",
            "cd /nemo_run.bak",
            "cd /opt/nemo_run",
            "cd $HOME/nemo_run",
            "cd ${HOME}/nemo_run/x",
            "cd ./nemo_run",
            "nemo_run",
        ],
    )
    def test_other_paths_are_left_alone(self, text: str, tmp_path: Path) -> None:
        assert self._written(text, tmp_path, "/jobs/1") == text

    def test_nothing_is_replaced_unless_asked_for(self, tmp_path: Path) -> None:
        assert self._written("cd /nemo_run", tmp_path, None) == "cd /nemo_run"

    @pytest.mark.parametrize("root", [r"/jobs/\1", r"/jobs/\g<0>", "/jobs/a b", "/nemo_run/x"])
    def test_the_path_is_put_in_as_it_is(self, root: str, tmp_path: Path) -> None:
        assert self._written("cd /nemo_run/a", tmp_path, root) == f"cd {root}/a"


def test_the_name_of_a_long_command_line_can_name_a_job() -> None:
    assert len(Script(f"python -c '{'x' * 500}'").get_name()) <= 60
