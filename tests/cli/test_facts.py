"""What a package can register and look up, and what becomes of words: by the installed command.

Every test here is a process of its own, as it is for a user.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli import commands
from tests.cli.commands import SCRIPTS, Result

pytestmark = pytest.mark.slow

Facts = Callable[..., Result]


@pytest.fixture
def facts(here: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Run a command of an installed package."""
    site = tmp_path_factory.mktemp("site")
    info = site / "facts-1.0.dist-info"
    info.mkdir()
    (site / "facts.py").write_text((SCRIPTS / "facts.py").read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: facts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nemo_run.cli]\nfacts = facts\n")

    def run(*words: str, env: dict[str, str] | None = None, **options: Any) -> Result:
        environment = {"PYTHONPATH": str(site), **(env or {})}
        return commands.nemorun("facts", *words, cwd=here, env=environment, **options)

    return run


class TestRegistration:
    def test_a_group_lists_its_commands_with_their_help(self, facts: Facts) -> None:
        lines = facts().lines
        assert "  bare          [Entrypoint] Say x." in lines
        assert "  by-name       [Entrypoint] Another text." in lines
        assert "  deep          [Module] deep" in lines
        assert "  nested" not in "".join(lines), "it is in a group of its own"

    def test_commands_run_by_their_names(self, facts: Facts) -> None:
        assert facts("bare", "x=3", "--yes").lines[-1] == "bare 3"
        assert facts("by-name", "--yes").lines[-1] == "renamed"
        assert facts("deep", "er", "nested", "--yes").lines[-1] == "nested"
        assert facts("special", "--yes").lines[-1] == "special Special"

    def test_help_is_the_docstring_up_to_its_arguments(self, facts: Facts) -> None:
        short, long = facts("bare", "--help").out, facts("bare", "--help", "--docs").out
        assert facts("bare", "--help", "-d").out == long
        assert ("Say x." in short, "And say it well." in short) == (True, False)
        assert "And say it well." in long
        assert "what to say" not in short + long

    def test_defaults_are_a_factory_an_executor_and_plugins(self, facts: Facts) -> None:
        done = facts("prepared", "net.depth=9")
        assert done.code == 0, done.err
        assert "prepared Net(width=3, depth=9) 5 default marked\n" in done.out

    def test_an_experiment_gets_a_context_of_the_class_it_names(self, facts: Facts) -> None:
        done = facts("loud", "run.volume=3", "--name", "it", "--yes")
        assert done.lines[-1] == "loud LoudContext 3 it None []"
        ignored = facts("loud", "--repl", "--yes")
        assert (ignored.code, ignored.lines[-1]) == (0, "loud LoudContext 1 loud None []")
        help = facts("loud", "--help").out
        assert [f"--{option}" in help for option in ("detach", "sweep", "lazy")] == [1, 0, 0]

    def test_an_experiment_without_context_is_never_run_for_show(self, facts: Facts) -> None:
        dry = facts("unaware", "--dryrun")
        assert (dry.code, "unaware 1" in dry.out) == (0, False)
        assert dry.err == "Only this can be shown: it has no parameter ctx.\n"
        assert facts("unaware", "x=2", "--yes").lines[-1] == "unaware 2"

    def test_programs_are_told_about_commands(self, facts: Facts) -> None:
        done = facts("registration")
        assert done.code == 0, done.err
        told = json.loads(done.lines[0])
        assert told["returned"] == "bare"
        assert told["attributes"] == ["bare", "facts", "facts.bare", "task"]
        assert told["help"] == "bare\n\nSay x.\n\nAnd say it well."
        assert told["defaults"] == [None, None]
        assert (told["parsed"], told["configured"]) == ([3, 4], 9)
        assert told["tree"] == "<Entrypoint facts.deep.er.nested>"
        assert told["nowhere"] == {}
        assert told["executor"].startswith("ConfigError (ValueError): takes_executor cannot have")
        assert told["root"] == "nemo_run.cli.entrypoints"
        assert done.lines[1] == "bare 2", "calling it calls the function"

    def test_a_package_is_not_loaded_for_the_list_of_groups(self, facts: Facts, here: Path) -> None:
        say = {"FACTS_SAY_SO": "1"}
        loaded = facts(env=say)
        assert loaded.lines[0] == "facts are loaded"
        help = commands.nemorun("--help", cwd=here, env=say)
        assert "facts are loaded" not in help.out


class TestFactories:
    def test_programs_can_look_them_up(self, facts: Facts) -> None:
        done = facts("lookups")
        assert done.code == 0, done.err
        told = json.loads(done.out)
        for what in ("by type", "by name", "of a union", "default", "of an argument"):
            assert told[what] is True, what
        assert told["of a namespace"] == 3
        assert told["listed"] == ["small", "huge_net", "nothing"]
        assert told["wrapper"] == ["small", True]
        assert told["of a subclass"].startswith("ConfigError (ValueError)")
        assert told["none"].endswith("is registered for Net. Did you mean 'small'?")
        assert told["no namespace"].startswith("ConfigError (ValueError)")
        assert told["no target"].startswith("ConfigError (ValueError)")
        assert "(TypeError)" in told["no annotation"] or "TypeError" in told["no annotation"]
        assert "(ValueError" in told["no config"]

    @pytest.mark.parametrize(
        ("word", "name", "value"),
        [
            ("net=small", "net", "Net(width=4, depth=2)"),
            ("net=small(width=3)", "net", "Net(width=3, depth=2)"),
            ("net=huge", "net", "Net(width=1000, depth=2)"),
            ("net=default", "net", "Net(width=1000, depth=2)"),
            ("net=facts.small", "net", "Net(width=4, depth=2)"),
            ("net=facts.Wide(factor=2, width=1)", "net", "Wide(width=1, depth=2, factor=2.0)"),
            ("net=Net(depth=1)", "net", "Net(width=8, depth=1)"),
            ("nets=[small, Net]", "nets", ["Net(width=4, depth=2)", "Net(width=8, depth=2)"]),
            ("data=files(paths=['a, b', 'c)'])", "data", "Data(paths=['a, b', 'c)'])"),
            ("anything=math.pi", "anything", 3.141592653589793),
            ("number=math.pi", "number", 3.141592653589793),
            ("text=facts.small", "text", "facts.small"),
        ],
    )  # fmt: skip
    def test_an_expression_becomes_what_it_names(
        self, facts: Facts, word: str, name: str, value: Any
    ) -> None:
        done = facts("fit", word, "--yes")
        if value is None:
            assert (done.code, "Failed to parse 'math.pi' as float" in done.err) == (2, True)
            return
        assert done.code == 0, done.err
        assert json.loads(done.lines[-1])[name] == value

    def test_one_that_makes_nothing_is_an_error(self, facts: Facts) -> None:
        done = facts("fit", "net=nothing", "--yes")
        assert (done.code, "Factory 'nothing' returned None instead of Net" in done.err) == (
            2,
            True,
        )

    def test_a_recipe_is_where_words_start_from(self, facts: Facts) -> None:
        done = facts("fit", "--factory", "recipe", "net.depth=5", "--yes")
        told = json.loads(done.lines[-1])
        assert (told["net"], told["bits"]) == ("Net(width=77, depth=5)", 1)


class TestWords:
    @pytest.mark.parametrize(
        ("words", "name", "value"),
        [
            (["bits+=1", "bits+=1"], "bits", 8),
            (["bits-=1"], "bits", 5),
            (["bits*=2"], "bits", 12),
            (["bits/=4"], "bits", 1.5),
            (["bits|=9"], "bits", 15),
            (["bits&=3"], "bits", 2),
            (["sizes|={'b': 2}"], "sizes", {"a": 1, "b": 2}),
            (["tags+=['b']", "tags*=2"], "tags", ["a", "b", "a", "b"]),
            (['text="quoted"'], "text", "quoted"),
            (["text='${bits}-${oc.env:LAB}'", "bits=3"], "text", "3-here"),
            ([r"text=\${bits}"], "text", "${bits}"),
            (["bits=${number}", "number=2"], "bits", 2),
            (["mode=1"], "mode", 1),
            (["more=5"], "more", 5),
            (["other=Config[facts.Net]", "other.width=3"], "other", "Net(width=3, depth=2)"),
            (["net=Config", "other=Config", "net.width=1"], "other", "Net(width=8, depth=2)"),
            (["other.width=1"], "other", "Net(width=1, depth=2)"),
            (["text=run.z"], "text", "run.z"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )  # fmt: skip
    def test_an_argument_becomes(
        self, facts: Facts, words: list[str], name: str, value: Any
    ) -> None:
        done = facts("fit", *words, "--yes", env={"LAB": "here"})
        assert done.code == 0, done.err
        assert json.loads(done.lines[-1])[name] == value

    @pytest.mark.parametrize(
        ("word", "said"),
        [
            ("bits//=2", "'bits//' is not a name followed by one of"),
            ("bits%=2", "'bits%' is not a name followed by one of"),
            ("bits**=2", "'bits**' is not a name followed by one of"),
            ("bits^=2", "'bits^' is not a name followed by one of"),
            ("bits=0x10", "Failed to parse '0x10' as int"),
            ("bits=1e3", "Failed to parse '1e3' as int"),
            ("bits=5.0", "Failed to parse '5.0' as int"),
            ("tags=('a',)", "Failed to parse"),
            ("sizes=[1]", "Failed to parse"),
            ("mode=slow", "Failed to parse 'slow'"),
            ("text=???", "Missing mandatory value: text"),
            ("text=${nowhere}", "Interpolation key 'nowhere' not found"),
            ("net.widht=1", "Did you mean 'width'?"),
            ("bits/=0", "Operation '/=' failed"),
        ],
    )
    def test_what_does_not_fit_is_one_line(self, facts: Facts, word: str, said: str) -> None:
        done = facts("fit", word, "--yes")
        assert said in done.err
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)

    def test_programs_can_parse_them(self, facts: Facts) -> None:
        done = facts("parsing")
        assert done.code == 0, done.err
        assert json.loads(done.out) == {
            "partial": "<Partial[parsing.<locals>.task(a=1)]>",
            "config": "<Config[Net(width=1)]>",
            "positional": "<Partial[parsing.<locals>.task(a=1, b='x')]>",
            "in place": 9,
            "list": "[<Config[Net(width=3)]>]",
            "target": "<Config[Net(width=2)]>",
            "after": "ArgumentParsingError (ValueError): Positional argument found after keyword "
            "argument: 'x'. Write it as name=value, or move it to the front (Argument: x, "
            "Context: {'position': 1})",
            "too many": "ArgumentParsingError (ValueError): Too many positional arguments: '3' is "
            "number 3, and there are 2 parameters (Argument: 3, Context: {'max_positional': 2})",
            "unexpected": json.loads(done.out)["unexpected"],
            "steps": json.loads(done.out)["steps"],
            "registered": "Net(width=5, depth=2)",
            "inferred": "list",
            "strict": json.loads(done.out)["strict"],
            "lenient": "x",
            "constructor": {"a": [1]},
            "comprehension": [0, 2, 4],
            "conditional": 1,
            "lambda": 2,
            "unsafe": json.loads(done.out)["unsafe"],
            "expression": "<Config[Net(width=2)]>",
            "shared": [1],
        }
        errors = json.loads(done.out)
        assert errors["unexpected"].startswith("CLIException")
        assert errors["steps"].startswith("ArgumentValueError")
        assert errors["strict"].startswith("UnknownTypeError")
        assert errors["unsafe"].startswith("ArgumentValueError")


class TestFiles:
    FILES = {
        "net.yaml": "width: 3\ndepth: 4\n",
        "one.toml": "[net]\nwidth = 5\n",
        "target.json": '{"_target_": "facts.Wide", "factor": 2}',
        "factory.yml": "_factory_: small(width=6)\ndepth: 7\n",
        "all.yaml": "net: {width: 8, depth: 9}\nbits: 1\n",
    }

    @pytest.mark.parametrize(
        ("words", "net"),
        [
            (["net=@net.yaml"], "Net(width=3, depth=4)"),
            (["net=@one.toml"], "Net(width=5, depth=2)"),
            (["net=@target.json"], "Wide(width=8, depth=2, factor=2.0)"),
            (["net=@factory.yml"], "Net(width=6, depth=7)"),
            (["net=@all.yaml:net", "net.depth=1"], "Net(width=8, depth=1)"),
            (["net=@net.yaml", "net=@one.toml"], "Net(width=5, depth=4)"),
            (["--factory", "@all.yaml"], "Net(width=8, depth=9)"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )
    def test_a_value_can_come_from_one(
        self, facts: Facts, here: Path, words: list[str], net: str
    ) -> None:
        for name, text in self.FILES.items():
            (here / name).write_text(text)
        done = facts("fit", *words, "--yes")
        assert done.code == 0, done.err
        assert json.loads(done.lines[-1])["net"] == net

    @pytest.mark.parametrize(
        ("name", "text", "said"),
        [
            ("gone.yaml", None, "Config file not found: gone.yaml"),
            ("broken.yaml", "a: [1\n", "This is not YAML"),
            ("broken.json", "{", "This is not JSON"),
            ("broken.toml", "a = \n", "This is not TOML"),
        ],
    )
    def test_one_that_cannot_be_read_stops_everything(
        self, facts: Facts, here: Path, name: str, text: str | None, said: str
    ) -> None:
        if text is not None:
            (here / name).write_text(text)
        done = facts("fit", f"net=@{name}", "--yes")
        assert (done.code, said in done.err, done.out) == (2, True, "")


class TestContext:
    def test_programs_have_one_before_anything_is_parsed(self, facts: Facts) -> None:
        done = facts("context")
        assert done.code == 0, done.err
        told = json.loads(done.out)
        assert told["before"].startswith("RunContext(name='it', direct=False,")
        assert told["rest"] == ["x=run.y"]
        assert (told["executor"], told["detach"], told["plugins"]) == ("LocalExecutor", True, [])
        assert (told["by name"], told["config"]) == ("Config", "Config")
        assert told["help"].startswith("The options of one run of a command")
        assert "No matching factory found for: nobody" in told["unknown"]

    def test_factories_for_executors_of_any_class_are_found(self, facts: Facts) -> None:
        words = ("run.executor=other", "run.executor.colour=red", "--dryrun")
        done = facts("bare", *words)
        assert (done.code, "fdl_runner" in done.out) == (0, True), done.err

    def test_plugins_need_an_executor_to_have_an_effect(self, facts: Facts) -> None:
        done = facts("bare", "run.plugins=facts.Mark", "--yes")
        assert (done.code, done.lines[-1]) == (0, "bare 1")


def test_programs_can_be_lazy(facts: Facts) -> None:
    done = facts("lazily")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["lazy"], told["attribute"], told["unreal"]) == ("LazyModule",) * 3
    assert told["called"].startswith("ModuleNotFoundError")
    assert told["relative"].startswith("ImportError")
    assert told["real"] == "[]"
    assert (told["is lazy"], told["resolved"]) == (True, "<Partial[bare(x=7)]>")
    assert told["words"].startswith("<Partial[fit(net=<Config[Net(width=5")
    assert "ctx is required" in told["context"]
