"""Constants, the home directory, objects that describe themselves and the helper functions."""

# The older spellings of annotations are part of what is tested.
# ruff: noqa: UP007, UP045

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import typing
from pathlib import Path
from typing import Annotated, Any, Optional, Union

import fiddle as fdl
import graphviz
import pytest
from tests.unit import config_targets
from tests.unit.config_targets import (
    Ambiguous,
    Bare,
    Layer,
    Model,
    Modern,
    Opaque,
    Outer,
    Pair,
    Point,
    Settings,
    Stack,
    Steps,
    Table,
    identity,
    train,
)

import nemo_run.config as nr_config
from nemo_run.config import (
    Config,
    Partial,
    from_dict,
    get_type_namespace,
    get_underlying_types,
    set_value,
)
from nemo_run.exceptions import SetValueError


def in_fresh_interpreter(
    code: str, *, environ: dict[str, str] | None = None, script: Path | None = None
) -> str:
    """Run ``code`` (as the file ``script``, if given) and return what it printed.

    The home directory and ``__main__`` belong to a process, so each test has one of its own.
    """
    code = textwrap.dedent(code)
    command = [sys.executable, "-c", code]
    if script is not None:
        script.write_text(code)
        command = [sys.executable, str(script)]
    env = {name: value for name, value in os.environ.items() if name != "NEMORUN_HOME"}
    done = subprocess.run(
        command, env=env | (environ or {}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestConstants:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("RUNDIR_NAME", "nemo_run"),
            ("RUNDIR_SPECIAL_NAME", "/$nemo_run"),
            ("SCRIPTS_DIR", "scripts"),
            ("USE_WITH_RAY_CLUSTER_KEY", "use_with_ray_cluster"),
            ("RECURSIVE_TYPES", (typing.Union, typing.Optional)),
        ],
    )
    def test_a_constant_has_this_value(self, name: str, value: object) -> None:
        assert getattr(nr_config, name) == value


class TestHome:
    def test_it_is_in_the_user_s_home_by_default(self) -> None:
        printed = in_fresh_interpreter(
            "from nemo_run.config import get_nemorun_home; print(get_nemorun_home())",
            environ={"HOME": "/home/ada"},
        )
        assert printed == "/home/ada/.nemo_run"

    @pytest.mark.parametrize(
        ("value", "home"), [("/data/runs", "/data/runs"), ("~/runs", "/home/ada/runs")]
    )
    def test_the_environment_decides(self, value: str, home: str) -> None:
        printed = in_fresh_interpreter(
            "from nemo_run.config import get_nemorun_home; print(get_nemorun_home())",
            environ={"HOME": "/home/ada", "NEMORUN_HOME": value},
        )
        assert printed == home

    def test_the_environment_is_read_when_needed(self) -> None:
        printed = in_fresh_interpreter(
            """
            import os
            from nemo_run.config import get_nemorun_home
            os.environ["NEMORUN_HOME"] = "/data/later"
            print(get_nemorun_home())
            """
        )
        assert printed == "/data/later"

    def test_what_was_set_wins_over_the_environment(self) -> None:
        printed = in_fresh_interpreter(
            """
            import os
            from nemo_run.config import get_nemorun_home, set_nemorun_home
            set_nemorun_home("/data/set")
            os.environ["NEMORUN_HOME"] = "/data/later"
            print(get_nemorun_home())
            """,
            environ={"NEMORUN_HOME": "/data/early"},
        )
        assert printed == "/data/set"

    def test_a_tilde_is_expanded_when_set(self) -> None:
        printed = in_fresh_interpreter(
            """
            from nemo_run.config import get_nemorun_home, set_nemorun_home
            set_nemorun_home("~/elsewhere")
            print(get_nemorun_home())
            """,
            environ={"HOME": "/home/ada"},
        )
        assert printed == "/home/ada/elsewhere"


class TestConfigurableMixin:
    def test_a_dataclass_becomes_a_config_with_every_field_that_init_takes(self) -> None:
        cfg = Settings(name="x").to_config()
        assert type(cfg) is Config
        assert cfg.__fn_or_cls__ is Settings
        assert set(cfg.__arguments__) == {"name", "model"}
        assert cfg.name == "x"

    def test_building_it_gives_an_equal_object(self) -> None:
        settings = Settings(name="x", model=Model(width=3))
        assert fdl.build(settings.to_config()) == settings

    def test_nested_dataclasses_become_the_same_kind_of_config(self) -> None:
        model = Settings(model=Model(width=3)).to_config().model
        assert type(model) is Config
        assert model.clone() == Config(Model, width=3)

    def test_a_config_made_from_an_object_can_broadcast(self) -> None:
        cfg = Settings().to_config().broadcast(width=5)
        assert cfg.model.width == 5

    @pytest.mark.parametrize(
        "value", [Steps([1, 2]), Pair((1, 2)), Table(a=1)], ids=["list", "tuple", "dict"]
    )
    def test_a_container_describes_itself(self, value: Any) -> None:
        assert value.to_config() is value

    def test_other_classes_must_override_it(self) -> None:
        with pytest.raises(NotImplementedError, match="to_config"):
            Opaque().to_config()

    def test_what_cannot_be_converted_must_override_it(self) -> None:
        bare = Bare(x=1)
        del bare.x
        with pytest.raises(NotImplementedError, match="to_config"):
            bare.to_config()

    def test_diff_shows_both(self) -> None:
        graph = Settings(name="one").diff(Settings(name="two"))
        assert isinstance(graph, graphviz.Graph | graphviz.Digraph)
        assert "one" in graph.source
        assert "two" in graph.source

    def test_diff_leaves_out_equal_parts_unless_told(self) -> None:
        new, old = (Settings(name=name, model=Model(width=31)) for name in ("one", "two"))
        assert "31" not in new.diff(old).source
        assert "31" in new.diff(old, trim=False).source

    def test_visualize_gives_a_graph(self) -> None:
        graph = Settings(name="one").visualize()
        assert isinstance(graph, graphviz.Graph | graphviz.Digraph)
        assert "one" in graph.source

    @pytest.mark.needs("dot")
    def test_an_image_can_be_saved(self, tmp_path: Path) -> None:
        Settings().save_config_img(str(tmp_path / "settings.png"))
        assert (tmp_path / "settings.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.needs("dot")
    @pytest.mark.parametrize(
        "value",
        [Settings(), Steps([1, 2]), Pair((1, 2)), Table(a=1)],
        ids=lambda v: type(v).__name__,
    )
    def test_a_notebook_gets_svg(self, value: Any) -> None:
        assert "<svg" in value._repr_svg_()


class TestTypeNamespace:
    @pytest.mark.parametrize(
        ("target", "name"),
        [
            (Point, "Point"),
            (Outer.Inner, "Outer.Inner"),
            (train, "train"),
            (Config(Point, x=1), "Point"),
            (Partial(train), "train"),
            (Config(Outer.Inner), "Outer.Inner"),
        ],
        ids=["class", "nested class", "function", "config", "partial", "config of nested class"],
    )
    def test_it_is_module_and_qualified_name_of_the_target(self, target: Any, name: str) -> None:
        assert get_type_namespace(target) == f"{config_targets.__name__}.{name}"

    def test_a_forward_reference_keeps_the_last_part(self) -> None:
        name = get_type_namespace(typing.ForwardRef("pkg.mod.Net"))
        assert "pkg" not in name
        assert "Net" in name

    @pytest.mark.parametrize("target", ["Net", "Config(Net)", "Partial(Net)"])
    def test_the_main_script_lends_its_name(self, target: str, tmp_path: Path) -> None:
        printed = in_fresh_interpreter(
            f"""
            from nemo_run.config import Config, Partial, get_type_namespace
            class Net: pass
            print(get_type_namespace({target}))
            """,
            script=tmp_path / "train_job.py",
        )
        assert printed == "train_job.Net"

    def test_without_a_main_script_it_is_main(self) -> None:
        printed = in_fresh_interpreter(
            """
            from nemo_run.config import get_type_namespace
            class Net: pass
            print(get_type_namespace(Net))
            """
        )
        assert printed == "__main__.Net"


HINTS: list[tuple[Any, set[Any]]] = [
    (Union[int, str], {int, str}),
    (Optional[int], {int, type(None)}),
    (Optional[Union[int, str]], {int, str, type(None)}),
    (int | str, {int, str}),
    (int | None, {int, type(None)}),
    (Annotated[Optional[int], "note"], {int, type(None)}),
    (Annotated[int | str, "note"], {int, str}),
    (Optional[Annotated[int | str, "note"]], {int, str, type(None)}),
    (Union[list[int], None], {list[int], type(None)}),
    (int, {int}),
    (list[int], {list[int]}),
    (list[Optional[int]], {list[Optional[int]]}),
    (Model, {Model}),
]


class TestUnderlyingTypes:
    @pytest.mark.parametrize(("hint", "types"), HINTS, ids=[str(hint) for hint, _ in HINTS])
    def test_unions_are_flattened(self, hint: Any, types: set[Any]) -> None:
        assert get_underlying_types(hint) == types


class TestFromDict:
    def test_dicts_and_lists_become_dataclasses(self) -> None:
        raw = {"layers": [{"size": 1}, {"size": 2, "name": "b"}], "title": "x"}
        assert from_dict(raw, Stack) == Stack([Layer(1), Layer(2, "b")], title="x")

    def test_an_optional_is_unwrapped(self) -> None:
        raw = {"layers": [], "head": {"size": 4}}
        assert from_dict(raw, Stack).head == Layer(4)

    def test_an_optional_with_a_bar_is_unwrapped(self) -> None:
        assert from_dict({"head": {"size": 4}}, Modern) == Modern(Layer(4))

    def test_none_stays_none(self) -> None:
        assert from_dict({"layers": [], "head": None}, Stack).head is None

    def test_several_members_of_a_union_are_refused(self) -> None:
        with pytest.raises(AssertionError):
            from_dict({"part": {"size": 1}}, Ambiguous)

    def test_absent_keys_get_their_default(self) -> None:
        assert from_dict({"layers": [{}]}, Stack) == Stack([Layer()])

    def test_absent_keys_get_a_default_of_their_own(self) -> None:
        one, two = from_dict({"layers": []}, Stack), from_dict({"layers": []}, Stack)
        assert one.extra == ["a"]
        assert one.extra is not two.extra

    def test_a_bare_list_is_taken_as_it_is(self) -> None:
        assert from_dict({"layers": [], "extra": [1, "b", None]}, Stack).extra == [1, "b", None]


class TestSetValue:
    def test_it_assigns_at_the_top(self) -> None:
        cfg = Partial(train, model=1)
        set_value(cfg, "steps", 3)
        assert cfg.steps == 3

    def test_it_follows_attributes_and_indices(self) -> None:
        cfg = Partial(train, model=Config(identity, value=[Config(Layer), Config(Layer)]))
        set_value(cfg, "model.value[1].size", 9)
        assert [layer.size for layer in cfg.model.value] == [1, 9]

    def test_it_assigns_an_item_of_a_list(self) -> None:
        cfg = Partial(train, model=[1, 2])
        set_value(cfg, "model[0]", 9)
        assert cfg.model == [9, 2]

    @pytest.mark.parametrize("key", ["nothing.size", "model.nothing.size", "model.value[7].size"])
    def test_a_parent_that_cannot_be_reached_makes_the_path_invalid(self, key: str) -> None:
        cfg = Partial(train, model=Config(identity, value=[Config(Layer)]))
        with pytest.raises(SetValueError, match=r"(?i)(invalid|not a valid) path") as caught:
            set_value(cfg, key, 1)
        assert key in str(caught.value)

    @pytest.mark.parametrize("key", ["nothing", "model.nothing", "model.value[7]"])
    def test_a_value_that_cannot_be_assigned_is_said_so(self, key: str) -> None:
        cfg = Partial(train, model=Config(identity, value=[Config(Layer)]))
        with pytest.raises(SetValueError, match=r"(?i)(could not|cannot)( be)? set") as caught:
            set_value(cfg, key, 1)
        assert key in str(caught.value)

    def test_the_error_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="nothing"):
            set_value(Config(Point), "nothing", 1)

    def test_a_failed_assignment_changes_nothing(self) -> None:
        cfg = Config(Point, x=1)
        with pytest.raises(SetValueError):
            set_value(cfg, "nothing", 1)
        assert cfg == Config(Point, x=1)
