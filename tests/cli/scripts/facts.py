"""The commands of a package, as `nemorun facts …` runs them: one for each way to register one.

Those without run options print what the library tells programs about itself, as JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

import nemo_run as run
from nemo_run.cli import api, cli_parser
from nemo_run.cli.cli_parser import PythonicParser, TypeParser, parse_factory

if os.environ.get("FACTS_SAY_SO"):
    print("facts are loaded")


@dataclass
class Net:
    width: int = 8
    depth: int = 2


@dataclass
class Wide(Net):
    factor: float = 1.0


@dataclass
class Data:
    paths: list[str] = field(default_factory=list)


def say(value: Any) -> None:
    print(json.dumps(value, default=repr))


def attempt(call: Any) -> str:
    """Return the class and the first line of what a call raises."""
    try:
        call()
    except Exception as err:  # noqa: BLE001 - to be printed
        bases = [c.__name__ for c in (ValueError, TypeError, KeyError) if isinstance(err, c)]
        return f"{type(err).__name__} ({', '.join(bases)}): {str(err).splitlines()[0]}"
    return "nothing"


# Commands.


@run.cli.entrypoint
def bare(x: int = 1) -> None:
    """Say x.

    And say it well.

    Args:
        x: what to say.
    """
    print("bare", x)


@run.cli.entrypoint(name="by-name", help="Another text.")
def renamed() -> None:
    """Not this one."""
    print("renamed")


@run.cli.entrypoint(namespace="facts.deep.er")
def nested() -> None:
    print("nested")


def start() -> run.Partial[Any]:
    return run.Partial(prepared, net=run.Config(Net, width=3), x=5)


@dataclass(kw_only=True)
class Mark(run.Plugin):
    word: str = "marked"

    def setup(self, task: Any, executor: run.Executor) -> None:
        executor.env_vars["MARK"] = self.word


@run.cli.entrypoint(
    default_factory=start,
    default_executor=run.Config(run.LocalExecutor, env_vars={"PLACE": "default"}),
    default_plugins=[run.Config(Mark)],
    skip_confirmation=True,
)
def prepared(net: Net, x: int = 0) -> None:
    print("prepared", net, x, os.environ.get("PLACE"), os.environ.get("MARK"))


@dataclass(kw_only=True)
class LoudContext(api.RunContext):
    volume: int = 1


@run.cli.entrypoint(type="experiment", run_ctx_cls=LoudContext)
def loud(ctx: LoudContext) -> None:
    print("loud", type(ctx).__name__, ctx.volume, ctx.name, ctx.executor, ctx.plugins)


@run.cli.entrypoint(type="experiment")
def unaware(x: int = 1) -> None:
    """An experiment that takes no context."""
    print("unaware", x)


class Special(api.Entrypoint):
    """Stands for a command."""


@run.cli.entrypoint(entrypoint_cls=Special)
def special() -> None:
    print("special", type(special.cli_entrypoint).__name__)  # type: ignore[attr-defined]


@run.cli.entrypoint
def fit(
    net: Net = Net(),  # noqa: B008 - users write this
    other: Optional[Net] = None,  # noqa: UP045
    nets: list[Net] = [],  # noqa: B006
    data: Data | None = None,
    anything: Any = None,
    number: float = 0.0,
    bits: int = 6,
    tags: list[str] = ["a"],  # noqa: B006
    sizes: dict[str, int] = {"a": 1},  # noqa: B006
    text: str = "",
    mode: Literal["fast", 1] = "fast",
    **more: int,
) -> None:
    """Show the arguments."""
    say({name: value for name, value in locals().items() if name != "more"} | more)


# Factories.


@run.cli.factory
def small(width: int = 4) -> run.Config[Net]:
    return run.Config(Net, width=width)


@run.cli.factory(is_target_default=True, name="huge")
@run.autoconvert
def huge_net() -> Net:
    return Net(width=1000)


@run.cli.factory(target=fit, target_arg="data")
def files(paths: list[str] = ["x"]) -> run.Config[Data]:  # noqa: B006
    return run.Config(Data, paths=paths)


@run.cli.factory(target=fit)
def recipe() -> run.Partial[Any]:
    return run.Partial(fit, net=run.Config(Net, width=77), bits=1)


@run.cli.factory
def nothing() -> run.Config[Net]:
    return None  # type: ignore[return-value]  # what it must not do


@run.cli.factory(namespace="my.space")
def anywhere() -> int:
    return 3


@dataclass(kw_only=True)
class OtherExecutor(run.LocalExecutor):
    colour: str = "blue"


@run.cli.factory
def other() -> run.Config[OtherExecutor]:
    return run.Config(OtherExecutor)


# What the library says about itself.


@run.cli.entrypoint(enable_executor=False)
def registration() -> None:
    entrypoint = bare.cli_entrypoint  # type: ignore[attr-defined]
    before = entrypoint.parse_partial(["x=3"]).x, entrypoint.parse_partial([], x=4).x
    entrypoint.configure(x=9)
    tree = run.cli.list_entrypoints("facts.deep")
    say(
        {
            "returned": bare.__name__,
            "attributes": [entrypoint.name, entrypoint.namespace, entrypoint.path, entrypoint.type],
            "help": entrypoint.help_str,
            "defaults": [entrypoint.default_executor, entrypoint.default_plugins],
            "parsed": before,
            "configured": entrypoint.parse_partial([]).x,
            "tree": str(tree["facts"]["deep"]["er"]["nested"]),
            "nowhere": run.cli.list_entrypoints("nowhere"),
            "executor": attempt(lambda: run.cli.entrypoint(takes_executor)),
            "root": api.ROOT_ENTRYPOINT_NAMESPACE,
        }
    )
    entrypoint(x=2)


def takes_executor(executor: str) -> None: ...


@run.cli.entrypoint(enable_executor=False)
def lookups() -> None:
    def unannotated():
        return 3

    def plain() -> int:
        return 3

    resolve = run.cli.resolve_factory
    say(
        {
            "by type": resolve(Net, "small") is small,
            "by name": resolve("facts.Net", "small") is small,
            "of a union": resolve(Optional[Net], "huge") is huge_net,  # noqa: UP045
            "default": resolve(Net, "default") is huge_net,
            "of an argument": resolve("facts.fit.data", "files") is files,
            "of a namespace": resolve("my.space", "anywhere")(),
            "listed": [f.__name__ for f in run.cli.list_factories(Net)],
            "of a subclass": attempt(lambda: resolve(Wide, "small")),
            "none": attempt(lambda: resolve(Net, "smal")),
            "no namespace": attempt(lambda: resolve("nowhere", "small")),
            "no target": attempt(lambda: run.cli.factory(small, target_arg="net")),
            "no annotation": attempt(lambda: run.cli.factory(unannotated)),
            "no config": attempt(lambda: run.cli.factory(plain)),
            "wrapper": [small.wrapped.__name__, small.__factory__],  # type: ignore[attr-defined]
        }
    )


@run.cli.entrypoint(enable_executor=False)
def parsing() -> None:
    def task(a: int, b: str = "", net: Net = Net()) -> None: ...  # noqa: B008

    parse = run.cli.parse_cli_args
    edited = run.Config(Net)
    parser = TypeParser(strict_mode=True)
    parser.register_parser(Net)(lambda text, hint: Net(width=int(text)))
    pythonic = PythonicParser()
    say(
        {
            "partial": str(run.cli.parse_partial(task, "a=1")),
            "config": str(run.cli.parse_config(Net, "width=1")),
            "positional": str(parse(task, ["1", "x"])),
            "in place": parse(edited, ["width=9"]) is edited and edited.width,
            "list": str(parse([run.Config(Net)], ["[0].width=3"])),
            "target": str(parse(Net, ["_target_=x", "width=2"], run.Config)),
            "after": attempt(lambda: parse(task, ["a=1", "x"])),
            "too many": attempt(lambda: parse(Net, ["1", "2", "3"])),
            "unexpected": attempt(lambda: parse(3, ["x=1"])),
            "steps": attempt(lambda: parse(task, ["net.widht=1"])),
            "registered": str(parser.parse("5", Net)),
            "inferred": parser.infer_type("[1]").__name__,
            "strict": attempt(lambda: TypeParser(strict_mode=True).parse("x", Net)),
            "lenient": TypeParser(strict_mode=False).parse("x", Net),
            "constructor": pythonic.parse_value("dict(a=[1])"),
            "comprehension": pythonic.parse_value("[x * 2 for x in range(3)]"),
            "conditional": pythonic.parse_value("1 if True else 2"),
            "lambda": pythonic.parse_value("lambda x: x + 1")(1),
            "unsafe": attempt(lambda: pythonic.parse_value("[open('x') for x in [1]]")),
            "expression": str(parse_factory(fit, "net", Net, "small(width=2)")),
            "shared": cli_parser.type_parser.parse("[1]", list[int]),
        }
    )


@run.cli.entrypoint(enable_executor=False)
def context() -> None:
    made = api.RunContext(name="it")
    before = repr(made)
    rest = made.parse_args(["x=run.y", "run.executor=LocalExecutor", "run.detach=yes"])
    say(
        {
            "before": before,
            "rest": rest,
            "executor": type(made.executor).__name__,
            "detach": made.detach,
            "plugins": made.plugins,
            "by name": type(made.parse_executor("LocalExecutor", "nodes=2")).__name__,
            "config": type(made.to_config()).__name__,
            "help": api.RunContext.get_help().splitlines()[0],
            "unknown": attempt(lambda: made.parse_executor("nobody")),
        }
    )


@run.cli.entrypoint(enable_executor=False)
def lazily() -> None:
    with run.lazy_imports():
        import no.such.module as lazy  # type: ignore[import-not-found]

        relative = attempt(lambda: exec("from . import x", {"__package__": "facts"}))
    with run.lazy_imports(fallback_to_lazy=True):
        import json as real

        import nowhere_at_all as unreal  # type: ignore[import-not-found]
    task = run.LazyEntrypoint("facts.bare", overwrites=["x=3"])
    task.x += 4
    words = run.LazyEntrypoint("nemo facts fit net.width=5 bits=1")
    say(
        {
            "lazy": type(lazy).__name__,
            "attribute": type(lazy.deep.er).__name__,
            "called": attempt(lambda: lazy.deep.er()),
            "relative": relative,
            "real": real.dumps([]),
            "unreal": type(unreal).__name__,
            "is lazy": task.is_lazy,
            "resolved": str(task.resolve()),
            "words": str(words.resolve()),
            "context": attempt(lambda: run.LazyEntrypoint("facts.loud").resolve()),
        }
    )
