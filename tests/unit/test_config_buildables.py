"""What a Config and a Partial promise: attributes, equality, building, conversion, traversal."""

# The older spellings of annotations are part of what is tested.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

import base64
import copy
import functools
import json
import logging
import math
import pickle
import typing
import zlib
from pathlib import Path
from typing import Annotated, Any, Dict, Optional, get_args, get_origin

import fiddle as fdl
import graphviz
import pytest
from tests.unit.config_targets import (
    Box,
    Derived,
    Frozen,
    Layer,
    Model,
    Optimizer,
    Point,
    Size,
    Trainer,
    fail,
    fit,
    fit_steps,
    fit_text,
    gather,
    identity,
    spread,
    train,
)

from nemo_run.config import Config, OptionalDefaultConfig, OptionalDefaultPartial, Partial
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

BOTH = pytest.mark.parametrize("kind", [Config, Partial])
DICT_FORMS = pytest.mark.parametrize(
    "target",
    [{}, dict, Dict[str, int], dict[str, int]],
    ids=["instance", "class", "typing", "generic"],
)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class TestFiddle:
    def test_a_config_is_a_fiddle_config(self) -> None:
        assert isinstance(Config(Point), fdl.Config)

    def test_a_partial_is_a_fiddle_partial(self) -> None:
        assert isinstance(Partial(Point), fdl.Partial)

    @BOTH
    def test_both_are_fiddle_buildables(self, kind: Any) -> None:
        assert isinstance(kind(Point), fdl.Buildable)

    @BOTH
    def test_neither_is_the_other(self, kind: Any) -> None:
        other = Partial if kind is Config else Config
        assert not isinstance(kind(Point), other)

    @pytest.mark.parametrize(
        ("source", "target"),
        [
            (fdl.Config, Config),
            (fdl.Partial, Partial),
            (Config, Config),
            (Partial, Partial),
            (Config, Partial),
            (fdl.Config, Partial),
        ],
        ids=lambda kind: f"{kind.__module__}.{kind.__name__}",
    )
    def test_casting_keeps_target_and_arguments_and_logs_nothing(
        self, source: Any, target: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            result = fdl.cast(target, source(Point, x=1))
        assert type(result) is target
        assert result.__fn_or_cls__ is Point
        assert result.__arguments__ == {"x": 1}
        assert caplog.records == []


class TestArguments:
    @BOTH
    def test_the_target_is_at_hand(self, kind: Any) -> None:
        assert kind(Point, x=1).__fn_or_cls__ is Point

    @BOTH
    def test_arguments_hold_only_what_was_set(self, kind: Any) -> None:
        assert kind(Point, x=1).__arguments__ == {"x": 1}

    @BOTH
    def test_arguments_follow_assignment(self, kind: Any) -> None:
        cfg = kind(Point)
        cfg.y = 5
        cfg.x = 4
        assert list(cfg.__arguments__.items()) == [("y", 5), ("x", 4)]

    @BOTH
    def test_a_positional_argument_with_a_name_is_stored_by_name(self, kind: Any) -> None:
        assert kind(Point, 1).__arguments__ == {"x": 1}

    @BOTH
    def test_arguments_without_a_name_are_stored_by_position(self, kind: Any) -> None:
        cfg = kind(spread, 1, 2, 3, 4, extra=5)
        assert cfg.__arguments__ == {0: 1, "second": 2, 2: 3, 3: 4, "extra": 5}

    @BOTH
    def test_a_set_value_is_read_back(self, kind: Any) -> None:
        assert kind(Point, x=1).x == 1

    @BOTH
    def test_an_unset_argument_reads_as_its_default(self, kind: Any) -> None:
        assert kind(Point).y == 2

    @BOTH
    def test_an_unset_required_argument_raises_with_its_name(self, kind: Any) -> None:
        with pytest.raises(AttributeError, match="'x'"):
            kind(Point).x  # noqa: B018 - reading is the test

    @BOTH
    def test_a_default_that_is_made_for_each_instance_cannot_be_read(self, kind: Any) -> None:
        with pytest.raises(ValueError, match="betas"):
            kind(Optimizer).betas  # noqa: B018 - reading is the test

    @BOTH
    def test_assigning_an_unknown_name_lists_the_valid_ones(self, kind: Any) -> None:
        with pytest.raises(AttributeError, match=r"x, y"):
            kind(Point).z = 1

    @BOTH
    def test_any_name_may_be_assigned_when_the_target_takes_any(self, kind: Any) -> None:
        cfg = kind(gather)
        cfg.anything = 1
        assert cfg.__arguments__ == {"anything": 1}

    @BOTH
    def test_deleting_unsets(self, kind: Any) -> None:
        cfg = kind(Point, x=1, y=5)
        del cfg.y
        assert cfg.__arguments__ == {"x": 1}
        assert cfg.y == 2

    @BOTH
    def test_operators_assign_in_place(self, kind: Any) -> None:
        cfg = kind(train, model=Config(Model, width=4))
        cfg.model.width *= 2
        cfg.steps += 1
        assert (cfg.model.width, cfg.steps) == (8, 11)

    @BOTH
    def test_dir_lists_parameter_names_in_order(self, kind: Any) -> None:
        assert dir(kind(train)) == ["model", "optimizer", "steps"]

    @BOTH
    def test_dir_includes_extra_keywords(self, kind: Any) -> None:
        assert dir(kind(gather, b=1, a=2)) == ["a", "b"]

    @BOTH
    def test_dir_copes_with_arguments_that_have_no_name(self, kind: Any) -> None:
        names = dir(kind(spread, 1, 2, 3, extra=4))
        assert {"second", "extra"} <= set(names)
        assert all(isinstance(name, str) for name in names)

    @BOTH
    def test_it_annotates_what_it_makes(self, kind: Any) -> None:
        def recipe() -> kind[Point]:
            return kind(Point)

        hint = typing.get_type_hints(recipe, localns={"kind": kind})["return"]
        assert get_origin(hint) is kind
        assert get_args(hint) == (Point,)

    @BOTH
    def test_it_does_not_wrap_a_buildable(self, kind: Any) -> None:
        with pytest.raises(ValueError, match="cast"):
            kind(Config(Point))


class TestEquality:
    @BOTH
    def test_same_target_and_arguments_are_equal(self, kind: Any) -> None:
        assert kind(Point, x=1) == kind(Point, x=1)

    def test_a_config_differs_from_a_partial(self) -> None:
        assert Config(Point, x=1) != Partial(Point, x=1)

    @BOTH
    def test_another_target_differs(self, kind: Any) -> None:
        assert kind(train) != kind(gather)

    @BOTH
    def test_another_argument_differs(self, kind: Any) -> None:
        assert kind(Point, x=1) != kind(Point, x=2)

    @BOTH
    def test_a_missing_required_argument_differs(self, kind: Any) -> None:
        assert kind(Point, x=1) != kind(Point)

    @BOTH
    def test_another_nested_argument_differs(self, kind: Any) -> None:
        one, two = (kind(train, model=[Config(Model, width=w)]) for w in (1, 2))
        assert one != two

    @BOTH
    def test_an_argument_set_to_its_default_equals_an_unset_one(self, kind: Any) -> None:
        assert kind(Point, x=1, y=2) == kind(Point, x=1)

    def test_it_differs_from_other_objects(self) -> None:
        assert Config(Point, x=1) != Point(x=1)

    @BOTH
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda x: x,
            lambda x: [x],
            lambda x: (1, x),
            lambda x: {"a": x},
            lambda x: Config(Box, value=x),
            lambda x: {"a": [Config(Box, value=(x,))]},
        ],
        ids=["plain", "list", "tuple", "dict", "config", "deep"],
    )
    def test_nan_equals_nan(self, kind: Any, wrap: Any) -> None:
        # Two objects: Python takes one and the same NaN in a container for equal.
        assert kind(Box, value=wrap(float("nan"))) == kind(Box, value=wrap(float("nan")))

    def test_nan_differs_from_a_number(self) -> None:
        assert Config(Box, value=math.nan) != Config(Box, value=1.0)

    @BOTH
    def test_dicts_with_keys_of_several_types_compare(self, kind: Any) -> None:
        def make(value: int) -> Any:
            return kind(Box, value={None: [1], "a": [2], 3: [value], (1, "x"): [4]})

        assert make(3) == make(3)
        assert make(3) != make(4)

    @BOTH
    def test_it_cannot_be_hashed(self, kind: Any) -> None:
        with pytest.raises(TypeError, match="unhashable"):
            hash(kind(Point))


class TestCopying:
    @BOTH
    def test_pickling_keeps_it(self, kind: Any) -> None:
        cfg = kind(train, model=Config(Model, width=1), optimizer=[Partial(Optimizer, lr=1.0)])
        again = pickle.loads(pickle.dumps(cfg))
        assert again == cfg
        assert type(again) is kind

    @BOTH
    def test_a_shallow_copy_has_its_own_arguments_but_the_same_values(self, kind: Any) -> None:
        model = Config(Model)
        cfg = kind(train, model=model)
        again = copy.copy(cfg)
        again.steps = 3
        assert again.model is model
        assert cfg.steps == 10

    @BOTH
    @pytest.mark.parametrize(
        "make", [copy.deepcopy, lambda cfg: cfg.clone()], ids=["copy", "clone"]
    )
    def test_a_deep_copy_is_equal_and_independent(self, kind: Any, make: Any) -> None:
        cfg = kind(train, model=Config(Model, width=1), optimizer=[1])
        again = make(cfg)
        assert type(again) is kind
        assert again == cfg
        again.model.width = 2
        again.optimizer.append(2)
        assert cfg == kind(train, model=Config(Model, width=1), optimizer=[1])

    @BOTH
    def test_a_clone_keeps_what_is_shared(self, kind: Any) -> None:
        model = Config(Model)
        again = kind(train, model=model, optimizer=[model]).clone()
        assert again.model is again.optimizer[0]


class TestRepr:
    def test_a_config_shows_its_target_and_set_arguments(self) -> None:
        assert repr(Config(Point, x=1)) == "<Config[Point(x=1)]>"

    def test_a_partial_says_so(self) -> None:
        assert repr(Partial(Point, x=1)) == "<Partial[Point(x=1)]>"

    def test_nothing_set_shows_nothing(self) -> None:
        assert repr(Config(Point)) == "<Config[Point()]>"

    def test_nested_configs_are_shown(self) -> None:
        assert repr(Partial(train, model=Config(Model, width=1))) == (
            "<Partial[train(model=<Config[Model(width=1)]>)]>"
        )

    def test_a_long_one_is_wrapped(self) -> None:
        cfg = Config(gather, first="x" * 50, second="y" * 50)
        assert len(repr(cfg).splitlines()) > 1

    def test_a_short_one_is_not(self) -> None:
        assert "\n" not in repr(Config(gather, first=1, second=2))


class TestBuilding:
    def test_a_config_calls_its_target(self) -> None:
        assert fdl.build(Config(Point, x=1)) == Point(1, 2)

    def test_arguments_of_every_kind_arrive(self) -> None:
        assert fdl.build(Config(spread, 1, 2, 3, extra=4)) == (1, 2, (3,), {"extra": 4})

    def test_nested_configs_are_built_first(self) -> None:
        order: list[str] = []

        def mark(name: str, below: Any = None) -> str:
            order.append(name)
            return name

        fdl.build(
            Config(
                mark,
                "root",
                below=[Config(mark, "left", below=Config(mark, "leaf")), Config(mark, "right")],
            )
        )
        assert order == ["leaf", "left", "right", "root"]

    @pytest.mark.parametrize(
        ("value", "built"),
        [
            ([Config(Point, x=1)], [Point(1)]),
            ((Config(Point, x=1), 2), (Point(1), 2)),
            ({"a": Config(Point, x=1)}, {"a": Point(1)}),
            (Size(Config(Point, x=1), 2), Size(Point(1), 2)),
            ({"a": [(Config(Point, x=1),)]}, {"a": [(Point(1),)]}),
        ],
        ids=["list", "tuple", "dict", "named tuple", "deep"],
    )
    def test_configs_inside_containers_are_built(self, value: Any, built: Any) -> None:
        result = fdl.build(Config(identity, value=value))
        assert result == built
        assert type(result) is type(built)

    def test_a_shared_config_is_built_once(self) -> None:
        shared = Config(Model)
        model, (again,), _ = fdl.build(Config(train, model=shared, optimizer=[shared]))
        assert model is again

    def test_equal_configs_that_are_not_shared_are_built_apart(self) -> None:
        model, again, _ = fdl.build(Config(train, model=Config(Model), optimizer=Config(Model)))
        assert model is not again

    def test_a_partial_becomes_a_functools_partial(self) -> None:
        built = fdl.build(Partial(train, model=1))
        assert isinstance(built, functools.partial)
        assert built.func is train
        assert built.keywords == {"model": 1}
        assert built(steps=2) == (1, None, 2)

    def test_configs_in_a_partial_are_built_once_for_all_calls(self) -> None:
        built = fdl.build(Partial(train, model=Config(Model)))
        assert built()[0] is built()[0]
        assert built()[0] == Model()

    def test_a_partial_in_a_partial_arrives_as_a_callable(self) -> None:
        inner = fdl.build(Partial(train, model=Partial(Point, x=1)))()[0]
        assert inner(y=5) == Point(1, 5)

    def test_a_partial_in_a_config_arrives_as_a_callable(self) -> None:
        assert fdl.build(Config(identity, value=Partial(Point, x=1)))() == Point(1)

    def test_an_error_keeps_its_type_and_says_where(self) -> None:
        with pytest.raises(LookupError, match=r"(?s)no luck.*fail.*<root>\.model"):
            fdl.build(Config(train, model=Config(fail)))

    def test_a_missing_argument_is_an_error_only_when_built(self) -> None:
        cfg = Config(Point)
        with pytest.raises(TypeError, match=r"(?s)'x'.*Point.*<root>"):
            fdl.build(cfg)

    def test_a_default_that_is_a_config_is_passed_unbuilt(self) -> None:
        default = Config(Model)

        def task(model: Any = default) -> Any:
            return model

        assert fdl.build(Config(task)) is default


class TestConstruction:
    @BOTH
    def test_an_unknown_keyword_is_refused(self, kind: Any) -> None:
        with pytest.raises(TypeError, match="z"):
            kind(Point, z=1)

    @BOTH
    def test_too_many_positionals_are_refused(self, kind: Any) -> None:
        with pytest.raises(TypeError):
            kind(Point, 1, 2, 3)

    @BOTH
    def test_required_arguments_may_be_missing(self, kind: Any) -> None:
        assert kind(Point).__arguments__ == {}

    @BOTH
    def test_a_dataclass_instance_becomes_a_config_with_all_fields(self, kind: Any) -> None:
        model = kind(train, model=Model(width=3)).model
        assert type(model) is Config
        assert model.__fn_or_cls__ is Model
        assert model.__arguments__ == {"width": 3, "depth": 2}

    @BOTH
    def test_dataclasses_inside_it_become_configs_too(self, kind: Any) -> None:
        trainer = kind(train, model=Trainer(model=Model(width=3))).model
        assert type(trainer.model) is Config
        assert type(trainer.optimizer) is Config
        assert trainer.model.width == 3
        assert trainer.optimizer.betas == [0.9, 0.95]

    @BOTH
    def test_a_dataclass_with_post_init_becomes_a_config_of_what_init_takes(
        self, kind: Any
    ) -> None:
        derived = kind(train, model=Derived(size=5)).model
        assert derived.__arguments__ == {"size": 5}
        assert fdl.build(derived) == Derived(size=5)

    @BOTH
    def test_a_frozen_dataclass_instance_becomes_a_config(self, kind: Any) -> None:
        assert kind(train, model=Frozen("x")).model == Config(Frozen, name="x")

    @BOTH
    def test_it_is_converted_although_a_required_argument_is_missing(self, kind: Any) -> None:
        assert kind(train, optimizer=Optimizer(lr=1.0)).optimizer.__fn_or_cls__ is Optimizer

    @BOTH
    def test_it_is_converted_beside_a_positional_argument(self, kind: Any) -> None:
        cfg = kind(train, 1, optimizer=Optimizer(lr=1.0))
        assert type(cfg.optimizer) is Config
        assert cfg.model == 1

    @BOTH
    @pytest.mark.parametrize("value", [Model, 3, "text", None, identity])
    def test_other_values_are_kept(self, kind: Any, value: Any) -> None:
        assert kind(train, model=value).__arguments__ == {"model": value}

    @BOTH
    def test_containers_are_kept_as_they_are(self, kind: Any) -> None:
        items = [Model()]
        assert kind(train, model=items).model is items
        assert type(items[0]) is Model

    @BOTH
    def test_an_instance_inside_a_dict_is_not_converted(self, kind: Any) -> None:
        model = Model()
        assert kind(train, model={"a": model}).model["a"] is model

    @BOTH
    def test_an_instance_given_by_position_is_not_converted(self, kind: Any) -> None:
        model = Model()
        assert kind(train, model).model is model

    @BOTH
    def test_an_instance_assigned_later_is_not_converted(self, kind: Any) -> None:
        cfg, model = kind(train), Model()
        cfg.model = model
        assert cfg.model is model

    @BOTH
    def test_without_binding_a_dataclass_instance_is_kept(self, kind: Any) -> None:
        model = Model()
        assert kind(train, bind_args=False, model=model).model is model

    @BOTH
    def test_without_binding_nothing_is_filled_in(self, kind: Any) -> None:
        assert kind(fit, bind_args=False).__arguments__ == {}


class TestOptionalDefaults:
    @pytest.mark.parametrize(
        ("alias", "kind"), [(OptionalDefaultConfig, Config), (OptionalDefaultPartial, Partial)]
    )
    def test_the_alias_is_an_annotated_optional(self, alias: Any, kind: Any) -> None:
        hint = alias[Model]
        assert get_origin(hint) is Annotated
        plain, mark = get_args(hint)
        assert plain == Optional[Model]
        assert get_origin(mark) is kind

    @BOTH
    def test_an_argument_left_out_is_filled_in(self, kind: Any) -> None:
        cfg = kind(fit)
        assert cfg.__arguments__ == {"model": Config(Model), "head": Partial(Layer)}
        assert cfg.model.__arguments__ == {}

    @BOTH
    def test_none_is_filled_in_too(self, kind: Any) -> None:
        cfg = kind(fit, model=None, head=None)
        assert cfg.__arguments__ == {"model": Config(Model), "head": Partial(Layer)}

    @BOTH
    def test_what_was_given_is_kept(self, kind: Any) -> None:
        model, head = Config(Model, width=1), Partial(Layer, size=2)
        cfg = kind(fit, model=model, head=head)
        assert cfg.model is model
        assert cfg.head is head

    @BOTH
    def test_it_is_filled_in_although_a_required_argument_is_missing(self, kind: Any) -> None:
        assert kind(fit_steps).__arguments__ == {"model": Config(Model)}

    @BOTH
    def test_it_is_filled_in_beside_a_positional_argument(self, kind: Any) -> None:
        assert kind(fit_steps, 3).__arguments__ == {"steps": 3, "model": Config(Model)}

    @BOTH
    def test_what_was_given_by_position_is_kept(self, kind: Any) -> None:
        model = Config(Model, width=1)
        assert kind(fit_steps, 3, model).model is model

    @BOTH
    def test_an_annotation_written_as_text_counts(self, kind: Any) -> None:
        assert kind(fit_text).__arguments__ == {"model": Config(Model)}

    def test_a_configured_call_gets_the_object_and_a_plain_call_none(self) -> None:
        assert fdl.build(Config(fit_steps, 1)) == (1, Model())
        assert fit_steps(1) == (1, None)

    def test_the_partial_arrives_as_a_callable(self) -> None:
        assert fdl.build(Config(fit))[2](size=4) == Layer(size=4)


def _document(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(zlib.decompress(base64.urlsafe_b64decode(text)))
    return loaded


class TestDictForm:
    @DICT_FORMS
    def test_it_builds_a_dict(self, target: Any) -> None:
        assert fdl.build(Config(target, a=1)) == {"a": 1}

    @DICT_FORMS
    def test_nested_configs_are_built(self, target: Any) -> None:
        assert fdl.build(Config(target, a=Config(Point, x=1))) == {"a": Point(1)}

    @DICT_FORMS
    def test_all_forms_are_equal(self, target: Any) -> None:
        assert Config(target, a=1) == Config(dict, a=1)
        assert Config(target, a=1) != Config(dict, a=2)

    @DICT_FORMS
    def test_any_key_may_be_assigned(self, target: Any) -> None:
        cfg = Config(target, a=1)
        cfg.b = 2
        assert fdl.build(cfg) == {"a": 1, "b": 2}

    @DICT_FORMS
    @pytest.mark.parametrize(
        "make",
        [
            copy.copy,
            copy.deepcopy,
            lambda cfg: cfg.clone(),
            lambda cfg: pickle.loads(pickle.dumps(cfg)),
            lambda cfg: ZlibJSONSerializer().deserialize(ZlibJSONSerializer().serialize(cfg)),
            lambda cfg: fdl.cast(Config, cfg),
        ],
        ids=["copy", "deepcopy", "clone", "pickle", "serialize", "cast"],
    )
    def test_it_can_be_copied_in_every_way(self, target: Any, make: Any) -> None:
        cfg = Config(target, a=1, b=Config(Point, x=1))
        again = make(cfg)
        assert again == cfg
        assert fdl.build(again) == {"a": 1, "b": Point(1)}

    @DICT_FORMS
    def test_it_can_be_cast_to_a_partial(self, target: Any) -> None:
        partial = fdl.cast(Partial, Config(target, a=1))
        assert type(partial) is Partial
        assert fdl.build(partial)() == {"a": 1}

    @DICT_FORMS
    def test_it_can_be_stored_inside_a_task(self, target: Any) -> None:
        task = Partial(train, model=Config(target, a=1), optimizer=[Config(target, b=2)])
        again = ZlibJSONSerializer().deserialize(ZlibJSONSerializer().serialize(task))
        assert again == task
        assert fdl.build(again)() == ({"a": 1}, [{"b": 2}], 10)

    @DICT_FORMS
    def test_it_is_stored_as_the_builtin_dict(self, target: Any) -> None:
        objects = _document(ZlibJSONSerializer().serialize(Config(target, a=1)))["objects"]
        callables = [
            node
            for record in objects.values()
            for label, node in record["items"]
            if label == "Attr(name='fn_or_cls')"
        ]
        assert [(node["module"], node["name"]) for node in callables] == [("builtins", "dict")]


class TestBroadcast:
    @BOTH
    def test_it_sets_and_returns_the_same_object(self, kind: Any) -> None:
        cfg = kind(Model)
        assert cfg.broadcast(width=3) is cfg
        assert cfg.width == 3

    @BOTH
    def test_it_reaches_nested_configs_and_partials(self, kind: Any) -> None:
        cfg = kind(train, model=Config(Model), optimizer=Partial(Model))
        cfg.broadcast(width=3)
        assert (cfg.model.width, cfg.optimizer.width) == (3, 3)

    @BOTH
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda model: [model],
            lambda model: (1, model),
            lambda model: {"a": model},
            lambda model: {"a": [(model,)]},
            lambda model: Config(identity, value=[model]),
            lambda model: Config(dict, a=model),
        ],
        ids=["list", "tuple", "dict", "deep", "config", "dict config"],
    )
    def test_it_enters_containers(self, kind: Any, wrap: Any) -> None:
        model = Config(Model)
        kind(train, model=wrap(model)).broadcast(width=3)
        assert model.width == 3

    @BOTH
    def test_it_sets_several_names_at_every_level(self, kind: Any) -> None:
        cfg = kind(train, model=Config(train, model=Config(Model)), steps=1)
        cfg.broadcast(steps=7, depth=9)
        assert (cfg.steps, cfg.model.steps, cfg.model.model.depth) == (7, 7, 9)

    @BOTH
    def test_names_that_no_config_has_are_ignored(self, kind: Any) -> None:
        cfg = kind(train, model=Config(Model))
        assert cfg.broadcast(unheard_of=1) == kind(train, model=Config(Model))

    @BOTH
    def test_a_default_made_for_each_instance_does_not_stop_it(self, kind: Any) -> None:
        cfg = kind(Trainer, optimizer=Config(Optimizer))
        cfg.broadcast(lr=3.0)
        assert cfg.optimizer.__arguments__ == {"lr": 3.0}
        assert "model" not in cfg.__arguments__


class TestWalk:
    @BOTH
    def test_each_function_gets_its_config_and_its_result_is_assigned(self, kind: Any) -> None:
        cfg = kind(train, model=Config(Model, width=2, depth=5), optimizer=Partial(Model, width=3))
        assert cfg.walk(width=lambda c: c.width * c.depth) is cfg
        assert (cfg.model.width, cfg.optimizer.width) == (10, 6)

    @BOTH
    def test_the_root_counts(self, kind: Any) -> None:
        assert kind(train, model=1).walk(steps=lambda c: c.steps + 1).steps == 11

    @BOTH
    @pytest.mark.parametrize(
        "wrap",
        [
            lambda model: [model],
            lambda model: (model,),
            lambda model: {"a": model},
            lambda model: [{"a": (model,)}],
        ],
        ids=["list", "tuple", "dict", "deep"],
    )
    def test_it_enters_containers(self, kind: Any, wrap: Any) -> None:
        model = Config(Model, width=2)
        kind(train, model=wrap(model)).walk(width=lambda c: c.width * 2)
        assert model.width == 4

    @BOTH
    @pytest.mark.parametrize(
        "wrap",
        [lambda model: model, lambda model: [model, model], lambda model: {"a": model}],
        ids=["attribute", "list", "dict"],
    )
    def test_a_shared_config_is_visited_once(self, kind: Any, wrap: Any) -> None:
        model = Config(Model, width=2)
        kind(train, model=model, optimizer=wrap(model)).walk(width=lambda c: c.width * 2)
        assert model.width == 4

    @BOTH
    def test_names_that_no_config_has_are_ignored(self, kind: Any) -> None:
        cfg = kind(train, model=Config(Model))
        assert cfg.walk(unheard_of=lambda c: 1) == kind(train, model=Config(Model))

    @BOTH
    def test_a_default_made_for_each_instance_does_not_stop_it(self, kind: Any) -> None:
        cfg = kind(Trainer, optimizer=Config(Optimizer))
        cfg.walk(lr=lambda c: c.lr * 10)
        assert cfg.optimizer.__arguments__ == {"lr": 1.0}


class TestPictures:
    @BOTH
    def test_visualize_gives_a_graph_of_it(self, kind: Any) -> None:
        graph = kind(train, model=Config(Model, width=31)).visualize()
        assert isinstance(graph, graphviz.Graph | graphviz.Digraph)
        assert "Model" in graph.source
        assert "31" in graph.source

    @BOTH
    def test_diff_gives_a_graph_of_both(self, kind: Any) -> None:
        graph = kind(Model, width=31).diff(kind(Model, width=57))
        assert isinstance(graph, graphviz.Graph | graphviz.Digraph)
        assert "31" in graph.source
        assert "57" in graph.source

    @BOTH
    def test_diff_leaves_out_equal_parts_unless_told(self, kind: Any) -> None:
        def make(steps: int) -> Any:
            return kind(train, model=Config(Model, width=31), steps=steps)

        assert "31" not in make(1).diff(make(2)).source
        assert "31" in make(1).diff(make(2), trim=False).source

    @pytest.mark.needs("dot")
    @BOTH
    def test_an_image_is_a_png(self, kind: Any, tmp_path: Path) -> None:
        kind(Model).save_config_img(str(tmp_path / "model.png"))
        assert (tmp_path / "model.png").read_bytes().startswith(PNG_SIGNATURE)

    @pytest.mark.needs("dot")
    def test_a_path_without_suffix_is_a_directory(self, tmp_path: Path) -> None:
        Config(Model).save_config_img(str(tmp_path / "pictures"))
        assert (tmp_path / "pictures" / "config.png").read_bytes().startswith(PNG_SIGNATURE)

    @pytest.mark.needs("dot")
    def test_missing_parents_are_made(self, tmp_path: Path) -> None:
        Config(Model).save_config_img(str(tmp_path / "a" / "b" / "model.png"))
        assert (tmp_path / "a" / "b" / "model.png").is_file()

    def test_another_suffix_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"jpg|png"):
            Config(Model).save_config_img(str(tmp_path / "model.jpg"))

    @pytest.mark.needs("dot")
    def test_only_the_image_is_left_behind(self, tmp_path: Path) -> None:
        Config(Model).save_config_img(str(tmp_path / "model.png"))
        assert [path.name for path in tmp_path.iterdir()] == ["model.png"]

    @pytest.mark.needs("dot")
    @BOTH
    def test_a_notebook_gets_svg(self, kind: Any) -> None:
        assert "<svg" in kind(Model)._repr_svg_()

    @BOTH
    def test_without_graphviz_a_notebook_gets_the_repr_and_a_note(
        self, kind: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("PATH", "")
        cfg = kind(Model, width=1)
        # A notebook that is handed None shows the repr.
        assert cfg._repr_svg_() in (None, repr(cfg))
        printed = capsys.readouterr()
        assert printed.out + printed.err != ""
