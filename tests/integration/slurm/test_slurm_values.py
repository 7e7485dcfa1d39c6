"""Values that users write for variables and arguments, as jobs of a real cluster find them."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.integration.docker import images
from tests.integration.launching import launch, write
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.jobs import wait_until
from tests.integration.slurm.podman import PodmanStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FIRST_NODE = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
AWKWARD = "a  b; exit 9 & `exit 9` | 'c' \"d\" \\ * $5 $$ 50%\nnext"

# Run by the jobs: leaves what it was given under a name that no other task has.
RECORD = """
import json, os, sys
name, number = os.environ["RECORD"], os.environ.get("SLURM_ARRAY_TASK_ID", "")
name += "".join(f"-{part}" for part in (number, os.environ["SLURM_PROCID"]) if part)
attempt = os.environ.get("SLURM_RESTART_COUNT", "0")
path = os.path.join(os.environ["OUT"], f"{name}.{attempt}")
with open(path + ".part", "w") as file:
    json.dump({"argv": sys.argv[1:], "env": dict(os.environ)}, file)
os.rename(path + ".part", path)
sys.exit(1 if os.environ.get("FAIL_FIRST") and attempt == "0" else 0)
"""

# How every program below begins: as a team's own tool would.
PROGRAM = """
OUT, REMOTE, RECORD = sys.argv[1:4]

def executor(**settings):
    tunnel = run.SSHTunnel(host="loop", user="root", job_dir=REMOTE)
    settings = {"mem": "100M", "packager": run.Packager(), "tunnel": tunnel, **settings}
    return run.SlurmExecutor(account="root", **settings)

def record(name, *args, env=None):
    variables = {"OUT": OUT, "RECORD": name, **(env or {})}
    return run.Script(RECORD, entrypoint="python3", args=list(args), env=variables)

FIRST_NODE = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)'
"""


class Launcher:
    """Somebody who writes programs that launch jobs, and looks at what the jobs found."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out, self.remote = root / "out", root / "cluster"
        self.out.mkdir()
        self.record = root / "record.py"
        self.record.write_text(RECORD)

    def runs(self, program: str) -> str:
        """Run a program to its end, which must be a good one, and return what it printed."""
        path = write(self.root, PROGRAM + textwrap.dedent(program))
        done = launch(path, str(self.out), str(self.remote), str(self.record))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def found(self, name: str, attempt: int = 0) -> dict[str, Any]:
        path = self.out / f"{name}.{attempt}"
        assert path.exists(), f"no {path.name} among {sorted(p.name for p in self.out.iterdir())}"
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def awaits(self, name: str) -> dict[str, Any]:
        """Wait until a job, which may have to wait for others, has left something."""
        wait_until((self.out / f"{name}.0").exists, name, 180)
        return self.found(name)


@pytest.fixture
def user(slurm: SlurmCluster, tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


@pytest.fixture
def user_without_accounting(bare_slurm: SlurmCluster, tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


ONE_JOB = f"""
    where = executor(
        env_vars={{
            "MASTER": FIRST_NODE,
            "PATH": "/x:$PATH",
            "LOG": "${{SLURM_JOB_ID}}.log",
            "NEXT": "$MASTER/$LOG",
            "PLAIN": {AWKWARD!r},
            "HF_TOKEN": "a$b",
            "KEPT": run.literal("$HOME $(id)"),
            "ESCAPED": "\\\\$HOME",
            "MORE": "${{HOME:-x}} $((1+1))",
        }},
        setup_lines="export FROM_SETUP='set  up'",
    )
    task = record(
        "one-job",
        "--calib-size 32", "--log $LOG", "$FROM_SETUP", "$(printf 'x  y')", {AWKWARD!r},
        run.literal("--calib-size $LOG"), "\\\\$LOG", "",
        env={{"FROM_SCRIPT": "job-$SLURM_JOB_ID", "MY_PASSWORD": "x$(id)y"}},
    )
    with run.Experiment("one", executor=where, check=True) as exp:
        exp.add(task, name="job")
        exp.run()
"""


@pytest.mark.parametrize("whose", ["user", "user_without_accounting"])
def test_one_job(whose: str, request: pytest.FixtureRequest) -> None:
    user: Launcher = request.getfixturevalue(whose)
    user.runs(ONE_JOB)

    got = user.found("one-job-0")
    env, number = got["env"], got["env"]["SLURM_JOB_ID"]
    node = env["SLURMD_NODENAME"]
    assert env["MASTER"] == node
    assert env["PATH"].startswith("/x:/") and "$" not in env["PATH"]
    assert env["LOG"] == f"{number}.log"
    assert env["NEXT"] == f"{node}/{number}.log"
    assert env["PLAIN"] == AWKWARD
    assert env["HF_TOKEN"] == "a$b"
    assert env["KEPT"] == "$HOME $(id)"
    assert env["ESCAPED"] == "$HOME"
    assert env["MORE"] == "${HOME:-x} $((1+1))"
    assert env["FROM_SCRIPT"] == f"job-{number}"
    assert env["MY_PASSWORD"] == "x$(id)y"
    assert got["argv"] == [
        *("--calib-size", "32", "--log", f"{number}.log", "set  up", "x  y", AWKWARD),
        *("--calib-size $LOG", "$LOG", ""),
    ]


def test_a_function_has_the_variables_and_its_own_arguments_untouched(user: Launcher) -> None:
    user.runs(
        """
        tool = os.path.join(os.path.dirname(RECORD), "task_module.py")
        with open(tool, "w") as file:
            file.write("import json, os\\n"
                "def leave(path, text): json.dump([text, os.environ['LOG']], open(path, 'w'))\\n")
        sys.path.insert(0, os.path.dirname(tool))
        import task_module

        python = {"PATH": f"{os.path.dirname(sys.executable)}:$PATH"}
        paths = {"PYTHONPATH": f"{os.path.dirname(tool)}:$PYTHONPATH", "LOG": "$SLURM_JOB_ID"}
        with run.Experiment("fn", executor=executor(env_vars={**python, **paths}), check=True) as e:
            task = run.Partial(task_module.leave, path=OUT + "/fn", text="--a b $HOME $(exit 9)")
            e.add(task, name="job")
            e.run()
        """
    )
    text, number = json.loads((user.out / "fn").read_text())
    assert text == "--a b $HOME $(exit 9)"
    assert number.isdecimal()


def test_the_tasks_of_a_step_have_variables_of_the_job_and_arguments_of_their_own(
    user: Launcher,
) -> None:
    user.runs(
        """
        where = executor(nodes=2, ntasks_per_node=1, env_vars={"RANK": "$SLURM_PROCID"})
        task = record("step", "--rank $SLURM_PROCID", "$SLURMD_NODENAME:$(echo $RANK  x)", "$RANK")
        with run.Experiment("step", executor=where, check=True) as exp:
            exp.add(task, name="job")
            exp.run()
        """
    )
    for rank in ("0", "1"):
        got = user.found(f"step-{rank}")
        # The batch script, which is on the first node, fills in variables.
        assert got["env"]["RANK"] == "0"
        node = got["env"]["SLURMD_NODENAME"]
        assert got["argv"] == ["--rank", rank, f"{node}:0 x", "0"]


def test_a_group_in_one_allocation(user: Launcher) -> None:
    user.runs(
        """
        parts = [
            executor(env_vars={"PART": part, "HOST": FIRST_NODE, "BOTH": "$PART on $HOST"},
                     wait_time_for_group_job=0)
            for part in ("a  1", run.literal("$HOST"))
        ]
        with run.Experiment("group", check=True) as exp:
            exp.add([record("first", "$BOTH"), record("second", "$BOTH")], executor=parts, name="g")
            exp.run()
        """
    )
    first, second = user.found("first-0"), user.found("second-0")
    node = first["env"]["HOST"]
    assert node.startswith("node")
    assert first["argv"] == [f"a  1 on {node}"]
    assert second["argv"] == [f"$HOST on {node}"]


def test_the_parts_of_a_heterogeneous_job(user: Launcher) -> None:
    user.runs(
        """
        first = "$(scontrol show hostnames $SLURM_JOB_NODELIST_HET_GROUP_0 | head -n1)"
        parts = [
            executor(heterogeneous=True, env_vars={"PART": part, "SERVER": first},
                     wait_time_for_group_job=0)
            for part in ("server", "client")
        ]
        meet = 'until ls "$OUT"/server-*.0 "$OUT"/client-*.0 >/dev/null 2>&1; do sleep 0.2; done'
        with run.Experiment("het", check=True) as exp:
            tasks = [
                run.Script(inline=f'python3 {RECORD} "$@"; {meet}', args=["--server $SERVER"],
                           env={"OUT": OUT, "RECORD": "$PART"})
                for _ in parts
            ]
            exp.add(tasks, executor=parts, name="het")
            exp.run()
        """
    )
    server, client = user.found("server-0"), user.found("client-0")
    node = server["env"]["SLURMD_NODENAME"]
    assert node != client["env"]["SLURMD_NODENAME"]
    assert [got["env"]["SERVER"] for got in (server, client)] == [node, node]
    assert [got["argv"] for got in (server, client)] == [["--server", node]] * 2


def test_the_elements_of_an_array(user: Launcher) -> None:
    user.runs(
        """
        where = executor(array="0-2", env_vars={"SHARD": "shard  $SLURM_ARRAY_TASK_ID"})
        with run.Experiment("array", executor=where, check=True) as exp:
            exp.add(record("array", "--shard $SLURM_ARRAY_TASK_ID", "$SHARD"), name="job")
            exp.run()
        """
    )
    for element in ("0", "1", "2"):
        got = user.found(f"array-{element}-0")
        assert got["argv"] == ["--shard", element, f"shard  {element}"]


def test_detached_jobs_that_wait_for_each_other(user: Launcher) -> None:
    user.runs(
        """
        where = executor(env_vars={"HOST": FIRST_NODE, "KEPT": run.literal("$HOME")})
        with run.Experiment("chain", executor=where) as exp:
            args = ("$HOST:$SLURM_JOB_ID", run.literal("$HOST"), "--size 1")
            first = exp.add(record("first", *args), name="first")
            second = exp.add(record("second", *args), name="second", dependencies=[first])
            # Slurm itself cannot hold this one back, so the conductor does.
            exp.add(record("third", *args), name="third", dependencies=[second], run_if="failed")
            exp.add(record("fourth", *args), name="fourth", dependencies=[first, second])
            exp.run(detach=True)
        """
    )
    for name in ("first", "second", "fourth"):
        got = user.awaits(f"{name}-0")
        env = got["env"]
        assert env["HOST"] == env["SLURMD_NODENAME"]
        assert env["KEPT"] == "$HOME"
        assert got["argv"] == [f"{env['HOST']}:{env['SLURM_JOB_ID']}", "$HOST", "--size", "1"]


def test_jobs_that_a_conductor_starts_later(user: Launcher) -> None:
    user.runs(
        """
        where = executor(env_vars={"KEPT": run.literal("$HOME")})
        with run.Experiment("later", executor=where) as exp:
            failing = exp.add(run.Script(inline="exit 1"), name="failing")
            task = record("later", "$SLURM_JOB_ID", run.literal("$SLURM_JOB_ID"), "--size 1")
            # Slurm has no word for this, so another process submits it, from what is on disk.
            exp.add(task, name="later", dependencies=[failing], run_if="failed")
            exp.run(detach=True)
        """
    )
    got = user.awaits("later-0")
    assert got["env"]["KEPT"] == "$HOME"
    assert got["argv"] == [got["env"]["SLURM_JOB_ID"], "$SLURM_JOB_ID", "--size", "1"]


def test_an_experiment_that_is_run_again_from_its_files(user: Launcher) -> None:
    text = """
        where = executor(env_vars={"NUMBER": "$SLURM_JOB_ID", "KEPT": run.literal("$HOME")})
        with run.Experiment("again", executor=where, check=True) as exp:
            exp.add(record("again", "$NUMBER", run.literal("$NUMBER")), name="job")
            exp.run()
    """
    user.runs(text)
    before = user.found("again-0")
    user.runs(
        """
        exp = run.Experiment.from_title("again").reset()
        with exp:
            exp.run()
        """
    )
    after = user.found("again-0")
    assert before["argv"] != after["argv"]
    for got in (before, after):
        assert got["argv"] == [got["env"]["SLURM_JOB_ID"], "$NUMBER"]
        assert got["env"]["KEPT"] == "$HOME"


def test_a_job_that_is_started_again(user: Launcher) -> None:
    user.runs(
        """
        where = executor(retries=1, env_vars={"TRY": "try  $SLURM_RESTART_COUNT", "FAIL_FIRST": "1",
                                              "MY_TOKEN": "a$b"})
        with run.Experiment("tries", executor=where, check=True) as exp:
            exp.add(record("tries", "$TRY", "$(echo $SLURM_RESTART_COUNT)"), name="job")
            exp.run()
        """
    )
    for attempt in (0, 1):
        got = user.found("tries-0", attempt)
        count = got["env"].get("SLURM_RESTART_COUNT", "")
        assert got["argv"] == [f"try  {count}", count]
        assert got["env"]["MY_TOKEN"] == "a$b"


def test_a_task_in_a_container(user: Launcher, podman_store: PodmanStore) -> None:
    lines = "\n".join(f"export {name}={value}" for name, value in podman_store.environment.items())
    user.runs(
        f"""
        where = executor(
            container_image={images.PYTHON!r}, container_runtime="podman", setup_lines={lines!r},
            container_mounts=[f"{{OUT}}:{{OUT}}", f"{{RECORD}}:{{RECORD}}"],
            env_vars={{"HOST": FIRST_NODE, "ALL": "$HOST:$SLURM_JOB_ID"}},
        )
        with run.Experiment("box", executor=where, check=True) as exp:
            exp.add(record("box", "--all $ALL", "$SLURM_PROCID-$HOST", "$HOME",
                           run.literal("$HOME")), name="job")
            exp.run()
        """
    )
    got = user.found("box-0")
    number, host = got["env"]["SLURM_JOB_ID"], got["env"]["HOST"]
    *others, home, kept = got["argv"]
    assert others == ["--all", f"{host}:{number}", f"0-{host}"]
    assert host.startswith("node")
    # The batch script fills it in, so it is that of the node.
    assert home.startswith("/") and home != got["env"]["HOME"]
    assert kept == "$HOME"


def test_a_template_with_the_command_in_it(user: Launcher) -> None:
    user.runs(
        """
        template = "export WHO='a  b'\\nbash -c 'cd /; {{ command }}'\\n"
        where = executor(launcher=run.SlurmTemplate(template_inline=template))
        with run.Experiment("template", executor=where, check=True) as exp:
            task = record("template", "--who $WHO", run.literal("$WHO"), "it's")
            exp.add(task, name="job")
            exp.run()
        """
    )
    assert user.found("template-0")["argv"] == ["--who", "a  b", "$WHO", "it's"]


def test_a_dry_run_shows_what_is_filled_in_and_no_secret(user: Launcher) -> None:
    said = user.runs(
        """
        where = executor(env_vars={"HOST": FIRST_NODE, "MY_TOKEN": "hunter2$b"})
        with run.Experiment("dry", executor=where) as exp:
            exp.add(record("dry", "--id $SLURM_JOB_ID", run.literal("$KEPT")), name="job")
            exp.dryrun()
        """
    )
    shown = said[said.index("# Filled in by the shell of the job") :]
    assert f"#   variable HOST={FIRST_NODE!r}\n" in shown
    assert "#   argument '$SLURM_JOB_ID'\n" in shown
    assert "argument '$KEPT'" not in shown
    assert "hunter2" not in said
