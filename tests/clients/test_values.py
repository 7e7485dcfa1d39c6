"""Values of variables and arguments, as the job on the cluster finds them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.clients.users import ClusterUser

pytestmark = pytest.mark.slow

# What programs/values.py sends.
PLAIN = {
    "BLANKS": "  two  words ",
    "QUOTES": 'it\'s "quoted"',
    "SEMICOLON": "a; touch started & echo > started | cat",
    "NEWLINE": "first\nsecond",
    "BACKSLASH": "a\\b\\",
    "STAR": "*",
    "UMLAUT": "naïve ☃",
    "EMPTY": "",
}


@pytest.fixture(scope="module")
def expansions(site: ClusterUser) -> dict[str, Any]:
    return launched(site, "expansions")


@pytest.fixture(scope="module")
def plain(site: ClusterUser) -> dict[str, Any]:
    return launched(site, "plain")


@pytest.fixture(scope="module")
def arguments(site: ClusterUser) -> dict[str, Any]:
    return launched(site, "arguments")


def launched(site: ClusterUser, what: str) -> dict[str, Any]:
    site.runs("values.py", what)
    found = site.found(what)
    assert isinstance(found, dict)
    return found


class TestExpansion:
    def test_a_command_names_the_first_node(self, expansions: dict[str, Any]) -> None:
        assert re.fullmatch(r"node\d", expansions["env"]["MASTER"])
        assert expansions["env"]["MASTER"] == expansions["env"]["SLURMD_NODENAME"]

    def test_a_path_is_put_in_front_of_the_one_of_the_job(self, site: ClusterUser) -> None:
        first, *others = launched(site, "search_path")["env"]["PATH"].split(":")
        assert first == "/x"
        assert "/usr/bin" in others
        assert "$PATH" not in others

    def test_a_variable_that_the_job_lacks_is_empty(self, expansions: dict[str, Any]) -> None:
        assert expansions["env"]["PYTHONPATH"].startswith("/x:")
        assert "$" not in expansions["env"]["PYTHONPATH"]

    def test_braces_set_a_name_apart(self, expansions: dict[str, Any]) -> None:
        assert expansions["env"]["BRACES"] == f"{expansions['env']['SLURM_JOB_ID']}.log"

    def test_variables_of_the_script_are_expanded_as_well(self, expansions: dict[str, Any]) -> None:
        env = expansions["env"]
        assert env["FROM_SCRIPT"] == f"job-{env['SLURM_JOB_ID']}"
        assert env["HOST_TOO"] == env["SLURMD_NODENAME"]

    def test_what_a_command_prints_stays_in_one_piece(self, expansions: dict[str, Any]) -> None:
        assert expansions["env"]["MANY"] == "a  b; c"


@pytest.mark.parametrize("name", list(PLAIN))
@pytest.mark.parametrize("source", ["E", "S"], ids=["executor", "script"])
def test_a_value_arrives_as_it_is(plain: dict[str, Any], source: str, name: str) -> None:
    assert plain["env"][f"{source}_{name}"] == PLAIN[name]


def test_nothing_in_a_value_is_started(plain: dict[str, Any]) -> None:
    assert not Path(plain["cwd"], "started").exists()


class TestArguments:
    def test_an_option_with_its_value_is_two_words(self, arguments: dict[str, Any]) -> None:
        assert arguments["argv"][:2] == ["--calib-size", "32"]

    def test_the_number_of_the_job_is_filled_in(self, arguments: dict[str, Any]) -> None:
        assert after(arguments, "--id") == arguments["env"]["SLURM_JOB_ID"]
        assert after(arguments, "--log") == f"{arguments['env']['SLURM_JOB_ID']}.log"

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("--spaced", "a  b; c"),
            ("--stop", "a;b"),
            ("--who", "it's"),
            ("--json", '{"a": [1, 2]}'),
            ("--text", "hello world"),
        ],
    )
    def test_a_value_is_one_word(self, arguments: dict[str, Any], option: str, value: str) -> None:
        assert after(arguments, option) == value

    def test_no_file_names_are_filled_in(self, arguments: dict[str, Any]) -> None:
        assert arguments["argv"][-1] == "*"


def test_elements_of_an_array_are_told_apart(site: ClusterUser) -> None:
    site.runs("values.py", "elements")
    for number in ("0", "1"):
        assert site.found(f"element-{number}")["env"]["SLURM_ARRAY_TASK_ID"] == number


def after(arguments: dict[str, Any], option: str) -> str:
    argv = arguments["argv"]
    assert option in argv, argv
    found = argv[argv.index(option) + 1]
    assert isinstance(found, str)
    return found


def test_secrets_are_not_expanded(site: ClusterUser) -> None:
    env = launched(site, "secrets")["env"]
    assert env["HF_TOKEN"] == "a$b"
    assert env["WANDB_API_KEY"] == "x$(id)y"
    assert env["OPENAI_API_KEY"] == "k${HOME}k"


def test_literals_are_not_expanded(site: ClusterUser) -> None:
    found = launched(site, "literal")
    assert found["env"]["KEPT"] == "$HOME/$(id)"
    assert found["env"]["KEPT_TOO"] == "${HOME}"
    assert found["argv"] == ["$HOME"]


def test_none_stands_for_the_default(site: ClusterUser) -> None:
    site.runs("values.py", "nothing")
    assert (site.out / "nothing.txt").read_text() == "ran\n"


def test_the_status_says_where_the_job_is(site: ClusterUser, expansions: dict[str, Any]) -> None:
    status = site.found("expansions.status")
    assert status["name"] == "main"
    assert status["status"] == "SUCCEEDED"
    assert "Slurm" in status["executor"]
    assert status["job_id"] == expansions["env"]["SLURM_JOB_ID"]
    assert status["handle"] == f"slurm_tunnel://nemo_run/{status['job_id']}"
    assert Path(status["local_dir"]).is_dir()
    if site.way == "ssh":
        assert Path(status["remote_dir"]).is_dir()
