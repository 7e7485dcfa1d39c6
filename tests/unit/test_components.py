"""torchrun and ft_launcher as applications."""

from __future__ import annotations

import random

import pytest
from torchx.specs import AppDef

from nemo_run.core.execution.base import ExecutorMacros
from nemo_run.exceptions import ConfigError
from nemo_run.run.torchx_backend.components.ft_launcher import ft_launcher
from nemo_run.run.torchx_backend.components.torchrun import torchrun


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "SLURM_NODEID", "LOGLEVEL"):
        monkeypatch.delenv(name, raising=False)


def args_of(app: AppDef) -> list[str]:
    (role,) = app.roles
    return role.args


def value(args: list[str], option: str) -> str:
    return args[args.index(option) + 1]


class TestTorchrun:
    def test_one_node_meets_itself(self) -> None:
        app = torchrun("--lr", "1", script="train.py", j="1x4", rdzv_id=7, name="job")
        (role,) = app.roles
        assert role.entrypoint == "torchrun"
        assert role.num_replicas == 1
        assert role.port_map == {"c10d": 49450}
        assert value(role.args, "--rdzv-backend") == "c10d"
        assert value(role.args, "--rdzv-endpoint") == "localhost:0"
        assert value(role.args, "--rdzv-id") == "7"
        assert value(role.args, "--nnodes") == "1"
        assert value(role.args, "--nproc-per-node") == "4"
        assert value(role.args, "--node-rank") == "0"
        assert value(role.args, "--tee") == "3"
        assert role.args[-3:] == ["train.py", "--lr", "1"]

    def test_several_nodes_meet_at_the_head(self) -> None:
        args = args_of(torchrun(script="train.py", j="2x8", rdzv_port=29500))
        endpoint = value(args, "--rdzv-endpoint")
        assert ExecutorMacros.HEAD_NODE_IP_VAR in endpoint
        assert endpoint.endswith(":29500")
        assert ExecutorMacros.NODE_RANK_VAR in value(args, "--node-rank")
        assert value(args, "--nnodes") == "2"

    def test_an_elastic_job_has_a_range_of_nodes(self) -> None:
        assert value(args_of(torchrun(script="t.py", j="1:2x8")), "--nnodes") == "1:2"

    def test_a_number_alone_is_of_processes(self) -> None:
        args = args_of(torchrun(script="t.py", j="4"))
        assert value(args, "--nnodes") == "1"
        assert value(args, "--nproc-per-node") == "4"

    def test_a_module_is_run_as_one(self) -> None:
        args = args_of(torchrun("a", m="pkg.train", j="1x1"))
        assert args[-3:] == ["-m", "pkg.train", "a"]

    def test_a_program_that_is_not_python(self) -> None:
        args = args_of(torchrun("a", script="run.sh", no_python=True, j="1x1"))
        assert args[-3:] == ["--no-python", "run.sh", "a"]

    @pytest.mark.parametrize("what", [{}, {"script": "a.py", "m": "b"}])
    def test_exactly_one_thing_is_run(self, what: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match="script"):
            torchrun(**what)  # type: ignore[arg-type]

    @pytest.mark.parametrize("size", ["", "x", "2x", "ax2", "1x2x3"])
    def test_a_malformed_size_is_named(self, size: str) -> None:
        with pytest.raises(ConfigError, match=f"{size!r}"):
            torchrun(script="a.py", j=size)

    def test_dgx_cloud_knows_its_rendezvous(self) -> None:
        args = args_of(torchrun(script="t.py", j="2x8", dgxc=True))
        assert args[:4] == ["--nnodes", "2", "--nproc-per-node", "8"]
        assert "--rdzv-backend" not in args

    def test_lepton_names_its_variables(self) -> None:
        args = args_of(torchrun(script="t.py", j="2x8", lepton=True))
        assert value(args, "--node-rank") == "$NODE_RANK"
        assert value(args, "--master-addr") == "$MASTER_ADDR"
        assert value(args, "--master-port") == "$MASTER_PORT"

    def test_the_environment_may_say_where_to_meet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MASTER_ADDR", "node0")
        monkeypatch.setenv("MASTER_PORT", "1234")
        monkeypatch.setenv("NODE_RANK", "1")
        args = args_of(torchrun(script="t.py", j="2x8", use_env=True))
        assert value(args, "--rdzv-endpoint") == "node0:1234"
        assert value(args, "--node-rank") == "1"

    @pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT", "NODE_RANK"])
    def test_several_nodes_without_a_place_to_meet_are_refused(
        self, monkeypatch: pytest.MonkeyPatch, missing: str
    ) -> None:
        for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
            monkeypatch.setenv(name, "1")
        monkeypatch.delenv(missing)
        with pytest.raises(ConfigError, match="MASTER_ADDR, MASTER_PORT and NODE_RANK"):
            torchrun(script="t.py", j="2x8", use_env=True)

    def test_all_nodes_agree_on_the_id(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MASTER_ADDR", "node0")
        monkeypatch.setenv("MASTER_PORT", "1234")
        ids = set()
        for rank in ("0", "1"):
            monkeypatch.setenv("NODE_RANK", rank)
            args = args_of(torchrun(script="t.py", j="2x8", use_env=True))
            ids.add(value(args, "--rdzv-id"))
        assert len(ids) == 1

    def test_slurm_may_say_the_rank(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MASTER_ADDR", "node0")
        monkeypatch.setenv("MASTER_PORT", "1234")
        monkeypatch.setenv("SLURM_NODEID", "3")
        args = args_of(torchrun(script="t.py", j="4x8", use_env=True))
        assert value(args, "--node-rank") == "3"

    def test_the_random_numbers_of_the_process_are_left_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MASTER_ADDR", "node0")
        monkeypatch.setenv("MASTER_PORT", "1234")
        monkeypatch.setenv("NODE_RANK", "1")
        before = random.getstate()
        torchrun(script="t.py", j="2x8", use_env=True)
        torchrun(script="t.py", j="1x8")
        assert random.getstate() == before

    def test_arguments_are_passed_on_as_they_are(self) -> None:
        given = ["a b", "$HOME", "it's", ""]
        assert args_of(torchrun(*given, script="t.py", j="1x1"))[-4:] == given

    def test_debugging_sets_variables(self) -> None:
        (role,) = torchrun(script="t.py", debug=True, env={"A": "1"}).roles
        assert role.env["A"] == "1"
        assert role.env["CUDA_LAUNCH_BLOCKING"] == "1"
        assert role.env["NCCL_DESYNC_DEBUG"] == "1"
        assert role.env["TORCH_DISTRIBUTED_DEBUG"] == "DETAIL"
        assert role.env["TORCH_SHOW_CPP_STACKTRACES"] == "1"

    def test_the_callers_environment_is_not_changed(self) -> None:
        env = {"A": "1"}
        torchrun(script="t.py", debug=True, env=env)
        assert env == {"A": "1"}

    def test_a_log_level_is_set_unless_given(self) -> None:
        assert torchrun(script="t.py").roles[0].env["LOGLEVEL"] == "INFO"
        given = torchrun(script="t.py", env={"LOGLEVEL": "DEBUG"})
        assert given.roles[0].env["LOGLEVEL"] == "DEBUG"

    def test_retries_are_those_of_the_role(self) -> None:
        assert torchrun(script="t.py", max_retries=3).roles[0].max_retries == 3


class TestFaultTolerance:
    def test_without_settings_it_does_not_ask_for_a_config(self) -> None:
        (role,) = ft_launcher(script="t.py", j="1x2").roles
        assert role.entrypoint == "ft_launcher"
        assert role.args[0] == "--ignore-missing-fault-tol-cfg"
        assert role.args[-1] == "t.py"

    def test_settings_become_options(self) -> None:
        args = args_of(
            ft_launcher(
                script="t.py",
                workload_check_interval=1.5,
                initial_rank_heartbeat_timeout=2.0,
                rank_heartbeat_timeout=3.0,
                rank_termination_signal="SIGINT",
                log_level="DEBUG",
                max_restarts=4,
            )
        )
        assert value(args, "--ft-workload-check-interval") == "1.5"
        assert value(args, "--ft-initial-rank-heartbeat-timeout") == "2.0"
        assert value(args, "--ft-rank-heartbeat-timeout") == "3.0"
        assert value(args, "--ft-rank-termination-signal") == "SIGINT"
        assert value(args, "--ft-log-level") == "DEBUG"
        assert value(args, "--max-restarts") == "4"
        assert "--ignore-missing-fault-tol-cfg" not in args

    def test_lepton_names_its_variables(self) -> None:
        args = args_of(ft_launcher(script="t.py", j="2x8", lepton=True))
        assert value(args, "--node-rank") == "$NODE_RANK"
        assert value(args, "--master-addr") == "$MASTER_ADDR"
        assert "--rdzv-endpoint" not in args

    def test_zero_is_a_value(self) -> None:
        args = args_of(ft_launcher(script="t.py", max_restarts=0, workload_check_interval=0.0))
        assert value(args, "--max-restarts") == "0"
        assert value(args, "--ft-workload-check-interval") == "0.0"
