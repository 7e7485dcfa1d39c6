"""One run of a command: what was asked for, and doing it."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nemo_run._experiments.plan_only import only_planning
from nemo_run.cli.commands.exports import export_all
from nemo_run.cli.commands.options import InvalidOptionError, RunContextError
from nemo_run.cli.commands.run_options import as_config, configure, place
from nemo_run.cli.commands.task_source import TaskFile, check_complete, read_task_file, start
from nemo_run.cli.terminal.confirmation import confirmed
from nemo_run.cli.values.edit import overrides_from
from nemo_run.cli.values.errors import ArgumentValueError, CLIException, ParseError
from nemo_run.cli.values.grammar import Override, parse_override
from nemo_run.cli.values.hints import parameters
from nemo_run.cli.values.overrides import apply_overrides
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.config import Config, ConfigurableMixin, Partial
from nemo_run.exceptions import JobFailedError

if TYPE_CHECKING:
    import typer

    from nemo_run.cli.registry.entrypoints import Entrypoint
    from nemo_run.core.execution.base import Executor
    from nemo_run.run.experiment import Experiment
    from nemo_run.run.plugin import ExperimentPlugin

PREFIX = "run."
_PLACED = ("executor", "plugins")
_ABOUT_PLACE = re.compile(r"\s*(executor|plugins)\s*[.[=+]")


@dataclass(kw_only=True)
class RunContext(ConfigurableMixin):
    """The options of one run of a command, and where it runs.

    An experiment with a parameter ``ctx`` gets it, and hands its jobs to `launch`.

    Attributes:
        name: of the run.
        executor: where to run, None for this process; known after `parse_args`.
        plugins: what to apply; known after `parse_args`.
    """

    name: str
    direct: bool = False
    dryrun: bool = False
    factory: str | None = None
    load: str | None = None
    repl: bool = False
    detach: bool = False
    skip_confirmation: bool = False
    tail_logs: bool = False
    yaml: str | None = None
    to_yaml: str | None = None
    to_toml: str | None = None
    to_json: str | None = None

    executor: Executor | None = field(init=False, default=None)
    plugins: list[ExperimentPlugin] = field(init=False, default_factory=list)
    # The command that is run, which says what tasks start from; found at the function if None.
    _entrypoint: Entrypoint | None = field(init=False, default=None, repr=False)
    # What is run, whose words are among those that are parsed.
    _fn: Callable[..., Any] | None = field(init=False, default=None, repr=False)
    _launched: list[Experiment] = field(init=False, default_factory=list, repr=False)

    @classmethod
    def cli_command(
        cls,
        parent: typer.Typer,
        name: str,
        fn: Callable[..., Any],
        default_factory: Callable[..., Any] | None = None,
        default_executor: Any = None,
        default_plugins: Any = None,
        type: Literal["task", "experiment"] = "task",
        command_kwargs: dict[str, Any] | None = None,
        is_main: bool = False,
        cmd_defaults: dict[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Register ``fn`` as a command of a typer application and return the command."""
        from nemo_run.cli.commands.typer_app import add_entrypoint
        from nemo_run.cli.registry.entrypoints import Entrypoint

        made = Entrypoint(
            fn,
            namespace=fn.__module__,
            default_factory=default_factory,
            default_executor=default_executor,
            default_plugins=default_plugins,
            name=name,
            type=type,
            run_ctx_cls=cls,
        )
        return add_entrypoint(parent, made, defaults=cmd_defaults, **(command_kwargs or {}))

    def cli_execute(
        self,
        fn: Callable[..., Any],
        args: Sequence[str],
        entrypoint_type: Literal["task", "experiment"] = "task",
    ) -> Any:
        """Do what the words ask for: run a task, or call the function of an experiment.

        Raises:
            CLIException: a word does not fit.
            JobFailedError: the job did not succeed.
        """
        if self.load:
            raise RunContextError("--load is not implemented. Use --yaml with an exported file.")
        self._fn = fn
        words = self.parse_args(args)
        if self.detach and self.direct:
            raise InvalidOptionError("--detach and --direct exclude each other.")
        if entrypoint_type == "task":
            return self._execute_task(fn, words)
        if entrypoint_type == "experiment":
            return self._execute_experiment(fn, words)
        raise RunContextError(f"type is 'task' or 'experiment', not {entrypoint_type!r}.")

    def _execute_task(self, fn: Callable[..., Any], words: Sequence[str]) -> Any:
        try:
            task = self.parse_fn(fn, words)
        except ParseError as err:
            if _lists_values(err.value):
                err.message += ". Say --sweep to run once for each of several values"
            raise
        if self._exported(task):
            return None
        if self.repl:
            from nemo_run.cli.terminal.shell_session import open_shell

            return open_shell(task, functools.partial(self.run_task, task))
        if self.detach and self.executor is None:
            raise InvalidOptionError(
                "--detach needs an executor: a task in this process ends with it. "
                "Name one with run.executor=NAME."
            )
        self._show(task)
        check_complete(task)
        if self.dryrun:
            self._show_request(task)
            return None
        return self.run_task(task) if confirmed(self.name, skip=self.skip_confirmation) else None

    def run_task(self, task: Any) -> None:
        """Run a task as this context says."""
        from nemo_run.run.api import run

        run(
            task,
            name=self.name,
            executor=self.executor,
            plugins=self.plugins or None,
            direct=self.direct or self.executor is None,
            detach=self.detach,
            tail_logs=self.tail_logs,
            check=True,
        )

    def _show_request(self, task: Partial[Any]) -> None:
        from nemo_run.run.api import run

        if self.executor is not None and not self.direct:
            run(
                task,
                name=self.name,
                executor=self.executor,
                plugins=self.plugins or None,
                dryrun=True,
            )

    def _show(self, task: Partial[Any]) -> None:
        from nemo_run.api import show_task

        show_task(task, self.executor, heading="Dry run for task" if self.dryrun else "Task")

    def _execute_experiment(self, fn: Callable[..., Any], words: Sequence[str]) -> Any:
        arguments = {"ctx": self} if "ctx" in parameters(fn) else {}
        task = self.parse_fn(fn, words, **arguments)
        if self._exported(task):
            return None
        self._show(task)
        check_complete(task)
        if self.dryrun and not arguments:
            # The function cannot be told not to launch anything.
            print("Only this can be shown: it has no parameter ctx.", file=sys.stderr)
            return None
        if not self.dryrun and not confirmed(self.name, skip=self.skip_confirmation):
            return None
        result = fn(**_built_unless_configs(task, fn))
        for experiment in self._launched if not self.detach else ():
            _raise_if_failed(experiment)
        return result

    def _exported(self, task: Partial[Any]) -> bool:
        return export_all(
            task,
            {"yaml": self.to_yaml, "toml": self.to_toml, "json": self.to_json},
            leave_out=("ctx",),
        )

    def launch(self, experiment: Experiment, sequential: bool = False) -> None:
        """Run an experiment, or only show it, as the command line asked for.

        The command fails if one of its jobs does.
        """
        if self.dryrun:
            experiment.dryrun()
            return
        experiment.run(
            sequential=sequential,
            detach=self.detach,
            direct=self.direct or self.executor is None,
            tail_logs=self.tail_logs,
        )
        self._launched.append(experiment)

    def parse_fn(
        self, fn: Callable[..., Any], args: Sequence[str], **default_kwargs: Any
    ) -> Partial[Any]:
        """Return the task that a factory, a file and words describe."""
        entrypoint = self._entrypoint or getattr(fn, "cli_entrypoint", None)
        return start(
            fn,
            args,
            factory=self.factory,
            default_factory=getattr(entrypoint, "default_factory", None),
            file=self._file,
            arguments={**getattr(entrypoint, "configured", {}), **default_kwargs},
        )

    def parse_args(self, args: Sequence[str]) -> list[str]:
        """Take in the words that begin with ``run.`` and return the others.

        ``executor`` and ``plugins`` are what is started from, and are objects afterwards. Words
        about these two need no ``run.`` where no function is known that could have them as
        parameters, which is when a program calls this itself.
        """
        changes = overrides_from(self._file.run, file=self._file.name)
        others = []
        for word in args:
            if word.lstrip().startswith(PREFIX) or (self._fn is None and _ABOUT_PLACE.match(word)):
                changes.append(parse_run_word(word))
            else:
                others.append(word)
        placed = [change for change in changes if _head(change) in _PLACED]
        self._set_fields([change for change in changes if _head(change) not in _PLACED])
        self.dryrun = self.dryrun or only_planning()
        self.executor, self.plugins = place(type(self), self.executor, self.plugins, placed)
        return others

    def _set_fields(self, changes: Sequence[Override]) -> None:
        config = self.to_config()
        known = [f"{PREFIX}{name}" for name in (*config.__arguments__, *_PLACED)]
        for change in changes:
            name = f"{PREFIX}{_head(change)}"
            if name not in known:
                raise ArgumentValueError(
                    f"There is no {name}. {did_you_mean(name, known)}", f"{PREFIX}{change}"
                )
        try:
            apply_overrides(config, changes)
        except CLIException as err:
            err.arg = f"{PREFIX}{err.arg}"  # as it was written
            raise
        for name in {_head(change) for change in changes}:
            setattr(self, name, getattr(config, name))

    def parse_executor(self, name: str, *args: str) -> Config[Executor] | None:
        """Return the config of the executor that an expression names; None for ``none``.

        ``args`` change it: words such as ``nodes=2``.

        Raises:
            ArgumentValueError: there is none of that name.
        """
        words = [parse_override(f"executor.{word}") for word in args]
        named = parse_override(f"executor={name}")
        found = configure(type(self), None, None, [named, *words])[0]
        return None if found is None else as_config(found)

    def parse_plugin(
        self, name: str, *args: str
    ) -> Config[ExperimentPlugin] | list[Config[ExperimentPlugin]]:
        """Return the config of the plugin that a factory expression names, changed by words.

        An expression that names several gives a list of them; see `parse_executor`.
        """
        words = [parse_override(f"plugins.{word}") for word in args]
        named = parse_override(f"plugins={name}")
        found = [as_config(one) for one in configure(type(self), None, None, [named, *words])[1]]
        return found if len(found) != 1 or name.lstrip().startswith("[") else found[0]

    def to_config(self) -> Config[Any]:
        """Return a config of the options, without executor and plugins."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return Config(type(self), **fields)

    @classmethod
    def get_help(cls) -> str:
        """Return the first lines of the class's docstring, as its help text."""
        return (cls.__doc__ or "").partition("Attributes:")[0].strip()

    @functools.cached_property
    def _file(self) -> TaskFile:
        return read_task_file(self.yaml) if self.yaml else TaskFile()


def parse_run_word(word: str) -> Override:
    """Return the change to a run context that a word beginning with ``run.`` describes.

    Raises:
        ArgumentParsingError: the word is not of the form run.key=value.
    """
    override = parse_override(word)
    return dataclasses.replace(override, key=override.key.removeprefix(PREFIX))


def _built_unless_configs(task: Partial[Any], fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments of a function that makes an experiment.

    One whose default holds configs gets configs, changed or not: the function adds them as tasks.
    """
    from nemo_run._config.buildables import buildables
    from nemo_run._config.fiddle import fdl

    defaults = {name: parameter.default for name, parameter in parameters(fn).items()}

    def stays(name: str, value: Any) -> bool:
        return any(buildables(defaults.get(name))) or not any(buildables(value))

    given = {str(name): value for name, value in task.__arguments__.items()}
    return {
        name: value if stays(name, value) else fdl.build(value) for name, value in given.items()
    }


def _raise_if_failed(experiment: Experiment) -> None:
    try:
        experiment.raise_if_failed()
    except JobFailedError as err:
        if experiment.check is not None:
            raise
        # The last lines of the log were shown when the function left the experiment.
        first = str(err).partition("\n")[0]
        raise JobFailedError(first, state=err.state, exit_code=err.exit_code) from None


def _lists_values(text: str) -> bool:
    """Tell whether a sweep would take several values from a text."""
    from nemo_run.cli.commands.sweeps import values_of

    try:
        return len(values_of(text)) > 1
    except CLIException:
        return False


def _head(change: Override) -> str:
    first = change.steps[0]
    return first if isinstance(first, str) else str(first.key)
