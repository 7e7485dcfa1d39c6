"""Completion for shells: a script for each, and the words it asks us for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nemo_run.cli import experiments
from nemo_run.cli.commands import application
from nemo_run.cli.commands.options import wants_help
from nemo_run.cli.terminal.screen import Screen
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import ConfigError, NemoRunError

_BASH = """\
_nemorun() {
    mapfile -t COMPREPLY < <("$1" __complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
}
complete -o default -F _nemorun nemorun nemo
"""

_ZSH = """\
#compdef nemorun nemo
_nemorun() {
    local -a found
    found=(${(f)"$("${words[1]}" __complete zsh "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
    (( $#found )) || { _files; return }
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=}
}
# As a file of its own, this is the function itself the first time that it is called.
if [[ ${funcstack[1]-} == _nemorun ]]; then
    _nemorun "$@"
else
    compdef _nemorun nemorun nemo
fi
"""

_FISH = """\
function __nemorun_complete
    set -l words (commandline -opc)
    $words[1] __complete fish $words[2..-1] (commandline -ct) 2>/dev/null
end
function __nemorun_wants_file
    not __nemorun_complete | read -l first
end
for program in nemorun nemo
    complete -c $program -f -a '(__nemorun_complete)'
    complete -c $program -n __nemorun_wants_file -F
end
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_HELP = """Usage: {program} bash|zsh|fish

  Print a completion script for a shell.

Example:
  {program} bash > ~/.local/share/bash-completion/completions/nemorun
  {program} zsh > ~/.zfunc/_nemorun
  {program} fish > ~/.config/fish/completions/nemorun.fish"""


def main(words: Sequence[str], program: str) -> int:
    """Print the script for a shell; or, called by one, the words that fit."""
    if program.endswith("__complete"):
        _answer(words)
        return 0
    if not words or wants_help(words):
        Screen().print(_HELP.format(program=program))
        return 0
    if words[0] not in SCRIPTS:
        raise ConfigError(
            f"There is no completion for {words[0]!r}. {did_you_mean(words[0], SCRIPTS)}"
        )
    if len(words) > 1:
        raise ConfigError(f"{words[1]!r} is one word too many. See {program} --help.")
    print(SCRIPTS[words[0]], end="")
    return 0


def _answer(words: Sequence[str]) -> None:
    shell, typed = (words[0] if words else ""), list(words[1:])
    inserted: Callable[[str], str] = str
    if shell == "bash":
        line = " ".join(typed)
        typed = _split(line)[1:]
        inserted = str if _is_quoted(line) else _escaped
    current = typed[-1] if typed else ""
    try:
        found = candidates(typed[:-1], current)
    except NemoRunError:
        return  # a shell has no use for a message
    for word in found:
        # bash takes = for the end of a word, and wants only what comes after it.
        _, equals, value = word.partition("=")
        print(inserted(value if shell == "bash" and equals and "=" in current else word))


def _escaped(word: str) -> str:
    """Return a word as bash wants it typed; zsh and fish see to that themselves."""
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", word)


def _is_quoted(line: str) -> bool:
    """Tell whether a line ends inside of quotes, where nothing needs a backslash."""
    try:
        shlex.split(line)
    except ValueError:
        return not line.endswith("\\")
    return False


def _split(line: str) -> list[str]:
    """Split the beginning of a command line; the last word may be empty, or not closed yet."""
    for closed in (line, line + "\\", line + "'", line + '"'):
        try:
            words = shlex.split(closed)
        except ValueError:
            continue
        at_end = closed == line and not re.search(r"\S$|\\.$", line)
        return [*words, ""] if at_end else words
    return line.split()


def candidates(before: Sequence[str], current: str) -> list[str]:
    """Return the words that may stand after others and begin with ``current``."""
    return sorted({word for word in _all(list(before), current) if word.startswith(current)})


def _all(before: list[str], current: str) -> Iterable[str]:
    while before and before[0].startswith("-"):
        before = before[1:]
    if not before:
        named = [*application.COMMANDS, *experiments.SHORT, *application.groups()]
        return [*named, "--help", "--lazy", "--version"]
    head, rest = before[0], before[1:]
    if head in experiments.SHORT:
        return _experiment_words([experiments.SHORT[head], *rest], current)
    if head == "experiment":
        return _experiment_words(rest, current)
    if head == "ray":
        return _ray_words(rest, current)
    if head == "devspace":
        return _devspace_words(rest, current)
    if head == "completion":
        return [] if rest else SCRIPTS
    if head == "doctor":
        return [*_executors(), "--json", "--help"]
    if head == "plan":
        return _entrypoint_words(rest, current) if rest else application.groups()
    return _entrypoint_words(before, current)


def _devspace_words(before: list[str], current: str) -> Iterable[str]:
    from nemo_run.cli.devspace import COMMANDS, EDITORS, parser
    from nemo_run.devspace import _records

    if not before:
        return [*COMMANDS, "--help"]
    if before[0] not in COMMANDS:
        return []
    if before[-1] == "--editor":
        return EDITORS
    if current.startswith("-"):
        return parser(before[0], "").flags()
    takes_names = before[0] in ("connect", "stop")
    return [record.name for record in _records.known()] if takes_names else []


def _ray_words(before: list[str], current: str) -> Iterable[str]:
    from nemo_run.cli.ray import COMMANDS, commands
    from nemo_run.run.ray import _known

    if not before:
        return [*COMMANDS, "--help"]
    if before[0] not in COMMANDS:
        return []
    if current.startswith("-"):
        return commands.parser(before[0], "").flags()
    return [known.name for known in _known.all_known()]


def _experiment_words(before: list[str], current: str) -> Iterable[str]:
    from importlib import import_module

    from nemo_run.cli.experiments import arguments, finding

    if not before:
        return [*experiments.COMMANDS, "--help"]
    command = experiments.COMMANDS.get(before[0])
    if command is None:
        return []
    module = import_module(f"{experiments.__name__}.{command.module}")
    parser = arguments.Parser(before[0], command.help, "")
    module.arguments(parser)
    if current.startswith("-"):
        return parser.flags()
    if before[-1] in _VALUES:
        return _VALUES[before[-1]]()
    given = [word for word in before[1:] if not word.startswith("-")]
    places = finding.places()
    wants_job = before[-1] == "--job" or before[0] in ("status", "show", "logs", "cancel")
    if given and wants_job:
        from nemo_run._experiments.store import listing

        return [job.id for job in listing.read_jobs(finding.find(given[0]).path)]
    if given and before[0] == "rerun":
        return _stored_parameters(finding.find(given[0]).path)
    if before[0] in ("list", "export"):
        return [place.title for place in places]
    return [arguments.LATEST, *(name for place in places for name in (place.id, place.title))]


def _stored_parameters(path: str) -> Iterable[str]:
    """Return what a rerun can change, as far as that is known without importing the task."""
    from nemo_run._experiments.store import listing
    from nemo_run.cli.experiments import plain

    names = {name for job in listing.read_jobs(path) for name in plain.flat(job.task) if name}
    return [*(f"{name}=" for name in names), "run.executor="]


def _states() -> Iterable[str]:
    from nemo_run.cli.experiments.listing import STATES

    return STATES


def _tags() -> Iterable[str]:
    from nemo_run.cli.experiments import finding

    return [tag for place in finding.places() for tag in place.entry().labels.tags]


_VALUES: Mapping[str, Callable[[], Iterable[str]]] = {
    "--state": _states,
    "--tag": _tags,
    "--format": lambda: ("json", "csv"),
}


def _entrypoint_words(before: list[str], current: str) -> Iterable[str]:
    from nemo_run.cli.commands.options import options_of
    from nemo_run.cli.registry.entrypoint_help import arguments_of, named_for
    from nemo_run.cli.registry.entrypoints import Entrypoint

    found, _, _ = application.find(before)
    if not isinstance(found, Entrypoint):
        return [*application.command_names(found), "--help"]
    options = options_of(found.type) if found.enable_executor else ()
    if current.startswith("-"):
        return [*(f for o in options for f in (*o.flags, *o.off)), "--help", "--docs"]
    asked = next((o.name for o in options if o.value and before[-1] in o.flags), None)
    if asked is not None:
        return named_for(found.fn) if asked == "factory" else []
    words = []
    for argument in arguments_of(found.fn):
        if "<" in argument.path:
            continue  # stands for any name
        words.append(f"{argument.path}=")
        words += [f"{argument.path}={factory}" for factory in argument.factories]
    if found.enable_executor:
        words += ["run.executor=", "run.plugins="]
        words += [f"run.executor={name}" for name in _executors()]
        words += [f"run.plugins={n}" for n in _factories("run.plugin", "ExperimentPlugin")]
    # Values only once a name is complete; before, there would be too many.
    return [word for word in words if "=" in current or word.endswith("=")]


def _executors() -> list[str]:
    """Return what may stand after ``run.executor=``: factories, and our own classes."""
    import nemo_run

    classes = [name for name in nemo_run.__all__ if name.endswith("Executor")]
    return [*_factories("core.execution.base", "Executor"), *classes]


def _factories(module: str, base: str) -> dict[str, Any]:
    from nemo_run.cli.registry import plugins
    from nemo_run.cli.registry.entrypoint_help import factories_for

    plugins.load()
    return factories_for(module, base)
