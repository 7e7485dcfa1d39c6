"""The whole of what a Docker engine is asked for, and the names that containers get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nemo_run as run
from nemo_run._backends.docker import settings as docker
from nemo_run.exceptions import ConfigError


class TestDocker:
    def executor(self, job_dir: Path | str = "/exp/job", **own: Any) -> run.DockerExecutor:
        return run.DockerExecutor(**{"container_image": "img:1", "job_dir": str(job_dir), **own})

    def settings(self, **own: Any) -> dict[str, Any]:
        return docker.settings(self.executor(**own), "box", {"ours": "1"}, {"A": "1"})

    def test_a_plain_container(self) -> None:
        assert self.settings() == {
            "working_dir": "/nemo_run/code",
            "hostname": "box",
            "labels": {"ours": "1"},
            "environment": {"PYTHONUNBUFFERED": "1", "A": "1"},
            "privileged": False,
            "stop_signal": "SIGTERM",
            "mounts": [
                {"Type": "bind", "Source": "/exp/job", "Target": "/nemo_run", "ReadOnly": False}
            ],
        }

    def test_every_setting_has_its_place(self) -> None:
        made = self.settings(
            runtime="nvidia",
            shm_size="8g",
            ulimits=["nofile=1:2"],
            ipc_mode="host",
            healthcheck={"test": "true"},
            privileged=True,
            num_gpus=2,
            retries=3,
            additional_kwargs={
                "labels": ["mine"],
                "mounts": [{"Type": "tmpfs"}],
                "volumes": ["/b:/b"],
                "detach": True,
                "remove": True,
                "auto_remove": True,
            },
        )
        plain = self.settings()
        assert {key: made[key] for key in made if made[key] != plain.get(key)} == {
            "runtime": "nvidia",
            "shm_size": "8g",
            "ulimits": [{"name": "nofile", "soft": 1, "hard": 2}],
            "ipc_mode": "host",
            "healthcheck": {"test": "true"},
            "privileged": True,
            "device_requests": [{"count": 2, "capabilities": [["compute", "utility"]]}],
            "restart_policy": {"Name": "on-failure", "MaximumRetryCount": 3},
            "labels": {"mine": "", "ours": "1"},
            "mounts": [*plain["mounts"], {"Type": "tmpfs"}],
            "volumes": ["/b:/b"],
        }

    def test_volumes_given_as_a_mapping_may_be_written_to_unless_said_otherwise(self) -> None:
        made = self.settings(additional_kwargs={"volumes": {"/b": {"bind": "/c"}}})
        assert made["volumes"] == ["/b:/c:rw"]

    def test_a_container_in_the_network_of_another_has_its_host_name(self) -> None:
        assert "hostname" not in self.settings(network="container:other")
        assert docker.host_name("a" * 10 + "-." + "b" * 30) == "b" * 30

    def test_the_launching_script_is_mounted_where_it_is_looked_for(self, tmp_path: Path) -> None:
        (tmp_path / "__main__.py").touch()
        made = self.settings(job_dir=tmp_path / "job")
        assert made["mounts"][1] == {
            "Type": "bind",
            "Source": str(tmp_path / "__main__.py"),
            "Target": "/__main__.py",
            "ReadOnly": True,
        }

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("/$nemo_run:/x", "/exp/job:/x"),
            ("/$nemo_run/a:/x:ro", "/exp/job/a:/x:ro"),
            ("/$nemo_running:/x", "/$nemo_running:/x"),
            ("named:/x", "named:/x"),
            (".:/x", f"{Path.cwd()}:/x"),
            ("..:/x", f"{Path.cwd().parent}:/x"),
            ("./a:/x", f"{Path.cwd()}/a:/x"),
            ("../a:/x", f"{Path.cwd().parent}/a:/x"),
            ("~/a:/x", f"{Path.home()}/a:/x"),
        ],
    )
    def test_places_are_filled_in(self, text: str, wanted: str) -> None:
        assert docker.volume(text, "/exp/job") == wanted

    @pytest.mark.parametrize("text", ["/a", ":/a", "/a:", "/a:b"])
    def test_a_volume_says_what_goes_where(self, text: str) -> None:
        with pytest.raises(ConfigError, match="is not a volume"):
            docker.volume(text, "/exp/job")

    @pytest.mark.parametrize("pull", ["always", "missing", "never"])
    def test_right_settings_are_taken(self, pull: str) -> None:
        for size in ("8g", "64M", "1.5 gb", "1000", 1000):
            docker.check(self.executor(pull=pull, shm_size=size, num_gpus=-1, retries=0))

    @pytest.mark.parametrize(
        ("name", "by"),
        [
            ("image", "container_image"),
            ("environment", "env_vars"),
            ("network", "network"),
            ("command", "the task"),
            ("name", "the name of the job"),
            ("network_mode", "network"),
            ("networking_config", "network"),
        ],
    )
    def test_what_another_setting_decides_is_refused(self, name: str, by: str) -> None:
        with pytest.raises(ConfigError, match=f"has '{name}', which {by} decides"):
            docker.check(self.executor(additional_kwargs={name: "x"}))

    def test_names_of_containers(self) -> None:
        assert docker.container_names("exp_1", ["a_b", "a.b", "a b"]) == [
            "exp-1-a-b",
            "exp-1-a.b",
            "exp-1-a-b-2",
        ]
        assert docker.container_names("", ["a", "", "a", "a"]) == ["a", "job", "a-2", "a-2-2"]
        (fits,) = docker.container_names("", ["x" * 120])
        (cut,) = docker.container_names("", ["x" * 121])
        assert fits == "x" * 120
        assert cut.startswith("x" * 111 + "-")
        assert len(cut) == 120
        assert docker.container_names("", ["x" * 121]) != docker.container_names("", ["x" * 122])

    def test_names_in_a_network(self) -> None:
        assert docker.network_names(["a", "a", "a"]) == ["a", "a-2", "a-3"]
        long = "b-" + "x" * 62
        assert docker.network_names([long]) == ["x" * 62]
        assert docker.network_names(["x" * 63, "x" * 63]) == ["x" * 63, f"{'x' * 61}-2"]
        assert docker.WITHOUT_NAMES == ("host", "none", "bridge", "default")
