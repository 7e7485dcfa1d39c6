"""Groups: several containers that are one job."""

from __future__ import annotations

from functools import partial

import pytest
from tests.contract.backends import DockerCluster
from tests.contract.experiments import experiment, script, states
from tests.integration.docker.engine import DockerEngine
from tests.integration.docker.images import PLAIN, PYTHON
from tests.integration.docker.jobs import group, inspected, log_of
from tests.integration.launching import wait_for
from torchx.specs import AppState

pytestmark = pytest.mark.slow

SERVE = """\
import socket
server = socket.create_server(("", 8765))
print("serving", flush=True)
connection, _ = server.accept()
print(connection.recv(100).decode())
connection.sendall(b"and back")
"""
ASK = """\
import socket, sys, time
for _ in range(600):
    try:
        connection = socket.create_connection((sys.argv[1], 8765), timeout=5)
        break
    except OSError:
        time.sleep(0.1)
connection.sendall(b"there")
print(connection.recv(100).decode())
"""


def heredoc(program: str, *args: str) -> str:
    return f"exec python3 - {' '.join(args)} <<'EOF'\n{program}EOF\n"


class TestFate:
    def test_a_group_has_succeeded_when_all_have(self, cluster: DockerCluster) -> None:
        app_id = group(cluster, ["echo one", "sleep 0.5; echo two"])
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code, end.message) == (AppState.SUCCEEDED, 0, "")
        assert log_of(cluster, app_id, "pair-0") == ["one\n"]
        assert log_of(cluster, app_id, "pair-1") == ["two\n"]
        described = cluster.scheduler.describe(app_id)
        assert [role.name for role in described.roles] == ["pair-0", "pair-1"]

    def test_one_that_succeeds_first_leaves_the_others_alone(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        go = cluster.scratch / "go"
        app_id = group(cluster, ["true", f"until [ -e {go} ]; do sleep 0.1; done; echo end"])

        def first_has_ended() -> bool:
            return "exited" in {c["State"]["Status"] for c in inspected(engine, app_id)}

        wait_for(first_has_ended, "the end of the first", timeout_s=60)
        status = cluster.status(app_id)
        assert status is not None
        assert status.state is AppState.RUNNING
        go.touch()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert log_of(cluster, app_id, "pair-1") == ["end\n"]

    def test_one_that_fails_ends_the_others_and_the_group_has_failed(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        app_id = group(cluster, ["trap 'echo asked; exit 0' TERM; sleep 600 & wait", "exit 7"])
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 7)
        assert end.message == "pair-1 failed"
        assert log_of(cluster, app_id, "pair-0") == ["asked\n"]
        assert inspected(engine, app_id) == []

    def test_the_end_of_the_log_is_that_of_the_one_that_failed(
        self, cluster: DockerCluster
    ) -> None:
        executor = cluster.executor()
        with experiment("fate", executor=executor) as exp:
            exp.add([script("echo fine; sleep 600"), script("echo broken; exit 3")], name="pair")
            exp.run()
        assert states(exp) == {"pair": "FAILED"}
        with pytest.raises(Exception, match="broken"):
            exp.raise_if_failed()

    def test_all_are_cancelled_together(self, cluster: DockerCluster, engine: DockerEngine) -> None:
        app_id = group(cluster, ["echo up; sleep 600", "echo up; sleep 600"])
        for role in ("pair-0", "pair-1"):
            log_line = partial(log_of, cluster, app_id, role)
            wait_for(log_line, f"a word of {role}", timeout_s=60)
        cluster.cancel(app_id)
        assert cluster.wait(app_id).state is AppState.CANCELLED
        assert inspected(engine, app_id) == []

    def test_each_is_started_again_by_itself(self, cluster: DockerCluster) -> None:
        mark = cluster.scratch / "tried"
        scripts = ["echo once", f"echo try; [ -e {mark} ] || {{ touch {mark}; exit 1; }}"]
        app_id = group(cluster, scripts, [{"retries": 2}])
        end = cluster.wait(app_id)
        assert (end.state, end.restarts) == (AppState.SUCCEEDED, 1)
        assert log_of(cluster, app_id, "pair-0") == ["once\n"]
        assert log_of(cluster, app_id, "pair-1") == ["try\n", "try\n"]


class TestNames:
    def test_tasks_reach_each_other_by_their_names(self, cluster: DockerCluster) -> None:
        app_id = group(cluster, [heredoc(SERVE), heredoc(ASK, "pair-0")])
        assert cluster.wait(app_id).state is AppState.SUCCEEDED, log_of(cluster, app_id, "pair-1")
        assert log_of(cluster, app_id, "pair-0") == ["serving\n", "there\n"]
        assert log_of(cluster, app_id, "pair-1") == ["and back\n"]

    def test_a_task_reaches_its_own_group_and_not_another_of_the_same_name(
        self, cluster: DockerCluster, engine: DockerEngine
    ) -> None:
        stay = "echo up; sleep 600"
        ask = "import socket, time; print(socket.gethostbyname('pair-0')); time.sleep(600)"
        groups = [group(cluster, [stay, f'exec python3 -c "{ask}"']) for _ in range(2)]
        for app_id in groups:
            found = partial(log_of, cluster, app_id, "pair-1")
            wait_for(found, "an answer", timeout_s=120)
            (server,) = (c for c in inspected(engine, app_id) if "pair-0" in c["Name"])
            address = server["NetworkSettings"]["Networks"]["nemo_run"]["IPAddress"]
            assert found() == [f"{address}\n"]

    def test_a_container_is_reached_by_its_own_name_too(self, cluster: DockerCluster) -> None:
        name = "contract-1-pair-0"
        app_id = group(cluster, [heredoc(SERVE), heredoc(ASK, name)])
        assert cluster.wait(app_id).state is AppState.SUCCEEDED


class TestSettings:
    def test_each_task_has_the_settings_of_its_own_executor(self, cluster: DockerCluster) -> None:
        executors = [
            {"container_image": PLAIN, "env_vars": {"WORD": "first"}},
            {"container_image": PYTHON, "env_vars": {"WORD": "second"}},
        ]
        show = "command -v bash >/dev/null && echo bash; echo $WORD"
        app_id = group(cluster, [show, show], executors)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert log_of(cluster, app_id, "pair-0")[-1:] == ["first\n"]
        assert log_of(cluster, app_id, "pair-1") == ["bash\n", "second\n"]
