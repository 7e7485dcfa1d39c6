"""Devspaces on this machine: what any process can do with them, and what is private."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import patience
from tests.integration import devspaces
from tests.integration.terminals import Terminal

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.core.tunnel.server import TunnelMetadata
from nemo_run.devspace import _records, commands
from nemo_run.exceptions import ConfigError, JobFailedError

pytestmark = [pytest.mark.slow, pytest.mark.needs("sshd")]

SECRET = "hunter2-and-more"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield devspaces.home_of_its_own(tmp_path, monkeypatch)
    for record in _records.known():
        commands.stop(record.name)


def space(name: str = "here", **settings: object) -> run.DevSpace:
    given = {"editor": "none", "detach": True, **settings}
    return run.DevSpace(name, run.LocalExecutor(), **given)  # type: ignore[arg-type]


def test_sessions_have_the_variables_of_the_job_and_begin_in_the_workspace() -> None:
    executor = run.LocalExecutor(env_vars={"A": "of the executor", "B": "of the executor"})
    words = 'it\'s "$HOME" `x`\nand more'
    made = run.DevSpace(
        "here", executor, env_vars={"B": words}, editor="none", detach=True, idle="10m"
    )
    made.launch()
    workspace = _records.root() / "here" / "workspace"
    assert devspaces.said("here", 'printf "%s|%s" "$A" "$B"') == f"of the executor|{words}"
    assert devspaces.said("here", "pwd; echo $PYTHONPATH") == f"{workspace}\n{workspace}"
    assert executor.env_vars == {"A": "of the executor", "B": "of the executor"}
    file = workspace / "sent"
    sftp = ["sftp", "-F", str(Path.home() / ".ssh" / "config"), "-b", "-", devspaces.alias("here")]
    told = f"put {sys.executable} {file}\n"
    subprocess.run(sftp, input=told, text=True, check=True, capture_output=True)
    assert file.stat().st_size == Path(sys.executable).stat().st_size


def test_only_the_key_of_this_machine_is_let_in_and_files_are_private(
    tmp_path: Path, nemorun_home: Path
) -> None:
    space(env_vars={"API_TOKEN": SECRET}).launch()
    record = _records.get("here")
    assert devspaces.said("here", "echo $API_TOKEN") == SECRET

    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    config = (_records.root() / "ssh_config").read_text()
    other = tmp_path / "config"
    other.write_text(config.replace(str(record.identity), str(stranger)))
    argv = ["ssh", "-F", str(other), "-o", "BatchMode=yes", record.alias, "true"]
    refused = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert refused.returncode == 255
    assert "Permission denied (publickey)" in refused.stderr

    private = Path(devspaces.said("here", "echo $NEMO_DEVSPACE_PRIVATE"))
    for directory in (private, Path(record.directory), record.home):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory
        for file in directory.iterdir():
            if file.is_file() and file.suffix != ".pub":
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    for file in (p for p in nemorun_home.rglob("*") if p.is_file()):
        if SECRET.encode() in file.read_bytes():
            assert not stat.S_IMODE(file.stat().st_mode) & 0o077, file
    assert SECRET not in (Path(record.directory) / "devspace.zlib").read_text()
    note = TunnelMetadata.restore(Path(record.directory))
    assert (note.user, note.workspace_name) == (devspaces.said("here", "id -un"), "here")
    listening = Path("/proc/net/tcp").read_text()
    assert f"0100007F:{note.port:04X}" in listening
    commands.stop("here")
    assert not private.exists()
    assert not Path(record.directory).exists()


def test_a_devspace_is_found_by_any_process_and_launched_once() -> None:
    script = (
        "import nemo_run as run\n"
        "run.DevSpace('here', run.LocalExecutor(), editor='none').launch()\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert launcher.stdout is not None
    lines = []
    for line in launcher.stdout:
        lines.append(line)
        if "Connect with" in line:
            break
    launcher.kill()
    launcher.communicate()
    assert f"ssh {devspaces.alias('here')}" in lines[-1]
    (row,) = devspaces.listed().values()
    assert (row["state"], row["executor"]) == ("RUNNING", "LocalExecutor")
    pid = devspaces.said("here", "echo $PPID")
    again = devspaces.nemorun("devspace", "connect", "here", "--detach", "--editor", "none")
    assert again.returncode == 0, again.stderr
    space().launch()
    assert devspaces.listed()["here"]["experiment"] == row["experiment"]
    assert pid
    done = devspaces.nemorun("devspace", "stop", "here")
    assert (done.returncode, done.stdout) == (0, "here: CANCELLED\n")
    unknown = devspaces.nemorun("devspace", "connect", "here", "--detach")
    assert unknown.returncode == 2
    assert "There is no devspace 'here' on this machine" in unknown.stderr


def test_a_process_that_stays_says_how_to_go_on_after_an_interrupt() -> None:
    script = (
        "import nemo_run as run\n"
        "run.DevSpace('here', run.LocalExecutor(), editor='none').launch()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as launcher:
        assert launcher.stdout is not None
        while "Connect with" not in launcher.stdout.readline():
            pass
        launcher.send_signal(2)
        said, _ = launcher.communicate(timeout=patience.seconds(30))
    assert "nemorun devspace stop here" in said
    assert launcher.returncode == 0
    assert devspaces.listed()["here"]["state"] == "RUNNING"


@pytest.mark.parametrize("died", ["before the experiment was there", "before it was submitted"])
def test_a_launcher_that_died_is_not_in_the_way(died: str) -> None:
    if died == "before the experiment was there":
        _records.Record(
            name="here",
            label="devspace-here_1",
            experiment="devspace-here_1",
            job="interactive",
            directory="/nowhere",
            workspace="/nowhere",
            executor="LocalExecutor",
        ).save()
    else:
        script = (
            "import os\n"
            "import nemo_run as run\n"
            "run.LocalExecutor.package = lambda *given: os._exit(9)\n"
            "run.DevSpace('here', run.LocalExecutor()).launch()\n"
        )
        done = subprocess.run([sys.executable, "-c", script], check=False)
        assert done.returncode == 9
    assert devspaces.listed()["here"]["state"] == "UNSUBMITTED"
    space().launch()
    assert devspaces.listed()["here"]["state"] == "RUNNING"
    assert devspaces.said("here", "echo $NEMO_DEVSPACE") == "here"


def test_the_user_is_asked_for_an_editor_at_a_terminal(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(
        "from nemo_run.devspace.editor import chosen_editor\nprint('chose', chosen_editor(None))\n"
    )
    terminal = Terminal(script)
    terminal.wait_for(lambda text: "Open an editor (code, cursor, none)?" in text, "the question")
    terminal.type("cursor\n")
    terminal.wait_for(lambda text: "chose cursor" in text, "the answer")
    assert terminal.wait() == 0
    terminal.close()


def test_a_way_back_that_cannot_be_opened_fails_the_job_and_says_why() -> None:
    made = space("back", reverse="-p 1 127.0.0.1")
    with pytest.raises(JobFailedError, match=r"No way back through .* port 1: Connection refused"):
        made.launch()
    assert devspaces.listed() == {}


def test_a_factory_is_launched_from_the_command_line(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "workspace.py").write_text(
        "import nemo_run as run\n"
        "@run.cli.factory\n"
        "def dev() -> run.Config[run.DevSpace]:\n"
        "    return run.Config(run.DevSpace, name='scratch', "
        "executor=run.Config(run.LocalExecutor))\n"
    )
    argv = ["devspace", "launch", "space=dev", "space.executor.retries=1", "--detach"]
    done = subprocess.run(
        [sys.executable, "-m", "nemo_run", *argv, "--idle", "10m"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=workspace,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert devspaces.said("scratch", "echo $NEMO_DEVSPACE") == "scratch"


def test_a_server_that_is_run_by_hand_says_where_it_is_and_how_to_connect(tmp_path: Path) -> None:
    executor = run.SlurmExecutor(
        account="me",
        tunnel=run.SSHTunnel(host="login", user="me", job_dir="/jobs"),
        job_dir=str(tmp_path / "job"),
    )
    text = ZlibJSONSerializer().serialize(run.DevSpace("by-hand", executor).__io__)
    directory = tmp_path / "job" / ".nemo_run" / ".tunnels" / "by-hand"
    with subprocess.Popen(
        [sys.executable, "-m", "nemo_run", "devspace", "sshserver", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        said = []
        for line in server.stdout:
            said.append(line)
            if line.startswith("NEMO_RUN_DEVSPACE_READY"):
                break
        assert f"nemorun devspace connect me@login {directory}\n" in said
        assert (directory / "devspace.zlib").read_text() == text
        assert TunnelMetadata.restore(directory).workspace_name == "by-hand"
        server.send_signal(2)
        server.communicate(timeout=patience.seconds(30))
    assert server.returncode == 0
    assert not directory.exists()


def test_several_nodes_and_other_executors_are_refused_before_anything_is_submitted() -> None:
    with pytest.raises(ConfigError, match="one ssh server, but 2 nodes"):
        run.DevSpace("two", run.LocalExecutor(nodes=2)).launch()
    with pytest.raises(ConfigError, match="LeptonExecutor has no method 'launch_devspace'"):
        run.DevSpace("far", run.LeptonExecutor(container_image="x", nemo_run_dir="/x")).launch()
    with pytest.raises(ConfigError, match="'a b' cannot be"):
        run.DevSpace("a b", run.LocalExecutor()).launch()
    with pytest.raises(ConfigError, match="'soon' is not a duration"):
        run.DevSpace("idle", run.LocalExecutor(), idle="soon").launch()
    assert run.Experiment.catalog() == []
    assert _records.known() == []
