"""What the words after a script's name do to its task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.commands import Result
from tests.cli.conftest import Several

SMALL = {"width": 4, "depth": 2}

# Words, and what of the task they make different from its defaults.
GIVEN: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a factory": (["net=small_net"], {"net": SMALL}),
    "a factory with arguments, then an override": (
        ["net=small_net(width=3)", "net.depth=9"],
        {"net": {"width": 3, "depth": 9}},
    ),
    "a part before the whole it is of": (
        ["net.depth=9", "net=small_net"],
        {"net": {"width": 4, "depth": 9}},
    ),
    "operators": (
        ["net=small_net", "net.width*=2", "steps+=1"],
        {"net": {"width": 8, "depth": 2}, "steps": 11},
    ),
    "the same operator twice": (["net=small_net", "steps+=1", "steps+=1"], {"steps": 12}),
    "an assignment before an operator": (["net=small_net", "steps=3", "steps+=1"], {"steps": 4}),
    "a nested value without its holder": (["net.width=5"], {"net": {"width": 5, "depth": 2}}),
    "a nested value of a default": (
        ["net.width=5", "default.width=1"],
        {"default": {"width": 1, "depth": 7}},
    ),
    "a nested value of an optional class": (
        ["net=small_net", "other.depth=5"],
        {"other": {"width": 8, "depth": 5}},
    ),
    "two nested objects of one class": (
        ["net=Config", "other=Config", "net.width=1", "other.width=2"],
        {"net": {"width": 1, "depth": 2}, "other": {"width": 2, "depth": 2}},
    ),
    "an element of a list": (
        ["net=small_net", "nets[1].width=5"],
        {"nets": [{"width": 1, "depth": 2}, {"width": 5, "depth": 2}]},
    ),
    "an addition to a list": (["net=small_net", "tags+=['b']"], {"tags": ["a", "b"]}),
    "parameters that begin with run, executor and plugins": (
        ["net=small_net", "run_id=3", "executor_name=x", "plugins_dir=y"],
        {"run_id": 3, "executor_name": "x", "plugins_dir": "y"},
    ),
    "a text that could be imported": (["net=small_net", "path=os.getcwd"], {"path": "os.getcwd"}),
    "a text that is a function of the script": (
        ["net=small_net", "path=recipe"],
        {"path": "recipe"},
    ),
    "a factory of one argument": (
        ["net=small_net", "data=two_files"],
        {"data": {"paths": ["a", "b"], "net": None}},
    ),
    "a recipe": (["--factory", "recipe", "steps=1"], {"net": SMALL, "steps": 1}),
    "a recipe with arguments": (["-f", "recipe(steps=5)"], {"net": SMALL, "steps": 5}),
    "a starting point by its dotted name": (
        ["--factory", "fit.recipe"],
        {"net": SMALL, "steps": 100},
    ),
}


@pytest.fixture(scope="module")
def answers(several: Several) -> dict[str, Result]:
    results = several([[*words, "--yes"] for words, _ in GIVEN.values()])
    return dict(zip(GIVEN, results, strict=True))


@pytest.mark.parametrize("what", GIVEN)
def test_words_reach_the_task(answers: dict[str, Result], what: str) -> None:
    result = answers[what]
    assert result.code == 0, result.err
    report = result.answer()
    _, expected = GIVEN[what]
    assert {name: report[name] for name in expected} == expected


def test_nothing_of_one_command_is_left_for_the_next(several: Several) -> None:
    changed, again = several(
        [
            ["net=small_net", "nets[0].width=5", "default.width=5", "tags+=['b']", "--yes"],
            ["net=small_net", "--yes"],
        ]
    )
    assert changed.answer()["tags"] == ["a", "b"]
    report = again.answer()
    assert report["nets"][0]["width"] == 1
    assert report["default"] == {"width": 8, "depth": 7}
    assert report["tags"] == ["a"]


# Words that are wrong, and what is said about them.
WRONG: dict[str, tuple[list[str], str]] = {
    "a misspelled parameter": (
        ["stpes=3"],
        "No parameter named 'stpes' exists for fit. Did you mean 'steps'?",
    ),
    "a misspelled field": (
        ["net.widht=3"],
        "No parameter named 'widht' exists for Net. Did you mean 'width'?",
    ),
    "a misspelled factory": (
        ["net=small_nte"],
        "There is no factory 'small_nte'. Did you mean 'small_net'?",
    ),
    "a misspelled option": (
        ["net=small_net", "--detahc"],
        "There is no option --detahc. Did you mean '--detach'?",
    ),
    "an unknown option": (["--zzz=1"], "There is no option --zzz."),
    "an option without its value": (["--name"], "expected one argument"),
    "a word without a key": (["small_net"], "'small_net' is not of the form key=value"),
    "an empty value": (["path="], "no value after 'path='"),
    "several values without a sweep": (
        ["net=small_net", "steps=1,2"],
        "steps=1,2: Failed to parse '1,2' as int: Invalid integer literal. Say --sweep to run",
    ),
    "a range without a sweep": (["net=small_net", "steps=1..3"], "Say --sweep to run once for"),
    "a list for one": (
        ["net=[small_net]"],
        "net=[small_net]: Failed to parse '[small_net]' as Net: It is a list",
    ),
    "a factory of something else": (
        ["--factory", "fit.Net", "--yes"],
        "fit.Net makes a config of Net, and fit is to be run.",
    ),
    "no executor": (["run.executor="], "Error: run.executor=: Invalid argument format"),
    "no name": (["run.name="], "no value after 'run.name='. Write run.name='\"\"'"),
    "an option of the wrong type": (["run.detach=maybe"], "Error: run.detach=maybe: Failed"),
    "an option of no name": (["run.=3"], "Error: run.=3: 'run.' is not a path"),
    "a detached task of this process": (
        ["net=small_net", "--detach", "--yes"],
        "--detach needs an executor",
    ),
    "a detached task that runs here": (
        ["net=small_net", "run.executor=local", "--direct", "--detach", "--yes"],
        "--detach and --direct exclude each other",
    ),
    "a value of the wrong type": (["steps=many"], "Failed to parse 'many' as int"),
    "an operator without a value": (["net+=1"], "neither a value nor a default"),
    "an operator that does not fit": (["steps+=['a']"], "steps+=['a']"),
    "an unknown operator": (["steps//=2"], "'steps//' is not a name followed by one of"),
    "an element that is not there": (
        ["nets[5].width=1"],
        "No element [5] in nets. Its elements: [0] to [1]",
    ),
    "a missing argument": (["steps=3"], "fit needs net. Give a value, such as net=VALUE."),
    "a missing argument inside": (
        ["net=Config[fit.Report]", "other=Config[os.path.join]"],
        "fit needs other.a.",
    ),
    "a factory that fails": (
        ["net=broken_net"],
        "Factory 'broken_net' failed: RuntimeError: no such luck",
    ),
    "an unknown starting point": (
        ["--factory", "recpie"],
        "No matching factory found for: recpie. Did you mean 'recipe'?",
    ),
    "a missing file": (["net=@gone.yaml"], "Config file not found: gone.yaml"),
    "a missing task file": (["--yaml", "gone.yaml"], "Config file not found: gone.yaml"),
    "a file of an unknown kind": (["--yaml", "fit.txt"], "Unsupported file extension: .txt"),
    "an unknown executor": (
        ["net=small_net", "run.executor=lokal"],
        "No matching factory found for: lokal. Did you mean 'local'?",
    ),
    "a misspelled class of executors": (
        ["net=small_net", "run.executor=LocalExecuter"],
        "No matching factory found for: LocalExecuter. Did you mean 'LocalExecutor'?",
    ),
    "a wrong field of an executor": (
        ["net=small_net", "run.executor=local", "run.executor.nodes=two"],
        "Error: run.executor.nodes=two: Failed to parse 'two' as int",
    ),
    "a wrong argument of an executor": (
        ["net=small_net", "run.executor=LocalExecutor(nodes=two)"],
        "Error: run.executor=LocalExecutor(nodes=two): Failed to parse 'two' as int",
    ),
    "a field of no executor": (
        ["net=small_net", "run.executor.nodes=2"],
        "Name one with run.executor=NAME",
    ),
    "an unknown field of an executor": (
        ["net=small_net", "run.executor=local", "run.executor.node=2"],
        "Did you mean 'nodes'?",
    ),
    "an unknown field of the run": (
        ["net=small_net", "run.detahc=True"],
        "Did you mean 'run.detach'?",
    ),
    "a misspelled executor field": (
        ["net=small_net", "run.executr=local"],
        "Error: run.executr=local: There is no run.executr. Did you mean 'run.executor'?",
    ),
    "an executor that lacks something": (
        ["net=small_net", "run.executor=SlurmExecutor"],
        "Error: SlurmExecutor needs run.executor.account.",
    ),
    "an empty path": (["net=small_net", "--to-yaml", "", "--yes"], "--to-yaml needs a value"),
    "something else than an executor": (
        ["net=small_net", "run.executor=fit.small_net"],
        "which is no Executor",
    ),
    "an option that is not there yet": (["--load", "x"], "--load is not implemented"),
    "nobody to ask": (["net=small_net"], "Say --yes to do without the question."),
}


@pytest.fixture(scope="module")
def complaints(several: Several) -> dict[str, Result]:
    return dict(zip(WRONG, several([words for words, _ in WRONG.values()]), strict=True))


@pytest.mark.parametrize("what", WRONG)
def test_wrong_words_are_explained_and_run_nothing(
    complaints: dict[str, Result], what: str
) -> None:
    result = complaints[what]
    _, said = WRONG[what]
    assert said in result.err
    assert result.code == 2
    assert result.err.count("\n") <= 2, "one clear line"
    assert "Traceback" not in result.err
    assert "REPORT" not in result.out


def test_a_process_says_by_its_exit_code_how_it_went(fit: Callable[..., Result]) -> None:
    done, wrong = fit("net=small_net", "--yes"), fit("stpes=3", "--yes")
    failed = fit("net=small_net", "fail=on purpose", "--yes")
    left = fit("net=small_net", "fail=exit", "--yes")
    assert (done.code, wrong.code, failed.code, left.code) == (0, 2, 1, 1)
    assert left.err == "Error: It exited with 7.\n"
    assert 'fit.py", line' in failed.err, "where the user's own code went wrong"
    assert "nemo_run" not in failed.err.replace("test_nemo_run", ""), "and none of ours"
    assert failed.err.rstrip().endswith("ValueError: on purpose")


def test_a_failed_job_fails_the_command_too(fit: Callable[..., Result]) -> None:
    result = fit("net=small_net", "fail=on purpose", "run.executor=local", "--yes")
    assert result.code == 1
    assert "Job fit FAILED with exit code 1" in result.err
    assert "ValueError: on purpose" in result.err, "the end of its log"
