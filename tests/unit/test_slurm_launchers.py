"""Templates that a Slurm job can be put into, and Ray on its nodes."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

import nemo_run as run
from nemo_run.core.execution.utils import fill_template
from nemo_run.exceptions import ConfigError


class TestTemplates:
    def test_a_template_gets_the_command_and_variables(self) -> None:
        launcher = run.SlurmTemplate(
            template_inline="greet {{ who }}\n{{ command }}\n", template_vars={"who": "you"}
        )
        script = launcher.transform(["echo", "it's", "$HOME"])
        assert script is not None
        assert script.inline == "greet you\necho 'it'\"'\"'s' '$HOME'\n"

    def test_a_file_is_read_and_inline_text_wins(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.j2"
        path.write_text("file {{ command }}")
        assert run.SlurmTemplate(template_path=str(path)).render_template(["x"]) == "file x"
        both = run.SlurmTemplate(template_path=str(path), template_inline="inline")
        assert both.get_template_content() == both.render_template([]) == "inline"

    def test_a_template_is_needed(self) -> None:
        with pytest.raises(ValueError, match="template"):
            run.SlurmTemplate()

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with pytest.raises(FileNotFoundError, match="nothing-here"):
            run.SlurmTemplate(template_path="nothing-here.j2").get_template_content()

    def test_filling_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "a.j2").write_text("{{ x }} & co\n")
        assert fill_template("a.j2", {"x": "<b>"}, str(tmp_path)) == "<b> & co\n"
        with pytest.raises(FileNotFoundError, match="missing"):
            fill_template("missing.j2", {})
        with pytest.raises(ConfigError, match=r"\.j2"):
            fill_template("a.txt", {})

    def test_only_template_launchers_change_the_command(self) -> None:
        plain = run.SlurmExecutor(account="a")
        assert not plain.supports_launcher_transform()
        assert run.SlurmExecutor(account="a", launcher="slurm_ray").supports_launcher_transform()


def fake_ray(directory: Path, nodes: int) -> dict[str, str]:
    bin_ = directory / "bin"
    bin_.mkdir(parents=True)
    listed = "\n".join(f" 1 node_{n}" for n in range(nodes))
    (bin_ / "ray").write_text(
        f'#!/bin/bash\necho "$@" >>{directory}/ray\n'
        f'[ "$1" != status ] || printf "Active:\\n{listed}\\nPending:\\n"\n'
    )
    (bin_ / "sleep").write_text(f'#!/bin/bash\necho "$@" >>{directory}/sleep\n')
    for program in bin_.iterdir():
        program.chmod(0o755)
    return {
        "PATH": f"{bin_}:/usr/bin:/bin",
        "TMPDIR": str(directory),
        "SLURM_NNODES": str(nodes),
        "HEAD_NODE_ADDR": "10.0.0.1",
    }


class TestRay:
    def run_script(
        self, text: str, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", text], env=environment, capture_output=True, text=True, check=False
        )

    def test_the_first_node_starts_ray_runs_the_command_and_keeps_its_code(
        self, tmp_path: Path
    ) -> None:
        launcher = run.SlurmRay(head_setup="echo set up", env_vars={"WORD": "it's"})
        text = launcher.render_template(["sh", "-c", 'echo "$WORD \\"quoted\\""; exit 3'])
        done = self.run_script(text, fake_ray(tmp_path, 2))
        assert done.returncode == 3
        assert done.stdout.endswith('set up\nit\'s "quoted"\n')
        calls = (tmp_path / "ray").read_text().splitlines()
        assert calls[0].startswith("start --head")
        assert "--port=6379" in calls[0]
        assert calls[-1] == "stop"
        assert (tmp_path / "is_ready").exists()

    def test_a_setup_knows_the_ports(self, tmp_path: Path) -> None:
        names = [
            "gcs_server_port",
            "dashboard_port",
            "object_manager_port",
            "node_manager_port",
            "dashboard_agent_port",
            "dashboard_agent_grpc_port",
            "metrics_port",
        ]
        ports: dict[str, Any] = {name: 7000 + n for n, name in enumerate(names)}
        setup = "\n".join(f'echo "{name} ${name.upper()}"' for name in names)
        text = run.SlurmRay(head_setup=setup, **ports).render_template(["true"])
        done = self.run_script(text, fake_ray(tmp_path, 1))
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-7:] == [f"{name} {ports[name]}" for name in names]
        start = (tmp_path / "ray").read_text().splitlines()[0]
        assert "--port=7000" in start
        assert "--metrics-export-port=7006" in start

    def test_jobs_that_share_a_node_have_ports_and_files_of_their_own(self, tmp_path: Path) -> None:
        setup = 'echo "ports $GCS_SERVER_PORT $NODE_MANAGER_PORT at $RAY_ADDRESS"'
        text = run.SlurmRay(head_setup=setup).render_template(["true"])
        found = []
        for number in ("41", "42"):
            environment = {**fake_ray(tmp_path / number, 1), "SLURM_JOB_ID": number}
            environment["RAY_TEMP_DIR"] = str(tmp_path)
            done = self.run_script(text, environment)
            assert done.returncode == 0, done.stderr
            (said,) = (line for line in done.stdout.splitlines() if line.startswith("ports"))
            calls = (tmp_path / number / "ray").read_text().splitlines()
            assert f"--temp-dir={tmp_path}/ray-{number}-0" in calls[0]
            assert "stop" not in calls  # it would end the other one, too
            found.append(said)
        assert found == [
            "ports 21312 0 at 10.0.0.1:21312",
            "ports 21344 0 at 10.0.0.1:21344",
        ]
        worker = {**fake_ray(tmp_path / "worker", 2), "SLURM_JOB_ID": "42", "SLURM_NODEID": "1"}
        assert self.run_script(text, worker).returncode == 0
        assert "--address 10.0.0.1:21344" in (tmp_path / "worker" / "ray").read_text()

    def test_the_dashboard_moves_where_its_port_is_taken(self, tmp_path: Path) -> None:
        text = run.SlurmRay(head_setup='echo "at $DASHBOARD_PORT"').render_template(["true"])
        environment = {**fake_ray(tmp_path, 1), "SLURM_JOB_ID": "42"}
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):  # then another program has it
                taken.bind(("127.0.0.1", 8265))
                taken.listen()
            assert "at 21345\n" in self.run_script(text, environment).stdout

    def test_without_a_setup_nothing_is_set_up(self, tmp_path: Path) -> None:
        text = run.SlurmRay().render_template(["true"])
        assert "None" not in text
        assert self.run_script(text, fake_ray(tmp_path, 1)).returncode == 0

    def test_other_nodes_join(self, tmp_path: Path) -> None:
        text = run.SlurmRay(worker_init_wait_time=5).render_template(["touch", "never"])
        environment = {**fake_ray(tmp_path, 2), "SLURM_NODEID": "1"}
        assert self.run_script(text, environment).returncode == 0
        (call,) = (tmp_path / "ray").read_text().splitlines()
        assert call.startswith("start --address 10.0.0.1:6379")
        assert (tmp_path / "sleep").read_text() == "5\n"

    @pytest.mark.parametrize("name", ["SLURM_NNODES", "HEAD_NODE_ADDR"])
    def test_what_is_needed_is_asked_for(self, tmp_path: Path, name: str) -> None:
        environment = fake_ray(tmp_path, 1)
        del environment[name]
        done = self.run_script(run.SlurmRay().render_template(["true"]), environment)
        assert done.returncode == 1
        assert name in done.stderr
