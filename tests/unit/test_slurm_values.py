"""Values on Slurm: what is marked for the job's shell, what tasks get, what a plan shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contract import tasks
from tests.unit.slurm_here import fake_slurm, run_here
from torchx.specs import AppDef

import nemo_run as run
from nemo_run._backends.slurm.request import plan
from nemo_run._experiments.store.plans import Plan
from nemo_run._jobs.records import TAG
from nemo_run.config import Partial, Script
from nemo_run.core.execution.base import Executor, ExecutorMacros
from nemo_run.core.execution.slurm import SlurmBatchRequest
from nemo_run.run.torchx_backend.packaging import merge_executables, package

SHOW = (
    "import json, os, sys; "
    "json.dump({'argv': sys.argv[1:], 'env': dict(os.environ)}, sys.stdout); print()"
)


class Bed:
    """A place where tasks are packaged, planned and run by scripts like those of a cluster."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = fake_slurm(root)

    def executor(self, **settings: Any) -> run.SlurmExecutor:
        executor = run.SlurmExecutor(account="a", wait_time_for_group_job=0, **settings)
        executor.tunnel.job_dir = str(self.root / "exp")
        executor.job_dir = str(self.root / "exp" / "job")
        executor.create_job_dir()
        return executor

    def planned(
        self, *scripts: Script | Partial[Any], executors: Sequence[run.SlurmExecutor] = ()
    ) -> SlurmBatchRequest:
        """Return the request for tasks, which have been written to a file and read meanwhile."""
        executors = list(executors) or [self.executor()] * len(scripts)
        apps = (
            package(f"job-{n}", script, executor)
            for n, (script, executor) in enumerate(zip(scripts, executors, strict=True))
        )
        app = stored(merge_executables(apps, "job"), self.root)
        app.metadata = {**app.metadata, TAG: "nr-1"}
        merged = executors[0]
        if len(scripts) > 1:
            merged = run.SlurmExecutor.merge(executors, len(scripts))
            merged.job_dir = executors[0].job_dir
        macros = merged.macro_values()
        app.roles = [macros.apply(role) for role in app.roles]
        return plan(app, merged)

    def got(self, request: SlurmBatchRequest, **extra: str) -> list[Any]:
        """Run the script of a request and return what its tasks printed, in their order."""
        done = run_here(request, self.root / "exp", {**self.environment, **extra})
        assert done.returncode == 0, done.stderr
        logs = sorted(Path(request.remote_dir).glob("log-*"))
        return [json.loads(log.read_text()) for log in logs]


def stored(app: AppDef, root: Path) -> AppDef:
    """Return an application as another process reads it."""
    plan = json.loads(json.dumps(Plan(str(root), [app]).to_json()))
    (again,) = Plan.from_json(plan).apps
    return again


def show(*args: str, env: Mapping[str, str] | None = None) -> Script:
    """Return a script that shows what it was given."""
    return Script(inline=SHOW, entrypoint=sys.executable, args=list(args), env=dict(env or {}))


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


class TestWhatTasksGet:
    def test_variables_of_executor_and_script_are_filled_in_one_after_the_other(
        self, bed: Bed
    ) -> None:
        executor = bed.executor(
            env_vars={
                "FIRST": "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)",
                "PYTHONPATH": "/x:$PYTHONPATH",
                "SECOND": "${FIRST}:1",
                "PLAIN": "a  b; exit 9\n`exit 9` \"'\\ *",
            }
        )
        script = show(env={"THIRD": "<$SECOND>", "KEPT": run.literal("$FIRST"), "OFF": "\\$FIRST"})
        (got,) = bed.got(bed.planned(script, executors=[executor]), PYTHONPATH="/y")
        wanted = {
            "FIRST": "node1",
            "PYTHONPATH": "/x:/y",
            "SECOND": "node1:1",
            "THIRD": "<node1:1>",
            "KEPT": "$FIRST",
            "OFF": "$FIRST",
            "PLAIN": "a  b; exit 9\n`exit 9` \"'\\ *",
        }
        assert {name: got["env"][name] for name in wanted} == wanted

    def test_a_command_sees_no_parameters_of_ours(self, bed: Bed) -> None:
        script = show("<$(echo $1$#)>", env={"V": "<$(echo $1$#)>"})
        (got,) = bed.got(bed.planned(script))
        assert (got["argv"], got["env"]["V"]) == (["<0>"], "<0>")

    def test_arguments_are_filled_in_and_not_split(self, bed: Bed) -> None:
        executor = bed.executor(env_vars={"SPACED": "a  b; c"})
        args = [
            *("--calib-size 32", "--id", "$SLURM_JOB_ID", "--log ${SLURM_JOB_ID}.log", "$SPACED"),
            *("$(printf 'x  y')", '{"a": [1, 2]}', "it's", "*", "", "$NOT_SET"),
            *(run.literal("$SPACED"), run.literal("--calib-size 32"), "\\$SPACED"),
        ]
        (got,) = bed.got(bed.planned(show(*args), executors=[executor]))
        assert got["argv"] == [
            *("--calib-size", "32", "--id", "17", "--log", "17.log", "a  b; c"),
            *("x  y", '{"a": [1, 2]}', "it's", "*", "", ""),
            *("$SPACED", "--calib-size 32", "$SPACED"),
        ]

    def test_what_is_different_for_each_task_is_filled_in_by_it(self, bed: Bed) -> None:
        srun = bed.root / "bin" / "srun"
        srun.write_text(srun.read_text().replace('exec "$@"', 'SLURM_PROCID=5 exec "$@"'))
        script = show("$SLURM_PROCID-$(echo on $HOST)-$SLURM_JOB_ID", "$HOST", env={"HOST": "a  b"})
        (got,) = bed.got(bed.planned(script), SLURM_PROCID="0")
        assert got["argv"] == ["5-on a b-17", "a  b"]

    def test_placeholders_are_filled_in_beside_all_that(self, bed: Bed) -> None:
        nodes = f"$${ExecutorMacros.NUM_NODES_VAR}"
        script = show(f"{nodes} of $SIZE", "$SIZE", run.literal(nodes), env={"SIZE": "a  b"})
        (got,) = bed.got(bed.planned(script), SLURM_NNODES="4")
        assert got["argv"] == ["4 of a  b", "a  b", nodes]

    def test_paths_in_the_job_directory_are_found_but_not_in_a_literal(self, bed: Bed) -> None:
        kept = run.literal("/nemo_run/x")
        request = bed.planned(show("/nemo_run/$A", kept, env={"A": "x", "B": kept}))
        (got,) = bed.got(request)
        assert got["argv"] == [f"{request.remote_dir}/x", "/nemo_run/x"]
        assert got["env"]["B"] == "/nemo_run/x"

    def test_secrets_arrive_as_they_are(self, bed: Bed) -> None:
        executor = bed.executor(env_vars={"HF_TOKEN": "a$b", "WANDB_API_KEY": "x$(exit 9)y"})
        script = show(env={"MY_PASSWORD": "$SLURM_NNODES"})
        (got,) = bed.got(bed.planned(script, executors=[executor]), SLURM_NNODES="4")
        assert got["env"]["HF_TOKEN"] == "a$b"
        assert got["env"]["WANDB_API_KEY"] == "x$(exit 9)y"
        assert got["env"]["MY_PASSWORD"] == "$SLURM_NNODES"

    def test_what_only_looks_like_a_secret_is_filled_in(self, bed: Bed) -> None:
        env = {"TOKENIZER_PATH": "$SLURM_JOB_ID", "MAX_TOKENS": "$(echo 5)"}
        (got,) = bed.got(bed.planned(show(env=env)))
        assert (got["env"]["TOKENIZER_PATH"], got["env"]["MAX_TOKENS"]) == ("17", "5")

    def test_the_words_of_a_command_line_stay(self, bed: Bed) -> None:
        line = f"{sys.executable} -c {json.dumps(SHOW)} '$HOME' '--a b'"
        (got,) = bed.got(bed.planned(Script(line, args=["$SLURM_JOB_ID", "--c d"])))
        assert got["argv"] == ["$HOME", "--a b", "17", "--c", "d"]

    def test_torchrun_and_its_script_each_have_their_own(self, bed: Bed) -> None:
        torchrun = bed.root / "bin" / "torchrun"
        torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SHOW}" "$@"\n')
        torchrun.chmod(0o755)
        executor = bed.executor(launcher="torchrun", nodes=2, env_vars={"LR": "0.1 0.2"})
        script = Script("/x/train.py", entrypoint="python", args=["--lr $LR", run.literal("$LR")])
        (got,) = bed.got(bed.planned(script, executors=[executor]), SLURM_NODEID="1")
        assert got["argv"][-4:] == ["/x/train.py", "--lr", "0.1 0.2", "$LR"]
        assert got["argv"][got["argv"].index("--node-rank") + 1] == "1"

    def test_a_value_that_needs_one_of_its_task_is_filled_in_there(self, bed: Bed) -> None:
        common = {"WHERE": "$WHO's", "ALL": "<$WHERE>", "SAME": "$SLURM_JOB_ID"}
        scripts = [
            show(env={"WHO": who, **common, "EACH": how})
            for who, how in (("one", "$HOST"), ("two", run.literal("$HOST")))
        ]
        found = bed.got(bed.planned(*scripts), HOST="h")
        texts = [[got["env"][name] for name in ("ALL", "SAME", "EACH")] for got in found]
        assert texts == [["<one's>", "17", "h"], ["<two's>", "17", "$HOST"]]

    def test_a_job_that_is_started_again_fills_them_in_again(self, bed: Bed) -> None:
        request = bed.planned(show("$(echo $TRY)", env={"V": "$TRY"}))
        for attempt in ("0", "1"):
            extra = {"SLURM_RESTART_COUNT": attempt, "TRY": attempt}
            got = bed.got(request, **extra)[-1]
            assert (got["argv"], got["env"]["V"]) == ([attempt], attempt)


class TestTemplates:
    def test_arguments_in_a_template_are_filled_in_by_each_task(self, bed: Bed) -> None:
        launcher = run.SlurmTemplate(template_inline="export A='x  y'\n{{ command }}\n")
        script = show("$A", "--b $(echo '1  2')", run.literal("$A"))
        request = bed.planned(script, executors=[bed.executor(launcher=launcher)])
        (got,) = bed.got(request)
        assert got["argv"] == ["x  y", "--b", "1  2", "$A"]
        assert "#   argument '$A'\n" in repr(request)

    def test_variables_of_rays_own_are_filled_in(self) -> None:
        launcher = run.SlurmRay(env_vars={"A": "x:$HOME", "MY_TOKEN": "a$b"})
        lines = launcher.render_template(["true"]).splitlines()
        assert {'export A=x:"${HOME}"', "export MY_TOKEN='a$b'"} <= set(lines)


class TestElsewhere:
    @pytest.mark.parametrize("kind", [run.LocalExecutor, run.DockerExecutor])
    def test_nothing_is_marked_or_split(self, kind: type[Executor], tmp_path: Path) -> None:
        settings: dict[str, Any] = {"container_image": "x"} if kind is run.DockerExecutor else {}
        executor = kind(env_vars={"A": "$HOME"}, **settings)
        executor.job_dir = str(tmp_path)
        app = package("job", Script("x.sh", args=["--a b", "$HOME"], env={"B": "${C}"}), executor)
        (role,) = app.roles
        assert role.args[-2:] == ["--a b", "$HOME"]
        assert {type(text) for text in (*role.args, *role.env.values())} == {str}

    def test_arguments_of_a_function_are_never_touched(self, bed: Bed) -> None:
        task = Partial(tasks.say, text="--a b $HOME $(exit 9)")
        app = package("job", task, bed.executor())
        assert {type(text) for text in app.roles[0].args} == {str}


class TestPlans:
    def test_a_plan_shows_what_is_filled_in(self, bed: Bed) -> None:
        executor = bed.executor(
            env_vars={"A": "x:$A", "B": "plain", "MY_TOKEN": "a$b", "U": "http://me:pw@$H/"}
        )
        script = show("--log $X.txt", "plain $5", run.literal("$Y"), env={"C": "$(id)"})
        text = repr(bed.planned(script, executors=[executor]))
        start = text.index("# Filled in by the shell of the job:\n")
        assert text[start : text.index("#!/bin/bash")].splitlines()[1:] == [
            "#   variable A='x:$A'",
            "#   variable U='http://***@$H/'",
            "#   variable C='$(id)'",
            "#   argument '$X.txt'",
        ]

    def test_a_plan_with_nothing_of_that_kind_does_not_speak_of_it(self, bed: Bed) -> None:
        assert "Filled in" not in repr(bed.planned(show("a b", env={"A": "50$"})))

    def test_nemorun_plan_shows_it(self, tmp_path: Path) -> None:
        program = tmp_path / "launch.py"
        program.write_text(
            "import nemo_run as run\n"
            "executor = run.SlurmExecutor(account='a', packager=run.Packager(),\n"
            "    env_vars={'WHERE': '$(hostname)'})\n"
            "run.run(run.Script(inline='true', args=['--id $SLURM_JOB_ID']), executor=executor)\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "nemo_run", "plan", str(program)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "#   variable WHERE='$(hostname)'\n" in done.stdout
        assert "#   argument '$SLURM_JOB_ID'\n" in done.stdout
