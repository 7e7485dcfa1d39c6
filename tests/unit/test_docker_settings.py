"""Settings of a `DockerExecutor`, and what containers are made of them, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nemo_run as run
from nemo_run._backends.docker import settings as docker_settings
from nemo_run.core.execution.docker import DockerContainer, DockerJobRequest
from nemo_run.exceptions import ConfigError


def executor(**settings: Any) -> run.DockerExecutor:
    made = run.DockerExecutor(**{"container_image": "image", **settings})
    made.assign("title_1", "/home/me/title_1", "job", "job")
    return made


def settings(**own: Any) -> dict[str, Any]:
    return docker_settings.settings(executor(**own), "title-1-job", {"label": "1"}, {"A": "1"})


class TestLimits:
    @given(st.sampled_from("=:"), st.integers(-1, 10**9), st.integers(-1, 10**9))
    def test_both_spellings_mean_the_same(self, mark: str, soft: int, hard: int) -> None:
        wanted = {"name": "nofile", "soft": soft, "hard": hard}
        assert docker_settings.parse_ulimit(f"nofile{mark}{soft}:{hard}") == wanted

    @pytest.mark.parametrize("mark", ["=", ":"])
    def test_one_number_is_both(self, mark: str) -> None:
        assert docker_settings.parse_ulimit(f"memlock{mark}-1") == {
            "name": "memlock",
            "soft": -1,
            "hard": -1,
        }

    @pytest.mark.parametrize("text", ["", "nofile", "nofile=", "nofile=a", "=1", "nofile=1:2:3"])
    def test_nonsense_is_refused_with_an_example(self, text: str) -> None:
        with pytest.raises(ConfigError, match="nofile=1024:4096"):
            executor(ulimits=[text]).check()


class TestNames:
    def test_tasks_are_reached_by_names_of_their_own(self) -> None:
        long = "train-" * 20
        roles = ["pair_0", f"{long}0", f"{long}1", "训练", "评估", "job-2"]
        names = docker_settings.network_names(roles)
        assert names == ["pair-0", f"{long}0"[-63:], f"{long}1"[-63:], "job", "job-2", "job-2-2"]

    @given(st.lists(st.text(max_size=100) | st.sampled_from(["a", "a-2", "é"]), max_size=6))
    def test_no_two_tasks_are_reached_by_the_same_name(self, roles: list[str]) -> None:
        names = docker_settings.network_names(roles)
        assert len(set(names)) == len(roles)
        assert all(0 < len(name) <= 63 for name in names)

    def test_containers_are_named_as_in_0_12(self) -> None:
        assert docker_settings.container_names("title_17", ["my_job"]) == ["title-17-my-job"]

    @given(st.text(max_size=40), st.lists(st.text(max_size=250), min_size=1, max_size=4))
    def test_any_names_become_names_that_docker_takes_and_that_differ(
        self, experiment: str, roles: list[str]
    ) -> None:
        import re

        names = docker_settings.container_names(experiment, roles)
        assert len(set(names)) == len(roles)
        for name in names:
            assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", name)
            assert 1 <= len(docker_settings.host_name(name)) <= 32
            assert docker_settings.container_names(experiment, roles) == names


class TestVolumes:
    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("/data:/data", "/data:/data"),
            ("/data:/data:ro", "/data:/data:ro"),
            ("named:/data", "named:/data"),
            ("/$nemo_run:/job", "/home/me/title_1/job:/job"),
            ("/$nemo_run/out:/out", "/home/me/title_1/job/out:/out"),
        ],
    )
    def test_what_stands_for_something_is_filled_in(self, text: str, wanted: str) -> None:
        assert settings(volumes=[text])["volumes"] == [wanted]

    def test_homes_and_relative_paths_are_filled_in(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", "/home/me")
        monkeypatch.chdir(tmp_path)
        assert settings(volumes=["~/a:/a", "./b:/b"])["volumes"] == [
            "/home/me/a:/a",
            f"{tmp_path}/b:/b",
        ]

    @pytest.mark.parametrize("text", ["", "/data", ":/data", "/data:relative"])
    def test_nonsense_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match="is not a volume"):
            executor(volumes=[text]).check()


class TestSettings:
    def test_the_job_directory_is_mounted(self) -> None:
        (mount,) = settings()["mounts"]
        assert (mount["Source"], mount["Target"]) == ("/home/me/title_1/job", "/nemo_run")

    def test_retries_are_a_restart_policy(self) -> None:
        assert "restart_policy" not in settings()
        assert settings(retries=3)["restart_policy"] == {
            "Name": "on-failure",
            "MaximumRetryCount": 3,
        }

    def test_gpus_are_asked_for(self) -> None:
        assert "device_requests" not in settings(num_gpus=0)
        assert settings(num_gpus=-1)["device_requests"] == [
            {"count": -1, "capabilities": [["compute", "utility"]]}
        ]

    def test_additional_settings_win_but_take_nothing_away(self) -> None:
        made = settings(
            shm_size="1g",
            volumes=["/a:/a"],
            additional_kwargs={
                "shm_size": "2g",
                "mem_limit": "1g",
                "auto_remove": True,
                "volumes": {"/b": {"bind": "/b", "mode": "ro"}},
                "labels": {"mine": "yes", "label": "no"},
            },
        )
        assert (made["shm_size"], made["mem_limit"]) == ("2g", "1g")
        assert made["volumes"] == ["/a:/a", "/b:/b:ro"]
        assert made["labels"] == {"mine": "yes", "label": "1"}
        assert "auto_remove" not in made

    @pytest.mark.parametrize(
        ("own", "said"),
        [
            ({"container_image": " "}, "container_image"),
            ({"pull": "sometimes"}, "'always', 'missing' or 'never'"),
            ({"num_gpus": -2}, "-1 for all"),
            ({"retries": -1}, "retries=-1"),
            ({"shm_size": "lots"}, "shm_size='lots'"),
            ({"additional_kwargs": {"environment": {}}}, "env_vars"),
            ({"additional_kwargs": {"network_mode": "host"}}, "which network decides"),
            ({"additional_kwargs": {"hostnam": "x"}}, "Did you mean 'hostname'"),
        ],
    )
    def test_wrong_settings_are_named(self, own: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            executor(**own).check()


class TestGroups:
    def test_one_executor_serves_all_tasks_and_stays_as_it_was(self) -> None:
        one = executor(env_vars={"A": "1"})
        before = one.clone()
        merged = run.DockerExecutor.merge([one], 3)
        assert merged.run_as_group
        assert len(merged.resource_group) == 3
        merged.resource_group[0].env_vars["A"] = "2"
        assert one.env_vars == before.env_vars
        assert not one.run_as_group

    def test_a_number_that_does_not_fit_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="2 executors do not fit 3 tasks"):
            run.DockerExecutor.merge([executor(), executor()], 3)


class TestRequests:
    def test_a_request_is_shown_without_secrets(self) -> None:
        own = executor(env_vars={"HF_TOKEN": "hunter2", "STEPS": "3"})
        container = DockerContainer(
            name="c", command=["echo", "hi"], executor=own, extra_env={"API_KEY": "hunter2"}
        )
        text = str(DockerJobRequest(id="job-1", executor=own, containers=[container]))
        assert "hunter2" not in text
        assert "STEPS" in text
        assert "- echo\n" in text

    def test_the_index_of_0_12_gets_no_secrets(self, nemorun_home: Path) -> None:
        own = executor(env_vars={"HF_TOKEN": "hunter2", "DB": "db://me:hunter2@host", "STEPS": "3"})
        container = DockerContainer(
            name="c", command=["true"], executor=own, extra_env={"API_KEY": "hunter2"}
        )
        DockerJobRequest(id="job-1", executor=own, containers=[container]).save()
        loaded = DockerJobRequest.load("job-1")
        assert loaded is not None
        assert loaded.executor.env_vars == {"HF_TOKEN": "***", "DB": "db://***@host", "STEPS": "3"}
        assert loaded.containers[0].extra_env == {"API_KEY": "***"}
        assert loaded.executor.job_dir == own.job_dir
