"""Launchers: what is put in front of a command."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import patience

import nemo_run as run
from nemo_run.core.execution.launcher import LAUNCHER_MAP, Launcher

SlurmTemplate: Any = getattr(run, "SlurmTemplate", None)
SlurmRay: Any = getattr(run, "SlurmRay", None)

NSYS_EXTRA = [
    "--force-overwrite=true",
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",
    "--cuda-graph-trace=node",
    "--cuda-event-trace=false",
]


class TestProfiling:
    def test_is_off_by_default(self) -> None:
        assert Launcher().get_nsys_prefix("/jobs/one") is None

    def test_names_its_output_below_the_given_directory(self) -> None:
        assert Launcher(nsys_profile=True).get_nsys_prefix("/jobs/one") == [
            "profile",
            "-s",
            "none",
            "-t",
            "nvtx,cuda",
            "-o",
            "/jobs/one/nsys_profile/profile_%p",
            *NSYS_EXTRA,
        ]

    def test_every_part_can_be_changed(self) -> None:
        launcher = Launcher(
            nsys_profile=True,
            nsys_folder="prof",
            nsys_filename="rank",
            nsys_trace=["osrt"],
            nsys_extra_args=["--x"],
        )
        assert launcher.get_nsys_prefix("/d") == [
            "profile",
            "-s",
            "none",
            "-t",
            "osrt",
            "-o",
            "/d/prof/rank",
            "--x",
        ]

    def test_any_launcher_can_be_profiled(self) -> None:
        assert run.Torchrun(nsys_profile=True).get_nsys_prefix("/d") is not None

    def test_settings_are_keywords(self) -> None:
        with pytest.raises(TypeError):
            Launcher(True)  # type: ignore[call-arg]


class TestWords:
    def test_each_word_names_its_class(self) -> None:
        assert {
            "torchrun": run.Torchrun,
            "ft": run.FaultTolerance,
            "slurm_ray": SlurmRay,
            "slurm_template": SlurmTemplate,
        } == LAUNCHER_MAP

    def test_torchrun_meets_at_the_usual_port(self) -> None:
        launcher = run.Torchrun()
        assert (launcher.rdzv_backend, launcher.rdzv_port, launcher.rdzv_id) == (
            "c10d",
            29500,
            None,
        )

    def test_fault_tolerance_has_no_opinion_by_default(self) -> None:
        launcher = run.FaultTolerance()
        assert launcher.rdzv_port == 29500
        assert launcher.cfg_path == ""
        assert {
            launcher.workload_check_interval,
            launcher.initial_rank_heartbeat_timeout,
            launcher.rank_heartbeat_timeout,
            launcher.rank_termination_signal,
            launcher.log_level,
            launcher.max_restarts,
        } == {None}

    def test_a_plain_launcher_leaves_the_command_alone(self) -> None:
        assert Launcher().transform(["python", "x.py"]) is None


class TestTemplates:
    def test_a_template_is_needed(self) -> None:
        with pytest.raises(ValueError, match="template"):
            SlurmTemplate()

    def test_the_command_and_the_variables_are_filled_in(self) -> None:
        launcher = SlurmTemplate(
            template_inline="say {{ word }}: {{ command }}", template_vars={"word": "go"}
        )
        script = launcher.transform(["python", "x.py"])
        assert script.inline == "say go: python x.py"

    def test_a_variable_may_replace_the_command(self) -> None:
        launcher = SlurmTemplate(template_inline="{{ command }}", template_vars={"command": "mine"})
        script = launcher.transform(["theirs"])
        assert script.inline == "mine"

    def test_inline_text_wins_over_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "t.j2"
        file.write_text("file {{ command }}")
        launcher = SlurmTemplate(template_inline="inline {{ command }}", template_path=str(file))
        assert launcher.get_template_content() == "inline {{ command }}"
        script = launcher.transform(["x"])
        assert script.inline == "inline x"

    def test_a_file_is_read(self, tmp_path: Path) -> None:
        file = tmp_path / "t.j2"
        file.write_text("file {{ command }}")
        script = SlurmTemplate(template_path=str(file)).transform(["x"])
        assert script.inline == "file x"

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with pytest.raises(FileNotFoundError, match=r"nowhere\.sh\.j2"):
            SlurmTemplate(template_path="nowhere.sh.j2").get_template_content()


class TestRay:
    @staticmethod
    def script(**settings: object) -> str:
        text: str = SlurmRay(**settings).transform(["python", "train.py"]).inline
        return text

    def test_is_a_script_that_a_shell_accepts(self) -> None:
        check = subprocess.run(
            ["bash", "-n"], input=self.script(), text=True, capture_output=True, check=False
        )
        assert (check.returncode, check.stderr) == (0, "")

    def test_uses_the_ports_it_is_given(self) -> None:
        text = self.script(gcs_server_port=7001, dashboard_port=7002)
        assert "7001" in text
        assert "7002" in text

    def test_sets_variables_before_anything_is_started(self) -> None:
        text = self.script(env_vars={"HF_HOME": "/data/hf home"})
        assert "HF_HOME" in text
        assert text.index("HF_HOME") < text.index("ray start")

    def test_without_a_head_setup_nothing_is_run_in_its_place(self) -> None:
        lines = [line.strip() for line in self.script().splitlines()]
        assert "None" not in lines

    def test_runs_the_head_setup(self) -> None:
        assert "pip install thing" in self.script(head_setup="pip install thing")

    def test_refuses_to_start_without_its_variables(self, tmp_path: Path) -> None:
        done = subprocess.run(
            ["bash", "-c", self.script()],
            env={"PATH": "/usr/bin:/bin"},
            cwd=tmp_path,
            capture_output=True,
            timeout=patience.seconds(20),
            check=False,
        )
        assert done.returncode == 1
