"""Groups of commands as pipeline tools build them: side processes, and nodes of several kinds."""

from __future__ import annotations

import pytest
from tests import patience
from tests.clients.users import ClusterUser
from tests.integration.launching import alive

pytestmark = pytest.mark.slow


class TestSandbox:
    def test_the_main_command_reaches_the_sandbox_and_ends_the_job(
        self, cluster_user: ClusterUser
    ) -> None:
        cluster_user.runs("groups.py", "same_node")

        # Each part has the variables of its own executor.
        assert (cluster_user.out / "answer.txt").read_text() == "sandbox of part sandbox\n"
        assert (cluster_user.out / "part.txt").read_text() == "main\n"
        assert cluster_user.found("states") == {"nemo-run": "SUCCEEDED"}
        sandbox = cluster_user.found("sandbox")
        patience.wait_for(lambda: not alive(sandbox), "the end of the sandbox")
        # And the files that its executor names.
        logs = cluster_user.out / "logs"
        assert "main has the answer" in (logs / "main_srun.log").read_text()
        assert "sandbox is there" in (logs / "sandbox_srun.log").read_text()
        assert (logs / "main_sbatch.log").exists()


class TestHeterogeneous:
    def test_each_part_has_its_nodes_and_knows_the_first_one(
        self, cluster_user: ClusterUser
    ) -> None:
        cluster_user.runs("groups.py", "heterogeneous")

        server = cluster_user.found("server")["env"]
        assert server["PART"] == "server"
        assert server["SERVER_HOST"] == server["SLURMD_NODENAME"]
        clients = [(cluster_user.out / f"client-{n}").read_text().split() for n in (0, 1)]
        assert [words[:2] for words in clients] == [["clients", server["SLURMD_NODENAME"]]] * 2
        nodes = {server["SLURMD_NODENAME"], *(words[2] for words in clients)}
        assert len(nodes) == 3
        assert cluster_user.found("states") == {"nemo-run": "SUCCEEDED"}
        logs = cluster_user.out / "logs"
        assert "recorded server" in (logs / "server_srun.log").read_text()
        assert sorted((logs / "clients_srun.log").read_text().split()) == sorted(
            ["client", "0", "client", "1"]
        )

    def test_commands_may_share_a_group_of_nodes(self, cluster_user: ClusterUser) -> None:
        cluster_user.runs("groups.py", "shared_groups")

        found = {name: cluster_user.found(f"in-{name}")["env"] for name in "abc"}
        assert {name: env["PART"] for name, env in found.items()} == {n: n for n in "abc"}
        assert found["a"]["SLURMD_NODENAME"] == found["b"]["SLURMD_NODENAME"]
        assert found["c"]["SLURMD_NODENAME"] != found["a"]["SLURMD_NODENAME"]
        assert cluster_user.found("states") == {"nemo-run": "SUCCEEDED"}
