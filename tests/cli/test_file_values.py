"""Values from config files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fiddle as fdl
import pytest
from tests.cli.parsing_targets import Color, Model, Net, Optim, Wide, fit, kinds, note, untyped

import nemo_run as run
from nemo_run.cli.cli_parser import CLIException, ParseError
from nemo_run.cli.lazy import dictconfig_to_dot_list, load_config_from_path
from nemo_run.cli.values.edit import overrides_from
from nemo_run.cli.values.overrides import apply_overrides
from nemo_run.exceptions import ConfigError

parse = run.cli.parse_partial
HERE = "tests.cli.parsing_targets"

FILES = {
    "net.yaml": "width: 3\ndepth: 4\n",
    "net.yml": "width: 3\ndepth: 4\n",
    "net.json": '{"width": 3, "depth": 4}',
    "net.toml": "width = 3\ndepth = 4\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_parameter_can_be_given_by_a_file_of_any_format(here: Path, name: str) -> None:
    (here / name).write_text(FILES[name])
    assert parse(fit, f"net=@{name}").net == run.Config(Net, width=3, depth=4)


def test_overrides_follow_the_file(here: Path) -> None:
    (here / "net.yaml").write_text("width: 3\n")
    assert parse(fit, "net.depth=9", "net=@net.yaml").net == run.Config(Net, width=3, depth=9)


def test_a_section_of_a_file_can_be_named(here: Path) -> None:
    (here / "all.yaml").write_text("net: {width: 3}\nsteps: 7\ntags: [x, y]\n")
    task = parse(fit, "net=@all.yaml:net", "steps=@all.yaml:steps", "tags=@all.yaml:tags")
    assert task == run.Partial(fit, net=run.Config(Net, width=3), steps=7, tags=["x", "y"])


def test_a_single_section_is_meant_without_naming_it(here: Path) -> None:
    (here / "net.toml").write_text("[net]\nwidth = 3\n")
    assert parse(fit, "net=@net.toml").net == run.Config(Net, width=3)


def test_a_root_with_a_target_or_factory_is_the_value_itself(here: Path) -> None:
    (here / "target.yaml").write_text(f"_target_: {HERE}.Wide\nfactor: 2\n")
    (here / "factory.yaml").write_text("_factory_: small(width=3)\ndepth: 5\n")
    assert parse(fit, "net=@target.yaml").net == run.Config(Wide, factor=2.0)
    assert parse(fit, "net=@factory.yaml").net == run.Config(Net, width=3, depth=5)


def test_files_are_merged_into_what_is_there(here: Path) -> None:
    (here / "a.yaml").write_text("width: 3\ndepth: 3\n")
    (here / "b.yaml").write_text("depth: 4\nname: b\n")
    assert parse(fit, "net=@a.yaml", "net=@b.yaml").net == run.Config(
        Net, width=3, depth=4, name="b"
    )
    assert parse(fit, "default_net=@b.yaml").default_net == run.Config(
        Net, width=64, depth=4, name="b"
    )
    (here / "sizes.yaml").write_text("b: 2\nc: 3\n")
    assert parse(fit, "sizes=@sizes.yaml").sizes == {"a": 1, "b": 2, "c": 3}


def test_a_file_may_be_the_operand_of_an_operator(here: Path) -> None:
    (here / "tags.json").write_text('["b", "c"]')
    assert parse(fit, "tags+=@tags.json").tags == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("net=@missing.yaml", "Config file not found: missing.yaml"),
        ("net=@broken.yaml", "Error loading config file broken.yaml: This is not YAML"),
        ("net=@broken.json", "This is not JSON"),
        ("net=@broken.toml", "This is not TOML"),
        (
            "net=@good.yaml:dpeth",
            "Section 'dpeth' not found in config file good.yaml. Did you mean",
        ),
        ("net=@list.yaml:net", "has no sections"),
        ("net=@mandatory.yaml", "Missing mandatory value: width"),
        ("net=@lost.yaml", "nothing"),
        ("net=@folder.yaml", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_fails_at_once(here: Path, word: str, says: str) -> None:
    (here / "broken.yaml").write_text("a: [1\n")
    (here / "broken.json").write_text("{")
    (here / "broken.toml").write_text("a = \n")
    (here / "good.yaml").write_text("width: 1\ndepth: 1\n")
    (here / "list.yaml").write_text("- 1\n")
    (here / "mandatory.yaml").write_text("width: ???\n")
    (here / "lost.yaml").write_text("width: ${nothing}\n")
    (here / "folder.yaml").mkdir()
    with pytest.raises(CLIException) as caught:
        parse(fit, word)
    assert says in caught.value.message
    assert caught.value.arg == word
    assert "\n" not in caught.value.message


def test_interpolations_are_resolved(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NET_DEPTH", "12")
    (here / "net.yaml").write_text("width: 3\ndepth: ${oc.env:NET_DEPTH}\nname: w${width}\n")
    assert parse(fit, "net=@net.yaml").net == run.Config(Net, width=3, depth=12, name="w3")


def test_a_section_may_refer_to_another(here: Path) -> None:
    (here / "all.yaml").write_text("size: 5\nnet:\n  width: ${size}\n")
    assert parse(fit, "net=@all.yaml:net").net.width == 5


def from_file(fn: Any, data: dict[str, Any]) -> Any:
    """Apply what a whole config file says to a task."""
    return apply_overrides(run.Partial(fn), overrides_from(data))


def test_nested_mappings_become_configs_of_the_annotated_class() -> None:
    task = from_file(fit, {"net": {"width": 3}, "optim": {"lr": 1, "betas": [1, 2]}})
    assert task.net == run.Config(Net, width=3)
    assert task.optim == run.Config(Optim, lr=1.0, betas=(1.0, 2.0))


def test_nested_targets_become_configs_or_partials() -> None:
    task = from_file(
        fit,
        {
            "net": {"_target_": f"{HERE}.Wide", "factor": 2},
            "other": {"_target_": f"{HERE}.Wide", "_partial_": True},
            "default_net": {"_target_": f"Partial[{HERE}.Net]", "width": 1},
            "anything": {"_target_": f"Config[{HERE}.Net]"},
            "nets": [{"_target_": f"{HERE}.Net", "width": 1}, {"width": 2}, "small"],
        },
    )
    assert task.net == run.Config(Wide, factor=2.0)
    assert task.other == run.Partial(Wide)
    assert task.default_net == run.Partial(Net, width=1)
    assert task.anything == run.Config(Net)
    assert task.nets == [run.Config(Net, width=width) for width in (1, 2, 4)]


def test_two_fields_with_one_target_are_two_configs() -> None:
    net = {"_target_": f"{HERE}.Net"}
    task = from_file(fit, {"net": {**net, "width": 1}, "other": {**net, "width": 2}})
    assert (task.net.width, task.other.width) == (1, 2)


def test_nested_factories_are_called_and_overridden() -> None:
    task = from_file(fit, {"net": {"_factory_": "small(width=3)", "depth": 9}})
    assert task.net == run.Config(Net, width=3, depth=9)
    assert from_file(fit, {"net": "small"}).net == run.Config(Net, width=4)


def test_operators_can_end_a_key() -> None:
    data = {"steps": 5, "steps+=": 2, "tags+=": ["b"], "net": {"width=": 3, "width*=": 2}}
    task = from_file(fit, data)
    assert (task.steps, task.tags, task.net.width) == (7, ["a", "b"], 6)


def test_references_are_values_that_are_not_called() -> None:
    task = from_file(kinds, {"fn": {"_target_": f"{HERE}.note", "_call_": False}})
    assert task.fn is note


def test_what_a_file_says_about_itself_is_skipped_at_the_top() -> None:
    task = from_file(fit, {"_target_": f"{HERE}.fit", "_partial_": True, "steps": 5})
    assert task == run.Partial(fit, steps=5)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ({"i": "5"}, 5),
        ({"f": 3}, 3.0),
        ({"s": 5}, "5"),
        ({"s": "'quoted'"}, "'quoted'"),
        ({"us": "5"}, "5"),
        ({"fi": 5}, 5),
        ({"fi": 5.0}, 5.0),
        ({"t": [1, "x"]}, (1, "x")),
        ({"si": [1, 2]}, {1, 2}),
        ({"color": "GREEN"}, Color.GREEN),
        ({"color": "green"}, Color.GREEN),
        ({"i": None}, None),
        ({"d": {"a": 1}}, {"a": 1}),
        ({"bare_dict": {"a": {"b": 1}}}, {"a": {"b": 1}}),
        ({"any_": {"a": [1, None]}}, {"a": [1, None]}),
        ({"any_": "5"}, "5"),
        ({"any_": "None"}, None),
        ({"oi": "None"}, None),
        ({"us": "none"}, "none"),
        ({"s": "None"}, "None"),
        ({"unannotated": "None"}, "None"),
        ({"unannotated": "5"}, "5"),
        ({"unannotated": "os.getcwd"}, "os.getcwd"),
        ({"unannotated": {"a": 1}}, {"a": 1}),
        ({"unannotated": [None]}, [None]),
    ],
)
def test_values_of_a_file_keep_their_type_or_get_the_annotated_one(
    data: dict[str, Any], value: Any
) -> None:
    (made,) = from_file(kinds, data).__arguments__.values()
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize("data", [{"i": 1.5}, {"i": [1]}, {"i": True}, {"li": 5}, {"d": [1]}])
def test_values_of_a_file_that_do_not_fit_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ParseError):
        from_file(kinds, data)


def test_mistakes_in_files_are_explained() -> None:
    with pytest.raises(CLIException, match=r"No parameter named 'widht'.*Did you mean 'width'"):
        from_file(fit, {"net": {"widht": 3}})
    with pytest.raises(CLIException, match=r"Cannot import 'nowhere.Net'"):
        from_file(fit, {"net": {"_target_": "nowhere.Net"}})


def test_the_products_own_exports_can_be_fed_back() -> None:
    task = run.Partial(
        fit,
        net=run.Config(Wide, width=1),
        other=None,
        nets=[run.Config(Net), run.Config(Net, width=2)],
        optim=run.Config(Optim, betas=(0.1, 0.2)),
        anything=run.Config(Model, net=run.Config(Net)),
        name="5",
    )
    exported = json.loads(run.cli.config.ConfigSerializer().serialize_json(task))
    assert from_file(fit, exported) == task


def test_unannotated_parameters_take_configs_from_files() -> None:
    task = from_file(untyped, {"a": {"_target_": f"{HERE}.Net", "width": 2}, "d": None})
    assert task == run.Partial(untyped, a=run.Config(Net, width=2), d=None)


def test_a_file_is_loaded_as_an_omegaconf_config(here: Path) -> None:
    (here / "all.yaml").write_text("net: {width: 3}\nsteps: 7\n")
    loaded = load_config_from_path("@all.yaml")
    assert type(loaded).__name__ == "DictConfig"
    assert loaded == {"net": {"width": 3}, "steps": 7}
    assert load_config_from_path("@all.yaml:net") == {"width": 3}
    assert load_config_from_path("@all.yaml:steps") == 7


@pytest.mark.parametrize("text", ["all.yaml", "@all.txt", "@missing.yaml"])
def test_a_path_that_names_no_config_file_is_a_value_error(here: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"all|missing") as caught:
        load_config_from_path(text)
    assert isinstance(caught.value, ConfigError)


def test_a_nested_config_becomes_a_flat_list_of_changes() -> None:
    data = {
        "net": {"_target_": "pkg.Net", "width": 3},
        "loss": {"_target_": "pkg.loss", "_partial_": True},
        "optim": {"_factory_": "adam(lr=1)", "eps": 2},
        "inner": {"deep": {"x": 1}},
        "empty": {},
        "steps": 5,
        "steps+=": 1,
        "list": [{"_target_": "a.B"}, 2],
        "copy": "${steps}",
        "nothing": None,
        "run": {"factory": "x"},
    }
    assert dictconfig_to_dot_list(data) == [
        ("net", "=", "Config[pkg.Net]"),
        ("net.width", "=", 3),
        ("loss", "=", "Partial[pkg.loss]"),
        ("optim", "=", "adam(lr=1)"),
        ("optim.eps", "=", 2),
        ("inner", "=", "Config"),
        ("inner.deep", "=", "Config"),
        ("inner.deep.x", "=", 1),
        ("empty", "=", "Config"),
        ("steps", "=", 5),
        ("steps", "+=", 1),
        ("list", "=", [{"_target_": "a.B"}, 2]),
        ("copy", "=", 5),
        ("nothing", "=", None),
    ]


def test_a_flat_list_can_start_at_a_key() -> None:
    assert dictconfig_to_dot_list({"x": 1}, prefix="a.b") == [
        ("a.b", "=", "Config"),
        ("a.b.x", "=", 1),
    ]
    assert dictconfig_to_dot_list({"x": 1}, prefix="a", has_factory=True) == [("a.x", "=", 1)]
    assert dictconfig_to_dot_list({"x": 1}, prefix="a", has_target=True) == [("a.x", "=", 1)]


def test_interpolations_can_be_left_alone() -> None:
    changes = dictconfig_to_dot_list({"x": 1, "y": "${x}"}, resolve=False)
    assert changes == [("x", "=", 1), ("y", "=", "${x}")]


def test_a_mapping_whose_keys_are_no_names_is_kept_whole() -> None:
    assert dictconfig_to_dot_list({"env": {"MY-KEY": 1}}) == [("env", "=", {"MY-KEY": 1})]


def test_the_result_can_be_built(here: Path) -> None:
    (here / "model.yaml").write_text("net: {width: 3}\ntags: [x]\n")
    model = run.cli.parse_config(Model, "net=@model.yaml:net", "tags=@model.yaml:tags")
    assert fdl.build(model) == Model(net=Net(width=3), tags=["x"])
