"""Experiments looked at, followed, ended and repeated from the shell."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import patience
from tests.cli import commands
from tests.cli.commands import Result

import nemo_run as run
from nemo_run.config import set_nemorun_home

Command = Callable[..., Result]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three experiments: one that went well, one that did not, one with changed settings."""
    path = tmp_path_factory.mktemp("shared-home")
    launch = path / "launch.py"
    launch.write_text(
        "import sys\n"
        "import nemo_run as run\n"
        "def train(rate: float = 0.1, fail: bool = False):\n"
        "    print('rate', rate); print('loss', rate * 2)\n"
        "    if fail: sys.exit(3)\n"
        "class Unimportable(run.Plugin):\n"
        "    def setup(self, task, executor): pass\n"
        "def launch(title, **options):\n"
        "    secret = {'API_TOKEN': 'hunter2', 'PLAIN': options.pop('plain', 'x')}\n"
        "    executor = run.LocalExecutor(env_vars=secret)\n"
        "    with run.Experiment(title, executor=executor, check=False) as experiment:\n"
        "        first = experiment.add(run.Partial(train, **options), name='train',\n"
        "                               plugins=[Unimportable()])\n"
        "        experiment.add(run.Script(inline='echo evaluated'), name='eval',\n"
        "                       dependencies=[first])\n"
        "        experiment.run()\n"
        "if __name__ == '__main__':\n"
        "    launch('good'); launch('bad', fail=True); launch('good', rate=0.2, plain='y')\n"
    )
    done = commands.run(
        [commands.BIN / "python", launch], cwd=path, env={"NEMORUN_HOME": str(path / "home")}
    )
    assert done.code == 0, done.err
    return path / "home"


@pytest.fixture
def experiment(home: Path, here: Path) -> Command:
    """Run a command with the three experiments."""
    return lambda *words, **options: commands.nemorun(
        "experiment", *words, cwd=here, env={"NEMORUN_HOME": str(home)}, **options
    )


def test_everything_is_listed_the_newest_first(experiment: Command) -> None:
    listed = experiment("list", "--json").json()
    assert [entry["title"] for entry in listed] == ["good", "bad", "good"]
    assert [entry["state"] for entry in listed] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert listed[1]["states"] == {"FAILED": 1, "CANCELLED": 1}
    assert listed[0]["executors"] == ["local"]
    assert listed[0]["duration_s"] > 0
    table = experiment("list")
    assert table.lines[0].split() == [
        "ID",
        "STATE",
        "JOBS",
        "EXECUTOR",
        "CREATED",
        "TOOK",
        "TAGS",
        "MESSAGE",
    ]
    assert table.lines[-1] == "3 experiments: 2 SUCCEEDED, 1 FAILED"


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        (["good"], ["good", "good"]),
        (["--state", "failed"], ["bad"]),
        (["--state", "failed", "--state", "SUCCEEDED"], ["good", "bad", "good"]),
        (["--executor", "LocalExecutor"], ["good", "bad", "good"]),
        (["--executor", "slurm"], []),
        (["--since", "1h"], ["good", "bad", "good"]),
        (["--until", "1h"], []),
        (["--text", "0.2"], ["good"]),
        (["--text", "EVALUATED"], ["good", "bad", "good"]),
        (["--limit", "2"], ["good", "bad"]),
        (["--tag", "none-such"], []),
    ],
    ids=" ".join,
)
def test_the_list_can_be_filtered(experiment: Command, words: list[str], titles: list[str]) -> None:
    listed = experiment("list", *words, "--json").json()
    assert [entry["title"] for entry in listed] == titles


def test_an_experiment_is_found_by_id_beginning_title_handle_and_latest(
    experiment: Command,
) -> None:
    newest, bad, oldest = experiment("list", "--ids").lines
    handle = experiment("show", bad, "--json").json()["jobs"][0]["handles"][0]
    app_id = handle.rpartition("/")[2]
    found = {
        word: experiment("status", word, "--json").json()["id"]
        for word in (oldest, oldest[:-3], "good", "bad", "ba", handle, app_id, "latest")
    }
    assert found == {
        oldest: oldest,
        oldest[:-3]: oldest,
        "good": newest,
        "bad": bad,
        "ba": bad,
        handle: bad,
        app_id: bad,
        "latest": newest,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "god"], "There is no experiment 'god'. Did you mean 'good'?"),
        (["status", "zzz"], "There is no experiment 'zzz'. See `nemorun experiment list`."),
        (["status", "goo"], "'goo' could be 2 experiments: good_"),
        (["rm"], "The following arguments are required: EXPERIMENT."),
        (["note"], "The following arguments are required: EXPERIMENT."),
        (["tag"], "The following arguments are required: EXPERIMENT."),
        (["logs", "bad", "trian"], "There is no job 'trian'. Did you mean 'train'?"),
        (["logs", "bad", "7"], "There is no job '7'. Known: eval, train."),
        (["logs", "bad", "--grep", "["], "--grep '[' is not a regular expression"),
        (["list", "--state", "FIALED"], "There is no state 'FIALED'. Did you mean 'FAILED'?"),
        (["list", "--since", "soon"], "'soon' is not a time."),
        (["list", "--stat", "x"], "There is no option --stat. Did you mean '--state'?"),
        (["wait", "bad", "--timeout", "1x"], "'1x' is not a duration."),
        (["logs", "bad", "--tail", "-1"], "-1 makes no sense: use a number from 0 on"),
        (["list", "--limit", "-1"], "-1 makes no sense: use a number from 0 on"),
        (["gc", "--older-than", "9999999999w"], "is longer than anything takes"),
        (["logs", "bad", "--since", "9999999999w"], "is longer than anything takes"),
        (["tag", "bad", "two words"], "'two words' is no tag"),
        (["rerun", "bad", "rate"], "'rate' is not of the form key=value."),
        (["rerun", "bad", "raet=1", "--job", "train"], "raet=1: No parameter named 'raet'"),
        (["rerun", "bad", "run.name=x"], "run.name cannot be changed here."),
        (["rerun", "bad", "rate=1"], "A script has no arguments to change."),
        (["rerun", "good", "--failed"], "succeeded; there is nothing to run again."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_words_are_one_clear_line(experiment: Command, words: list[str], said: str) -> None:
    result = experiment(*words)
    assert said in result.err
    assert (result.code, len(result.err.splitlines()), result.out) == (2, 1, "")


def test_status_shows_states_exit_codes_and_a_summary(experiment: Command) -> None:
    shown = experiment("status", "bad")
    assert (shown.code, shown.err) == (0, "")
    train, evaluate = (line.split() for line in shown.lines[2:4])
    assert train[:5] == ["0", "train", "FAILED", "local", "3"]
    assert evaluate[:4] == ["1", "eval", "CANCELLED", "local"]
    assert shown.lines[-1] == "2 jobs: 1 FAILED, 1 CANCELLED"
    one = experiment("status", "bad", "1", "--json").json()
    assert list(one["jobs"]) == ["eval"]
    assert one["jobs"]["eval"]["message"] == "not started: train FAILED"


def test_show_tells_everything_but_secrets(experiment: Command, home: Path) -> None:
    text = experiment("show", "latest").out
    assert "    rate = 0.2" in text.splitlines()
    assert "  Depends on: train" in text.splitlines()
    assert "hunter2" not in text
    data = experiment("show", "latest", "train", "--json").json()
    assert data["provenance"]["cwd"] == str(home.parent)
    assert "Called: " in text
    assert [job["id"] for job in data["jobs"]] == ["train"]
    assert data["jobs"][0]["task"] == {"_target_": "__main__.train", "rate": 0.2}
    assert data["jobs"][0]["executor"]["env_vars"] == {"API_TOKEN": "***", "PLAIN": "y"}


def test_logs_are_printed_for_all_jobs_or_some(experiment: Command) -> None:
    both = experiment("logs", "latest")
    assert sorted(both.lines) == ["eval evaluated", "train loss 0.4", "train rate 0.2"]
    assert experiment("logs", "latest", "eval", "-f").out == "evaluated\n"
    assert experiment("logs", "latest", "0", "--grep", "lo.s").out == "loss 0.4\n"
    assert experiment("logs", "latest", "train", "--tail", "1").out == "loss 0.4\n"
    assert experiment("logs", "latest", "train", "--since", "1h").out.count("\n") == 2
    assert experiment("logs", "latest", "train", "--since", "2200-01-01").out == ""
    line = json.loads(experiment("logs", "latest", "eval", "--json").out)
    assert line == {"job": "eval", "replica": "", "line": "evaluated"}
    missing = experiment("logs", "bad", "eval")
    assert (missing.out, "has not been started" in missing.err) == ("", True)


def test_wait_tells_the_outcome_by_its_exit_code(experiment: Command) -> None:
    good, bad = experiment("wait", "good"), experiment("wait", "good", "bad", "--json")
    assert (good.code, bad.code) == (0, 1)
    assert good.out.endswith(": 2 jobs: 2 SUCCEEDED\n")
    assert [job["status"] for job in list(bad.json().values())[1].values()] == [
        "FAILED",
        "CANCELLED",
    ]


def test_differences_are_named_by_path(experiment: Command) -> None:
    new, _, old = experiment("list", "--ids").lines
    text = experiment("diff", old, new)
    assert text.lines == [
        f"--- {old}",
        f"+++ {new}",
        "job train: task",
        "  + rate = 0.2",
        "job train: environment",
        "  - PLAIN = x",
        "  + PLAIN = y",
        "job eval: environment",
        "  - PLAIN = x",
        "  + PLAIN = y",
    ]
    data = experiment("diff", old, new, "--json").json()
    assert data["differences"]["job train: task"] == [{"path": "rate", "a": None, "b": "0.2"}]
    assert experiment("diff", new, new).lines[-1] == "No differences."


def test_tags_and_notes_are_kept_and_found(experiment: Command) -> None:
    assert experiment("tag", "bad", "paper", "v2").out.endswith(": paper v2\n")
    assert experiment("note", "bad", "diverged at once").code == 0
    (found,) = experiment("list", "--tag", "paper", "--tag", "v2", "--json").json()
    assert (found["title"], found["note"]) == ("bad", "diverged at once")
    assert len(experiment("list", "--text", "diverged", "--ids").lines) == 1
    assert experiment("tag", "bad", "paper", "v2", "--remove", "--json").json()["tags"] == []
    assert experiment("note", "bad", "").out.endswith(": no note\n")


def test_the_list_can_be_exported(experiment: Command, here: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(experiment("export", "--format", "csv").out)))
    assert [row["state"] for row in rows] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert rows[1]["states"] == "1 FAILED, 1 CANCELLED"
    assert experiment("export", "bad", "-o", "runs.json").out == ""
    assert [entry["title"] for entry in json.loads((here / "runs.json").read_text())] == ["bad"]


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home for a test that changes something."""
    path = tmp_path / "own"
    monkeypatch.setenv("NEMORUN_HOME", str(path))
    set_nemorun_home(path)
    yield path


def detached(title: str, **scripts: str) -> None:
    with run.Experiment(title, executor=run.LocalExecutor(), clean_mode=True) as experiment:
        for name, text in scripts.items():
            experiment.add(run.Script(inline=text), name=name)
        experiment.run(detach=True)


@pytest.mark.timeout(300)
def test_running_jobs_are_followed_and_ended(own_home: Path, nemorun: Command) -> None:
    detached("long", one="echo started; sleep 600", two="sleep 600", three="sleep 600")
    ids = nemorun("experiment", "list", "--state", "RUNNING", "--state", "PENDING", "--ids")
    assert len(ids.lines) == 1
    follower = subprocess.Popen(
        [commands.BIN / "nemorun", "experiment", "logs", "long", "-f"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert follower.stdout.readline() == "one started\n"
    timed_out = nemorun("experiment", "wait", "long", "--timeout", "1s")
    assert (timed_out.code, "had not ended in time" in timed_out.err) == (1, True)
    refused = nemorun("experiment", "rm", "long", "--yes")
    assert (refused.code, "Cancel them first" in refused.err) == (2, True)

    first = nemorun("experiment", "cancel", "long")
    assert (first.code, first.lines[0]) == (0, "one: CANCELLED")
    assert "See --all" in first.lines[1]
    two = nemorun("experiment", "cancel", "long", "two", "--json")
    assert two.json() == {"two": "CANCELLED"}
    assert nemorun("experiment", "cancel", "long", "--all").code == 0
    assert follower.wait(timeout=patience.seconds(30)) == 0
    follower.stdout.close()
    assert nemorun("experiment", "wait", "long").code == 1
    (listed,) = nemorun("experiment", "list", "--json").json()
    assert (listed["state"], listed["duration_s"] > 0) == ("CANCELLED", True)
    job = nemorun("experiment", "show", "long", "one", "--json").json()["jobs"][0]
    assert job["message"].startswith("cancelled by ")
    assert job["exit_code"] < 0
    assert job["started_at"] < job["ended_at"]
    (stored,) = own_home.rglob("_STATE/0.json")
    assert json.loads(stored.read_text())["members"][0]["state"] == "CANCELLED", "asked only once"

    kept = nemorun("experiment", "rm", "long", input="n\n")
    assert "Not removed" in kept.out
    assert nemorun("experiment", "rm", "long", "--yes").code == 0
    assert nemorun("experiment", "list").out == "No experiments.\n"
    assert not list(own_home.rglob("long*")), "neither directories nor records are left"


def test_the_tasks_of_a_group_are_followed_side_by_side(own_home: Path, nemorun: Command) -> None:
    with run.Experiment("pair", executor=run.LocalExecutor(), clean_mode=True) as experiment:
        scripts = [run.Script(inline=f"echo {word}; sleep 600") for word in ("one", "two")]
        experiment.add(scripts, name="both")
        experiment.run(detach=True)
    argv = [str(commands.BIN / "nemorun"), "experiment", "logs", "pair", "-f"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert sorted(follower.stdout.readline() for _ in range(2)) == ["0 one\n", "1 two\n"]
        assert nemorun("experiment", "cancel", "pair").code == 0
        assert follower.wait(timeout=patience.seconds(60)) == 0
    head = f"{commands.BIN / 'nemorun'} experiment logs pair -f | head -1"
    done = commands.run(["bash", "-o", "pipefail", "-c", head], cwd=own_home)
    assert (done.code, done.out.count("\n"), done.err) == (0, 1, "")


def test_a_job_is_ended_with_what_it_depends_on(own_home: Path, nemorun: Command) -> None:
    with run.Experiment("chain", executor=run.LocalExecutor(), clean_mode=True) as experiment:
        first = experiment.add(run.Script(inline="sleep 600"), name="first")
        experiment.add(run.Script(inline="true"), name="second", dependencies=[first])
        experiment.add(run.Script(inline="sleep 600"), name="third")
        experiment.run(detach=True)
    ended = nemorun("experiment", "cancel", "chain", "second", "-d", "--json")
    assert ended.json() == {"first": "CANCELLED", "second": "CANCELLED"}
    assert nemorun("experiment", "cancel", "chain", "third").code == 0


def test_what_a_killed_launcher_left_is_resumed(own_home: Path, nemorun: Command) -> None:
    script = own_home.parent / "launch.py"
    script.write_text(
        "import nemo_run as run\n"
        "with run.Experiment('cut', executor=run.LocalExecutor()) as e:\n"
        "    a = e.add(run.Script(inline='sleep 1'), name='a')\n"
        "    e.add(run.Script(inline='echo went on'), name='b', dependencies=[a])\n"
        "    e.run()\n"
    )
    launcher = subprocess.Popen(
        [commands.BIN / "python", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = patience.deadline(30)
    while not list(own_home.rglob("_STATE/0.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    launcher.kill()
    launcher.wait()
    abandoned = nemorun("experiment", "wait", "cut")
    assert (abandoned.code, "nemorun experiment resume" in abandoned.err) == (1, True)
    resumed = nemorun("experiment", "resume", "cut", "--json")
    assert resumed.json()["jobs"] == {"a": "SUCCEEDED", "b": "SUCCEEDED"}
    assert resumed.code == 0
    assert nemorun("experiment", "logs", "cut", "b").out == "went on\n"


def test_secrets_among_the_arguments_of_tasks_are_not_shown(
    own_home: Path, nemorun: Command, here: Path
) -> None:
    script = here / "launch.py"
    script.write_text(
        "import nemo_run as run\n"
        "class Client:\n"
        "    def __init__(self, password: str, tokens: int): ...\n"
        "def work(client, api_key='', urls=(), tokenizer='gpt2'): ...\n"
        "if __name__ == '__main__':\n"
        "    client = run.Config(Client, password='hunter5', tokens=77)\n"
        "    urls = ['https://ann:hunter6@host/x']\n"
        "    task = run.Partial(work, client, api_key='hunter7', urls=urls)\n"
        "    place = run.LocalExecutor(env_vars={'URL': 'https://ann:hunter8@host/x'})\n"
        "    run.run(task, executor=place, name='secretive')\n"
        "    run.dryrun_fn(task, executor=place)\n"
    )
    ran = commands.run([commands.BIN / "python", script], cwd=here)
    assert ran.code == 0, ran.err
    said = [
        ran,
        nemorun("plan", "launch.py"),
        nemorun("experiment", "show", "latest"),
        nemorun("experiment", "show", "latest", "--json"),
        nemorun("experiment", "diff", "latest", "latest", "--json"),
    ]
    for result in said:
        assert result.code == 0, result.err
        assert "hunter" not in result.out + result.err
    assert "tokenizer" in ran.out
    assert "gpt2" in ran.out
    assert said[3].json()["jobs"][0]["task"]["client"]["tokens"] == 77


def test_experiments_with_any_name_can_be_reached(own_home: Path, nemorun: Command) -> None:
    for title in ("-x", "other"):
        with run.Experiment(title, executor=run.LocalExecutor(), clean_mode=True) as made:
            made.add(run.Script(inline="exit 1"), name="-job")
            made.run()
    assert nemorun("experiment", "status", "--json", "--", "-x").json()["jobs"]
    assert nemorun("experiment", "logs", "--", "-x", "-job").code == 0
    assert nemorun("experiment", "list", "--ids", "--", "-x").lines == [
        nemorun("experiment", "list", "--ids").lines[-1]
    ]
    lost = nemorun("experiment", "status", "-x")
    assert (lost.code, "A name that begins with - stands after --." in lost.err) == (
        2,
        True,
    )


def test_experiments_of_scripts_that_import_what_is_beside_them_run_again(
    own_home: Path, nemorun: Command, here: Path
) -> None:
    place = here / "their place"
    place.mkdir()
    (place / "models.py").write_text(
        "def work(x: int = 1, fail: bool = True):\n"
        "    import more_models\n"
        "    print('x is', x)\n"
        "    if fail: raise SystemExit(1)\n"
    )
    (place / "more_models.py").touch()
    (place / "launch.py").write_text(
        "import nemo_run as run\n"
        "import models\n"
        "def own(x: int = 1, fail: bool = True):\n"
        "    models.work(x, fail)\n"
        "if __name__ == '__main__':\n"
        "    with run.Experiment('again', executor=run.LocalExecutor(), check=False) as e:\n"
        "        e.add(run.Partial(models.work, fail=False), name='theirs')\n"
        "        e.add(run.Partial(own, fail=False), name='own')\n"
        "        e.add(run.Partial(own), name='poor')\n"
        "        e.run()\n"
    )
    assert commands.run([commands.BIN / "python", place / "launch.py"], cwd=here).code == 0
    same = nemorun("experiment", "rerun", "again", "--json")
    went = {"theirs": "SUCCEEDED", "own": "SUCCEEDED", "poor": "FAILED"}
    assert same.json()["jobs"] == went
    changed = nemorun("experiment", "rerun", "latest", "--failed", "fail=no", "x=2", "--json")
    assert (changed.code, changed.json()["jobs"]) == (0, {"poor": "SUCCEEDED"}), changed.err
    once_more = nemorun("experiment", "rerun", "latest", "x=3", "--detach", "--json")
    assert nemorun("experiment", "wait", once_more.json()["id"]).code == 0
    assert nemorun("experiment", "logs", "latest").out == "x is 3\n"


def test_experiments_run_again_with_changes_or_only_what_failed(
    own_home: Path, nemorun: Command, here: Path
) -> None:
    script = here / "launch.py"
    script.write_text(
        "import sys, nemo_run as run\n"
        "def work(x: int, fail: bool = False):\n"
        "    print('x is', x)\n"
        "    if fail: sys.exit(1)\n"
        "if __name__ == '__main__':\n"
        "    with run.Experiment('again', executor=run.LocalExecutor(), check=False) as e:\n"
        "        a = e.add(run.Partial(work, x=1), name='fine')\n"
        "        e.add(run.Partial(work, x=2, fail=True), name='poor', dependencies=[a])\n"
        "        e.run()\n"
    )
    assert commands.run([commands.BIN / "python", script], cwd=here).code == 0
    whole = nemorun("experiment", "rerun", "again", "x+=10", "fail=False", "--json")
    assert (whole.code, whole.json()["jobs"]) == (0, {"fine": "SUCCEEDED", "poor": "SUCCEEDED"})
    log = nemorun("experiment", "logs", "latest")
    assert sorted(log.lines) == ["fine x is 11", "poor x is 12"]

    first = nemorun("experiment", "list", "--ids").lines[-1]
    still = nemorun("experiment", "rerun", first, "--failed")
    assert (still.code, still.out.endswith(": 1 job: 1 FAILED\n")) == (1, True)
    words = ("fail=False", "run.executor.env_vars.A=1", "--failed", "--detach", "--json")
    offered = nemorun("__complete", "fish", "experiment", "rerun", first, "")
    assert offered.lines == ["fail=", "run.executor=", "x="]
    away = nemorun("experiment", "rerun", first, *words)
    assert away.code == 0, away.err
    assert nemorun("experiment", "wait", away.json()["id"]).code == 0
    shown = nemorun("experiment", "show", "latest", "--json").json()["jobs"]
    assert [(job["id"], job["executor"]["env_vars"]) for job in shown] == [("poor", {"A": "1"})]
    other = "run.executor=LocalExecutor(env_vars={'B': '2'})"
    elsewhere = nemorun("experiment", "rerun", first, other, "fail=no", "--dryrun")
    assert (elsewhere.code, "with B=2\n" in elsewhere.out) == (0, True), elsewhere.err
    dry = nemorun("experiment", "rerun", first, "--dryrun")
    assert (dry.code, "[DRYRUN] Task poor" in dry.out) == (0, True), dry.err
    told = nemorun("experiment", "rerun", first, "--dryrun", "--failed", "--json").json()
    assert told == {"id": None, "jobs": {"poor": "UNSUBMITTED"}}
    assert len(nemorun("experiment", "list", "--ids").lines) == 4, "a dry run leaves none"


def test_old_experiments_are_collected_after_a_dry_run(own_home: Path, nemorun: Command) -> None:
    detached("old", job="true")
    detached("tagged", job="true")
    detached("busy", job="sleep 600")
    assert nemorun("experiment", "wait", "old", "tagged").code == 0
    nemorun("experiment", "tag", "tagged", "keep")
    words = ("experiment", "gc", "--older-than", "0s", "--keep-tagged")
    dry = nemorun(*words)
    assert dry.lines[-1] == (
        "1 experiment and 0 archives of code (0.0 MB) would be removed; say --yes to do it"
    )
    assert len(nemorun("experiment", "list", "--ids").lines) == 3
    collected = nemorun(*words, "--yes", "--json").json()
    assert (collected["removed"], collected["unused"]) == (True, {})
    left = nemorun("experiment", "list", "--json").json()
    assert sorted(entry["title"] for entry in left) == ["busy", "tagged"]
    assert nemorun("experiment", "cancel", "busy").code == 0


def test_what_is_read_by_nobody_ends_quietly(experiment: Command, home: Path) -> None:
    command = f"{commands.BIN / 'nemorun'} experiment list --json | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={"NEMORUN_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


def test_code_is_compared_and_run_again_only_if_it_was_recorded(
    own_home: Path, nemorun: Command, here: Path
) -> None:
    repository = here / "repository"
    repository.mkdir()
    launch = repository / "launch.py"

    def launched(line: str) -> None:
        launch.write_text(
            "import nemo_run as run\n"
            f"{line}\n"
            "with run.Experiment('coded', executor=run.LocalExecutor()) as e:\n"
            "    e.add(run.Script('say.sh'), name='say')\n"
            "    e.run()\n"
        )
        (repository / "say.sh").write_text(f"echo {line}\n")
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", line]):
            assert commands.run([*git, *words], cwd=repository).code == 0
        done = commands.run([commands.BIN / "python", launch], cwd=repository)
        assert done.code == 0, done.err

    launched("first = 1")
    launched("second = 2")
    new, old = nemorun("experiment", "list", "--ids").lines
    shown = nemorun("experiment", "diff", old, new)
    assert shown.lines[-3:] == [
        "launching script",
        "  - line 2 = first = 1",
        "  + line 2 = second = 2",
    ]
    found = nemorun("experiment", "diff", old, new, "--json").json()["differences"]["code"]
    assert [change["path"] for change in found] == ["commit"]
    again = nemorun("experiment", "rerun", old, "--code", "recorded")
    assert (again.code, "took none along" in again.err) == (2, True)
