"""Tunnels as values: what they say, where jobs go, how they are stored."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import shlex
from pathlib import Path

import fiddle as fdl
import pytest

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.core.tunnel import client
from nemo_run.core.tunnel.client import LocalTunnel, PackagingJob, SSHTunnel, Tunnel
from nemo_run.exceptions import ConfigError

FULL = SSHTunnel(
    job_dir="/jobs",
    host="login",
    user="me",
    packaging_jobs={"e:j": PackagingJob(symlink=True, src_path="/a", dst_path="/b")},
    port=2222,
    identity="~/.ssh/id",
    shell="bash",
    pre_command="source /etc/profile",
)


@pytest.mark.parametrize("tunnel", [FULL, LocalTunnel(job_dir="/jobs")], ids=["ssh", "local"])
class TestValue:
    def test_it_can_be_copied_pickled_and_compared(self, tunnel: Tunnel) -> None:
        assert copy.deepcopy(tunnel) == tunnel
        assert pickle.loads(pickle.dumps(tunnel)) == tunnel
        assert dataclasses.replace(tunnel, job_dir="/other") != tunnel

    def test_it_can_be_stored_and_built_again(self, tunnel: Tunnel) -> None:
        stored = ZlibJSONSerializer().serialize(tunnel.to_config())
        assert fdl.build(ZlibJSONSerializer().deserialize(stored)) == tunnel

    def test_its_home_is_where_0_12_has_it(self, tunnel: Tunnel) -> None:
        assert type(tunnel).__module__ == "nemo_run.core.tunnel.client"


def test_the_key_is_user_and_host() -> None:
    assert FULL.key == "me@login"
    assert LocalTunnel(job_dir="").key == "@localhost"


def test_fields_are_those_of_0_12() -> None:
    names = ["job_dir", "host", "user", "packaging_jobs"]
    assert [f.name for f in dataclasses.fields(LocalTunnel)] == names
    more = ["port", "identity", "shell", "pre_command"]
    assert [f.name for f in dataclasses.fields(SSHTunnel)] == [*names, *more]


class TestJobDirectory:
    def test_it_is_below_the_title_and_the_experiment(self) -> None:
        tunnel = copy.deepcopy(FULL)
        tunnel._set_job_dir("my_title_123")
        assert tunnel.job_dir == "/jobs/my_title/my_title_123"

    def test_setting_it_twice_does_not_nest_it(self) -> None:
        tunnel = copy.deepcopy(FULL)
        tunnel._set_job_dir("a_1")
        tunnel._set_job_dir("a_1")
        assert tunnel.job_dir == "/jobs/a/a_1"
        copied = copy.deepcopy(tunnel)
        copied._set_job_dir("b_2")
        assert copied.job_dir == "/jobs/b/b_2"

    def test_a_stored_one_is_not_nested_either(self) -> None:
        tunnel = copy.deepcopy(FULL)
        tunnel._set_job_dir("a_1")
        restored = fdl.build(tunnel.to_config())
        restored._set_job_dir("a_1")
        assert restored.job_dir == "/jobs/a/a_1"

    def test_a_user_may_change_it_in_between(self) -> None:
        tunnel = copy.deepcopy(FULL)
        tunnel._set_job_dir("a_1")
        tunnel.job_dir = "/new"
        tunnel._set_job_dir("a_1")
        assert tunnel.job_dir == "/new/a/a_1"

    def test_on_this_machine_it_is_with_the_experiments_by_default(
        self, nemorun_home: Path
    ) -> None:
        tunnel = LocalTunnel(job_dir="")
        tunnel._set_job_dir("a_1")
        assert tunnel.job_dir == str(nemorun_home / "experiments" / "a" / "a_1")


class TestPackagingJob:
    def test_a_link_is_made_between_paths_of_any_name(self) -> None:
        job = PackagingJob(symlink=True, src_path="/a b", dst_path="/it's")
        assert shlex.split(job.symlink_cmd()) == ["ln", "-s", "/a b", "/it's"]

    def test_a_link_from_nowhere_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="src_path"):
            PackagingJob(symlink=True).symlink_cmd()


def test_constants_follow_the_home_directory(nemorun_home: Path) -> None:
    assert client.TUNNEL_DIR == ".tunnels"
    assert str(nemorun_home / ".tunnels") == client.TUNNEL_FILE_SUBPATH


def test_a_directory_can_be_deleted_twice(tmp_path: Path) -> None:
    directory = tmp_path / "tunnels"
    directory.mkdir()
    (directory / "file").touch()
    client.delete_tunnel_dir(directory)
    client.delete_tunnel_dir(directory)
    assert not directory.exists()


def test_a_tunnel_is_needed_for_nothing_but_running() -> None:
    executor_like = run.Config(SSHTunnel, host="nowhere.invalid", user="u", job_dir="/x")
    assert fdl.build(executor_like).key == "u@nowhere.invalid"
