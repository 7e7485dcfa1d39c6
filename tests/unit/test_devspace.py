"""What a devspace is made of, without running one."""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nemo_run as run
from nemo_run.core.execution.slurm import SlurmTunnelCallback
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.core.tunnel import _node_server
from nemo_run.core.tunnel._node_files import exports, session_script, sshd_config
from nemo_run.core.tunnel.client import Callback, KeepAliveOver
from nemo_run.devspace import _alias, _job, _node_jupyter, _reaching, _records
from nemo_run.devspace._records import Record
from nemo_run.exceptions import ConfigError, RecordError

RECORD = Record(
    name="dev",
    label="devspace-dev_1",
    directory="/jobs/devspaces/dev/.nemo_run/.tunnels/dev",
    workspace="/workspaces/dev",
    executor="SlurmExecutor",
    experiment="devspace-dev_1",
    job="interactive",
    login={"host": "login", "user": "me", "port": 2222},
)


def slurm(**settings: Any) -> run.SlurmExecutor:
    tunnel = run.SSHTunnel(host="login", user="me", job_dir="/jobs")
    return run.SlurmExecutor(account="me", tunnel=tunnel, **settings)


class TestTheSpace:
    def test_its_parameters_are_its_attributes(self) -> None:
        executor = run.LocalExecutor()
        space = run.DevSpace("dev", executor)
        assert (space.name, space.executor, space.cmd) == ("dev", executor, "launch_devspace")
        assert (space.use_packager, space.env_vars) == (False, None)
        assert space.add_workspace_to_pythonpath is True

    def test_a_config_of_it_can_be_built_and_stored(self) -> None:
        config = run.Config(run.DevSpace, name="dev", executor=run.Config(run.LocalExecutor))
        text = ZlibJSONSerializer().serialize(config)
        assert ZlibJSONSerializer().deserialize(text) == config

    def test_one_made_directly_knows_its_config(self) -> None:
        config = run.DevSpace("dev", slurm(nodes=1), env_vars={"A": "1"}).__io__
        assert config.__fn_or_cls__ is run.DevSpace
        assert (config.name, config.executor.account, config.env_vars) == ("dev", "me", {"A": "1"})

    def test_a_config_that_was_set_stays(self) -> None:
        space = run.DevSpace("dev", run.LocalExecutor())
        config = run.Config(run.DevSpace, name="other", executor=run.Config(run.LocalExecutor))
        space.__io__ = config
        assert space.__io__ is config

    def test_what_travels_has_no_variables(self) -> None:
        space = run.DevSpace("dev", slurm(env_vars={"A_TOKEN": "x1"}), env_vars={"B": "x2"})
        config = space.config_to_connect()
        assert (config.env_vars, config.executor.env_vars) == (None, {})
        assert space.executor.env_vars == {"A_TOKEN": "x1"}

    def test_another_command_is_called_without_arguments(self) -> None:
        called = []

        class ByHand(run.LocalExecutor):
            def bash(self) -> None:
                called.append("bash")

        run.DevSpace("dev", ByHand(), cmd="bash").launch()
        assert called == ["bash"]

    def test_a_method_that_is_not_there_is_said(self) -> None:
        with pytest.raises(ConfigError, match="LocalExecutor has no method 'fly'"):
            run.DevSpace("dev", run.LocalExecutor(), cmd="fly").launch()

    def test_a_packager_is_set_up_if_it_is_used(self) -> None:
        called: list[Any] = []

        class Own(run.Packager):
            def setup(self) -> None:
                called.append("setup")

        class Foreign(run.LocalExecutor):
            def launch_devspace(self, space: Any, *args: Any, **words: Any) -> None:
                called.append(words)

        executor = Foreign(packager=Own())
        run.DevSpace("dev", executor, env_vars={"A": "1"}, use_packager=True).launch()
        run.DevSpace("dev", executor, add_workspace_to_pythonpath=False).launch()
        first, second = (
            {"env_vars": {"A": "1"}, "add_workspace_to_pythonpath": True},
            {"env_vars": None, "add_workspace_to_pythonpath": False},
        )
        assert called == ["setup", first, second]

    def test_a_callback_keeps_the_tunnel_of_the_executor_alive(self) -> None:
        seen: list[Any] = []

        class Once(Callback):
            def on_start(self) -> None:
                seen.append(self.tunnel)

            def on_interval(self) -> None:
                raise KeepAliveOver("done")

            def on_stop(self) -> None:
                seen.append("stopped")

        class Foreign(run.SlurmExecutor):
            def launch_devspace(self, *args: Any, **words: Any) -> Callback:
                return Once()

        executor = Foreign(account="me")
        run.DevSpace("dev", executor).launch()
        assert seen == [executor.tunnel, "stopped"]

    @pytest.mark.parametrize("host", ["login", "a@b@c", "@login", "me@", ""])
    def test_a_host_of_another_shape_is_refused(self, host: str) -> None:
        with pytest.raises(ValueError, match="user@hostname"):
            run.DevSpace.connect(host, "/path")

    def test_connecting_calls_nothing_that_the_text_of_a_cluster_names(
        self, tmp_path: Path
    ) -> None:
        tunnel = run.SSHTunnel(host="login", user="me", job_dir="/x")
        trap = run.Config(os.makedirs, name=str(tmp_path / "called"))
        text = ZlibJSONSerializer().serialize(run.Config(run.DevSpace, name="dev", executor=trap))
        space = run.DevSpace.to_connect(text, tunnel)
        assert (space.name, space.executor.tunnel) == ("dev", tunnel)  # type: ignore[attr-defined]
        assert not (tmp_path / "called").exists()
        callback = space.executor.connect_devspace(space, tunnel_dir=Path("/x"))  # type: ignore[attr-defined]
        assert isinstance(callback, SlurmTunnelCallback)
        for wrong in (trap, run.Config(run.LocalExecutor)):
            with pytest.raises(ConfigError, match="not the description of a devspace"):
                run.DevSpace.to_connect(ZlibJSONSerializer().serialize(wrong), tunnel)

    @pytest.mark.parametrize(
        ("idle", "seconds"), [(None, 0), (5, 5), ("2h", 7200), ("90 m", 5400), (0.5, 0.5)]
    )
    def test_idle_is_a_duration(self, idle: Any, seconds: float) -> None:
        assert run.DevSpace("dev", run.LocalExecutor(), idle=idle).idle_s == seconds


class TestTheJob:
    def test_mounts_of_the_workspace_leave_the_executor_alone(self) -> None:
        executor = slurm(container_image="image", container_mounts=["/data:/data"])
        space = run.DevSpace("dev", executor)
        place = _job.Place.of("dev", executor)
        own = _job._prepared(space, executor, place, {"A": "1"})
        assert isinstance(own, run.SlurmExecutor)
        assert own.container_mounts == [
            "/data:/data",
            "/jobs/devspaces/dev:/workspaces/dev",
            "/jobs/devspaces/dev:/workspaces/.main",
        ]
        assert own.srun_args == ["--no-container-remap-root"]
        assert own.container_env == ["SLURM_SUBMIT_HOST", "SLURMD_NODENAME"]
        assert own.env_vars == {"A": "1", "NEMO_DEVSPACE": "dev"}
        assert executor.container_mounts == ["/data:/data"]
        assert (executor.srun_args, executor.env_vars) == (None, {})
        assert place.inside == "/workspaces/dev"

    def test_without_an_image_it_works_where_the_files_are(self) -> None:
        place = _job.Place.of("dev", slurm())
        assert place.inside == place.outside == "/jobs/devspaces/dev"
        given = _job.Place.of("dev", slurm(job_dir="/my/work"))
        assert given.server_directory("dev") == "/my/work/.nemo_run/.tunnels/dev"

    def test_docker_mounts_the_workspace(self) -> None:
        executor = run.DockerExecutor(container_image="image")
        space = run.DevSpace("dev", executor, add_workspace_to_pythonpath=False)
        own = _job._prepared(space, executor, _job.Place.of("dev", executor), {})
        assert isinstance(own, run.DockerExecutor)
        assert own.volumes == [f"{_records.root()}/dev/workspace:/workspaces/dev"]

    def test_its_text_needs_no_package_but_the_standard_library(self, tmp_path: Path) -> None:
        space = run.DevSpace("it's", slurm(), idle="1h")
        place = _job.Place.of("dev", slurm())
        task = _job.script(space, place, label="label", key="ssh-ed25519 AAAA 'x'")
        assert "nemo_run." not in "\n".join(
            line for line in task.inline.splitlines() if "import" in line
        )
        ast.parse(task.inline, feature_version=(3, 8))
        ast.parse(inspect.getsource(_node_jupyter), feature_version=(3, 8))
        file = tmp_path / "task.py"
        file.write_text(task.inline.replace("sys.exit(main(", "sys.exit(print("))
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(file)], capture_output=True, text=True, check=True
        )
        assert "'idle_s': 3600" in done.stdout
        assert "ssh-ed25519 AAAA 'x'" in done.stdout


class TestTheServer:
    def test_its_settings_name_no_file_outside_and_allow_keys_only(self, tmp_path: Path) -> None:
        text = sshd_config(tmp_path / "key", "me", [str(tmp_path / "keys")], tmp_path / "session")
        assert "/etc" not in text
        lines = text.splitlines()
        assert "AuthenticationMethods publickey" in lines
        assert "PasswordAuthentication no" in lines
        assert "LogLevel INFO" in lines
        loud = sshd_config(tmp_path / "key", "me", [], tmp_path / "session", verbose=True)
        assert "LogLevel DEBUG3" in loud.splitlines()

    def test_variables_of_sessions_are_those_of_the_job(self, tmp_path: Path) -> None:
        given = {"A": "it's\n$HOME", "SSH_X": "1", "HOME": "/x", "BASH_FUNC_x%%": "() { :; }"}
        given |= {"PYTHONPATH": "/other", "TERM": "dumb"}
        (tmp_path / "environment").write_text(exports(given, tmp_path, "/workspaces/dev"))
        (tmp_path / "session").write_text(session_script(tmp_path, str(tmp_path)))
        shown = 'printf "%s|%s|%s" "$A" "$PYTHONPATH" "$PWD"; set | grep -c ^SSH_X'
        done = subprocess.run(
            ["sh", str(tmp_path / "session")],
            env={"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "SSH_ORIGINAL_COMMAND": shown},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == f"it's\n$HOME|/workspaces/dev:/other|{tmp_path}0\n"

    @pytest.mark.parametrize(
        ("idle_s", "quiet_s", "used", "ends"),
        [
            (0, 1e9, True, False),
            (10, 9, True, False),
            (10, 10, True, True),
            (10, 10, False, False),
            (10, 60, False, True),
            (600, 60, False, False),
            (600, 600, False, True),
        ],
    )
    def test_it_ends_without_connections_once_it_was_used_or_a_minute_has_passed(
        self, idle_s: float, quiet_s: float, used: bool, ends: bool
    ) -> None:
        assert _node_server.is_idle(idle_s, quiet_s, used=used) is ends

    def test_a_program_that_is_missing_is_said_with_what_to_install(self) -> None:
        with pytest.raises(_node_server.Unusable, match="There is no no-such-program here"):
            _node_server._program("no-such-program")

    def test_it_listens_on_loopback_where_that_is_enough(self) -> None:
        import socket

        assert _node_server.listen_address("loopback", {}) == "127.0.0.1"
        here = {"SLURM_SUBMIT_HOST": socket.gethostname()}
        assert _node_server.listen_address("cluster", here) == "127.0.0.1"
        assert _node_server.listen_address("own", {}) not in ("0.0.0.0", "::")


class TestTheAlias:
    def test_the_users_config_includes_ours_first_and_once(self, tmp_path: Path) -> None:
        config, private = tmp_path / "ssh" / "config", tmp_path / "private"
        _alias.include(config, private)
        _alias.include(config, private)
        assert config.read_text() == f'Include "{private}"\n'
        assert config.stat().st_mode & 0o777 == 0o600
        assert config.parent.stat().st_mode & 0o777 == 0o700

    def test_the_rest_of_the_users_config_stays_as_it_is(self, tmp_path: Path) -> None:
        config, real = tmp_path / "config", tmp_path / "dotfiles"
        real.write_text("Host *\n  ForwardX11 no\n")
        real.chmod(0o644)
        config.symlink_to(real)
        _alias.include(config, tmp_path / "private")
        assert config.is_symlink()
        included = f'Include "{tmp_path}/private"\n'
        assert real.read_text() == f"{included}Host *\n  ForwardX11 no\n"
        assert real.stat().st_mode & 0o777 == 0o644

    def test_ssh_understands_it(self, tmp_path: Path) -> None:
        RECORD.save()
        (RECORD.home / "user").write_text("alice")
        file = tmp_path / "config"
        file.write_text(_alias.render_config(_records.known()))
        asked = ["ssh", "-G", "-F", str(file), "tunnel.dev.dev"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
        assert told["user"] == "alice"
        assert told["stricthostkeychecking"] in ("true", "yes")
        assert told["identityfile"] == str(RECORD.identity)
        assert told["proxycommand"].endswith("-m nemo_run devspace proxy dev")

    def test_a_callback_has_the_name_of_the_space_twice(self) -> None:
        callback = SlurmTunnelCallback(slurm(), space=run.DevSpace("dev", slurm()))
        assert callback.tunnel_name == "dev.dev"
        assert f"tunnel.{callback.tunnel_name}" == RECORD.alias


class TestNotesOfServers:
    NOTE = {
        "label": "devspace-dev_1",
        "user": "me",
        "node": "node1",
        "address": "10.1.2.3",
        "port": 2222,
        "reverse": False,
        "host_key": "ssh-ed25519 AAAA",
        "private": "/tmp/x",
        "workspace": "/workspaces/dev",
    }

    def read(self, directory: Path, **changed: Any) -> Any:
        (directory / "server.json").write_text(json.dumps({**self.NOTE, **changed}))
        return _reaching.read_note(run.LocalTunnel(job_dir=""), str(directory))

    def test_one_of_ours_is_read(self, tmp_path: Path) -> None:
        assert self.read(tmp_path).port == 2222

    @pytest.mark.parametrize(
        "changed",
        [
            {"user": "me\n    ProxyCommand touch /tmp/pwned"},
            {"user": "-oProxyCommand=x"},
            {"host_key": "ssh-ed25519 AAAA\n* ssh-ed25519 BBBB"},
            {"address": "-oProxyCommand=x"},
            {"port": "22 -o x"},
            {"port": 0},
            {"node": "\x1b]0;title\x07"},
            {"workspace": "--install-extension=x"},
            {"label": 1},
            {"more": 1},
        ],
    )
    def test_one_that_would_get_into_settings_is_not(
        self, tmp_path: Path, changed: dict[str, Any]
    ) -> None:
        assert self.read(tmp_path, **changed) is None


class TestRecords:
    def test_they_are_kept_by_name_and_forgotten(self) -> None:
        RECORD.save()
        assert _records.get("dev") == RECORD
        assert _records.known() == [RECORD]
        tunnel = RECORD.tunnel
        assert isinstance(tunnel, run.SSHTunnel)
        assert (tunnel.host, tunnel.user, tunnel.port) == ("login", "me", 2222)
        later = Record(**{**vars(RECORD), "label": "later"})
        later.save()
        RECORD.forget()
        assert _records.known() == [later]
        later.forget()
        assert _records.find("dev") is None

    @pytest.mark.parametrize("text", ["", "{}", "[1]", "nonsense"])
    def test_a_damaged_one_is_said(self, text: str) -> None:
        RECORD.save()
        (RECORD.home / "space.json").write_text(text)
        with pytest.raises(RecordError, match="devspace 'dev' cannot be read"):
            _records.get("dev")

    def test_a_key_is_made_once(self) -> None:
        first = _records.public_key("dev")
        assert first.startswith("ssh-ed25519 ")
        assert _records.public_key("dev") == first
        assert (_records.root() / "dev" / "id_ed25519").stat().st_mode & 0o777 == 0o600
