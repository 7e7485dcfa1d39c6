"""Functions that look as if they made objects, and make configs instead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import fiddle as fdl
import pytest
from fiddle.experimental import auto_config
from tests.unit.config_targets import Box, Layer, Model, Optimizer, Point, Trainer, identity, train

from nemo_run import api
from nemo_run.api import autoconvert, default_autoconfig_buildable
from nemo_run.config import Config, Partial


def small_model() -> Model:
    """Make a small model."""
    return Model(width=4)


def nested(width: int, *, lr: float = 0.5) -> Trainer:
    return Trainer(model=Model(width=width), optimizer=Optimizer(lr=lr), steps=3)


def several() -> list[Any]:
    return [Model(width=1), Layer(size=2)]


@autoconvert
def converted_model(width: int = 4) -> Model:
    return Model(width=width)


class TestForms:
    def test_bare(self) -> None:
        @autoconvert
        def recipe() -> Model:
            return Model(width=4)

        assert recipe() == Config(Model, width=4)

    def test_with_options(self) -> None:
        @autoconvert(partial=True)
        def recipe() -> Model:
            return Model(width=4)

        assert recipe() == Partial(Model, width=4)

    def test_with_empty_parentheses(self) -> None:
        @autoconvert()
        def recipe() -> Model:
            return Model(width=4)

        assert recipe() == Config(Model, width=4)

    def test_applied_to_an_existing_function(self) -> None:
        assert autoconvert(small_model)() == Config(Model, width=4)
        assert small_model() == Model(width=4)

    def test_applied_to_an_existing_function_with_options(self) -> None:
        assert autoconvert(small_model, partial=True)() == Partial(Model, width=4)


class TestResult:
    def test_a_config_is_ours(self) -> None:
        assert type(autoconvert(small_model)()) is Config

    def test_a_partial_is_ours(self) -> None:
        cfg: Any = autoconvert(small_model, partial=True)()
        assert type(cfg) is Partial

    def test_nested_calls_make_nested_configs(self) -> None:
        assert autoconvert(nested)(8, lr=0.1) == Config(
            Trainer, model=Config(Model, width=8), optimizer=Config(Optimizer, lr=0.1), steps=3
        )

    def test_nested_configs_are_ours(self) -> None:
        cfg = autoconvert(nested)(8)
        assert type(cfg.model) is Config
        assert cfg.broadcast(width=5).model.width == 5

    def test_only_the_outermost_becomes_a_partial(self) -> None:
        cfg: Any = autoconvert(nested, partial=True)(8)
        assert type(cfg) is Partial
        assert type(cfg.model) is Config

    def test_building_gives_what_the_function_would_have_made(self) -> None:
        assert fdl.build(autoconvert(nested)(8)) == nested(8)

    def test_functions_become_configs_as_classes_do(self) -> None:
        def recipe() -> Any:
            return train(model=Model(), steps=2)

        assert autoconvert(recipe)() == Config(train, model=Config(Model), steps=2)

    def test_positional_arguments_are_kept(self) -> None:
        def recipe() -> Point:
            return Point(1, y=3)

        assert autoconvert(recipe)() == Config(Point, x=1, y=3)

    def test_items_of_a_list_are_configs(self) -> None:
        items: Any = autoconvert(several)()
        assert items == [Config(Model, width=1), Config(Layer, size=2)]
        assert [type(item) for item in items] == [Config, Config]

    def test_items_of_a_list_become_partials_when_asked_for(self) -> None:
        assert autoconvert(several, partial=True)() == [
            Partial(Model, width=1),
            Partial(Layer, size=2),
        ]

    @pytest.mark.parametrize("partial", [True, False])
    def test_nothing_is_logged(self, partial: bool, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            autoconvert(nested, partial=partial)(8)
            autoconvert(several, partial=partial)()
        assert caplog.records == []

    def test_each_call_makes_a_new_config(self) -> None:
        convert = autoconvert(small_model)
        assert convert() is not convert()

    def test_a_result_without_a_config_is_refused(self) -> None:
        def recipe() -> int:
            return 3

        with pytest.raises(TypeError, match="recipe"):
            autoconvert(recipe)()


class TestWrapper:
    def test_it_keeps_name_and_docstring(self) -> None:
        convert = autoconvert(small_model)
        assert convert.__name__ == "small_model"
        assert convert.__doc__ == "Make a small model."
        assert convert.__module__ == small_model.__module__

    def test_it_has_the_original(self) -> None:
        assert autoconvert(small_model).wrapped is small_model  # type: ignore[attr-defined]  # set by the decorator

    def test_it_is_marked(self) -> None:
        assert autoconvert(small_model).__auto_config__ is True  # type: ignore[attr-defined]  # set by the decorator


class TestBody:
    def test_configs_made_by_hand_are_kept(self) -> None:
        def recipe() -> Any:
            return Box(value=Config(Model, width=1), other=Partial(Model, width=2))

        assert autoconvert(recipe)() == Config(
            Box, value=Config(Model, width=1), other=Partial(Model, width=2)
        )

    def test_a_config_made_by_hand_may_be_the_result(self) -> None:
        def recipe() -> Any:
            return Config(Model, width=1)

        assert autoconvert(recipe)() == Config(Model, width=1)

    def test_other_converted_functions_are_run(self) -> None:
        def recipe() -> Any:
            return Box(value=converted_model(width=9))

        assert autoconvert(recipe)() == Config(Box, value=Config(Model, width=9))

    def test_builtin_functions_are_called(self) -> None:
        def recipe() -> Any:
            return Box(value=max(1, len([1, 2])), other=sorted([sum([1, 2]), 1]))

        assert autoconvert(recipe)() == Config(Box, value=2, other=[1, 3])

    def test_builtin_classes_are_called(self) -> None:
        def recipe() -> Any:
            return Box(value=int("4") * 2, other=str(5))

        assert autoconvert(recipe)() == Config(Box, value=8, other="5")

    def test_arithmetic_is_done(self) -> None:
        def recipe(size: int) -> Any:
            return Box(value=size * 2 + 1, other=f"{size}-{-size}")

        assert autoconvert(recipe)(3) == Config(Box, value=7, other="3--3")

    def test_local_variables_may_be_used(self) -> None:
        def recipe() -> Any:
            width = 3
            model = Model(width=width)
            return Box(value=model)

        assert autoconvert(recipe)() == Config(Box, value=Config(Model, width=3))

    def test_a_local_variable_used_twice_is_shared(self) -> None:
        def recipe() -> Any:
            model = Model()
            return Box(value=model, other=[model])

        cfg = autoconvert(recipe)()
        assert cfg.value is cfg.other[0]
        built = fdl.build(cfg)
        assert built.value is built.other[0]

    def test_containers_may_hold_calls(self) -> None:
        def recipe() -> Any:
            return Box(value=[Model(), (Model(),)], other={"a": Model()})

        assert autoconvert(recipe)() == Config(
            Box, value=[Config(Model), (Config(Model),)], other={"a": Config(Model)}
        )

    def test_variables_of_the_enclosing_function_are_seen(self) -> None:
        width = 6

        def recipe() -> Any:
            return Model(width=width)

        assert autoconvert(recipe)() == Config(Model, width=6)

    def test_functions_may_be_passed_without_calling_them(self) -> None:
        def recipe() -> Any:
            return Box(value=identity, other=Model)

        assert autoconvert(recipe)() == Config(Box, value=identity, other=Model)


def with_if(flag: bool = True) -> Any:
    if flag:
        return Model()
    return Layer()


def with_conditional_expression(flag: bool = True) -> Any:
    return Model() if flag else Layer()


def with_for() -> Any:
    for width in (1, 2):
        model = Model(width=width)
    return model


def with_while() -> Any:
    while True:
        return Model()


def with_list_comprehension() -> Any:
    return Box(value=[Model(width=width) for width in (1, 2)])


def with_dict_comprehension() -> Any:
    return Box(value={width: Model() for width in (1, 2)})


def with_set_comprehension() -> Any:
    return Box(value={str(width) for width in (1, 2)})


def with_generator() -> Any:
    return Box(value=list(width + 1 for width in (1, 2)))


def with_try() -> Any:
    try:
        return Model()
    except ValueError:
        return Layer()


def with_lambda() -> Any:
    return Box(value=lambda: 1)


def with_with() -> Any:
    with open("/dev/null"):  # noqa: PTH123 - the construct under test
        return Model()


class TestControlFlow:
    @pytest.mark.parametrize(
        ("function", "construct"),
        [
            (with_if, "If"),
            (with_conditional_expression, "IfExp"),
            (with_for, "For"),
            (with_while, "While"),
            (with_list_comprehension, "ListComp"),
            (with_dict_comprehension, "DictComp"),
            (with_set_comprehension, "SetComp"),
            (with_generator, "GeneratorExp"),
            (with_try, "Try"),
            (with_lambda, "Lambda"),
            (with_with, "With"),
        ],
        ids=lambda value: getattr(value, "__name__", None),
    )
    def test_it_is_refused_with_construct_and_line(
        self, function: Callable[[], Any], construct: str
    ) -> None:
        with pytest.raises(
            auto_config.UnsupportedLanguageConstructError, match=rf"(?i)\b{construct}\b"
        ) as caught:
            autoconvert(function)()
        assert caught.value.lineno == function.__code__.co_firstlineno + 1
        assert caught.value.filename == __file__

    def test_the_function_itself_still_works(self) -> None:
        assert with_if() == Model()


def test_a_function_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {"Model": Model}
    exec("def recipe(): return Model()", namespace)
    with pytest.raises((OSError, TypeError, ValueError), match=r"(?i)source"):
        autoconvert(namespace["recipe"])()


class TestOwnConversion:
    def test_it_gets_the_function_the_kind_and_the_call(self) -> None:
        seen: list[Any] = []

        def convert(fn: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append((fn, cls, args, kwargs))
            return cls(Model)

        autoconvert(nested, to_buildable_fn=convert)(8, lr=0.1)
        assert seen == [(nested, Config, (8,), {"lr": 0.1})]

    def test_its_result_is_returned(self) -> None:
        def convert(fn: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
            return cls(fn, *args, **kwargs)

        assert autoconvert(nested, to_buildable_fn=convert)(8) == Config(nested, width=8)

    def test_it_is_told_about_partials(self) -> None:
        def convert(fn: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
            return cls(fn, *args, **kwargs)

        convert_partial = autoconvert(nested, partial=True, to_buildable_fn=convert)
        assert convert_partial(8) == Partial(nested, width=8)

    def test_it_may_add_to_the_default_conversion(self) -> None:
        def convert(fn: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
            cfg: Any = default_autoconfig_buildable(fn, cls, *args, **kwargs)
            return cfg.broadcast(width=99)

        assert autoconvert(nested, to_buildable_fn=convert)(8).model.width == 99

    @pytest.mark.parametrize("kind", [Config, Partial])
    def test_the_default_conversion_can_be_called_by_itself(self, kind: Any) -> None:
        assert default_autoconfig_buildable(small_model, kind) == kind(Model, width=4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEFAULT_NAME", "default"),
        ("ROOT_TASK_NAMESPACE", "nemo_run.task"),
        ("ROOT_TASK_FACTORY_NAMESPACE", "nemo_run.task_factory"),
        ("ROOT_TYPER_NAMESPACE", "nemo_run.typer"),
    ],
)
def test_a_constant_has_this_value(name: str, value: str) -> None:
    assert getattr(api, name) == value
