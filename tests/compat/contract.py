"""Compare the installed package with API listings in the form autodoc2 writes for MyST.

A listing documents a module: its classes, methods, properties, attributes, functions and data, each
as a fenced directive with a heading and options. ``entries`` reads a listing, ``mismatches`` says
where the installed package differs from one entry.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

PACKAGE = "nemo_run"

_DIRECTIVE = re.compile(
    r"^`{3,}\{py:(?P<kind>class|method|property|attribute|function|data)\}\s+(?P<heading>.+)$"
)
_OPTION = re.compile(r"^:(?P<key>[\w-]+):\s*(?P<value>.*)$")
_BASE = re.compile(r"\{py:obj\}`([^`]+)`")

# A listing shows a value that is computed by the call it came from.
_COMPUTED = {"'field(...)'", "'join(...)'", "'getLogger(...)'"}
# What it shows for "no value" and for a value too long to print is the same word.
_UNSAID = {None, "None"}


@dataclass(frozen=True)
class Entry:
    """One documented object.

    Attributes:
        kind: class, method, property, attribute, function or data.
        heading: the name, for callables with the signature.
        name: the full dotted name, without the package.
        options: ``type``, ``value``, ``classmethod`` and the like.
        bases: of a class, dotted names.
    """

    kind: str
    heading: str
    name: str
    options: Mapping[str, str]
    bases: tuple[str, ...] = ()


def entries(text: str) -> Iterator[Entry]:
    """Read all entries of a listing, in order."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            continue
        options, end = _options(lines, number + 1)
        yield Entry(
            kind=directive["kind"],
            heading=directive["heading"].strip(),
            name=options["canonical"],
            options=options,
            bases=_bases(lines[end : end + 3]),
        )


def _options(lines: list[str], start: int) -> tuple[dict[str, str], int]:
    """The options from line ``start`` on, and the number of the line after them."""
    options: dict[str, str] = {}
    at = start
    while at < len(lines) and (option := _OPTION.match(lines[at])):
        key, value = option["key"], option["value"]
        if value == ">":  # a folded block: the value stands on the next line
            at += 1
            value = lines[at].strip()
        options[key] = value
        at += 1
    return options, at


def _bases(lines: list[str]) -> tuple[str, ...]:
    # Type arguments of generic bases are marked up like bases, inside escaped brackets.
    for line in lines:
        if line.startswith("Bases:"):
            return tuple(_BASE.findall(_without_brackets(line)))
    return ()


def _without_brackets(text: str) -> str:
    kept, depth = [], 0
    for character in text:
        depth += character == "["
        if depth == 0:
            kept.append(character)
        depth -= character == "]"
    return "".join(kept)


def mismatches(entry: Entry, package: str = PACKAGE) -> list[str]:
    """Sentences about every difference between the installed package and ``entry``."""
    try:
        owner, name = _locate(f"{package}.{entry.name}")
    except (ImportError, AttributeError) as error:
        return [f"cannot be found: {error}"]
    return list(_CHECKS[entry.kind](entry, owner, name))


def _locate(path: str) -> tuple[Any, str]:
    """The object that should hold the last name of ``path``, and that name."""
    *parents, name = path.split(".")
    for cut in range(len(parents), 0, -1):
        module_name = ".".join(parents[:cut])
        try:
            owner: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            # Only a module of ours that is not there sends us one level up.
            if error.name is None or not module_name.startswith(error.name):
                raise
            continue
        for part in parents[cut:]:
            owner = getattr(owner, part)
        return owner, name
    raise ModuleNotFoundError(f"no module of {path} can be imported")


def _check_class(entry: Entry, owner: Any, name: str) -> Iterator[str]:
    cls = getattr(owner, name, None)
    if not inspect.isclass(cls):
        yield "is not a class"
        return
    for base in entry.bases:
        try:
            holder, base_name = _locate(base)
            derives = issubclass(cls, getattr(holder, base_name))
        except (ImportError, AttributeError) as error:
            yield f"has a base that cannot be found: {error}"
        else:
            if not derives:
                yield f"does not derive from {base}"
    if "(" in entry.heading:
        yield from _signature_differences(entry.heading, cls.__init__)


def _check_callable(entry: Entry, owner: Any, name: str) -> Iterator[str]:
    static = inspect.getattr_static(owner, name, None)
    if static is None:
        yield "is missing"
        return
    if "classmethod" in entry.options and not isinstance(static, classmethod):
        yield "is not a class method"
    yield from _signature_differences(entry.heading, getattr(owner, name))


def _check_property(entry: Entry, owner: Any, name: str) -> Iterator[str]:
    if not isinstance(inspect.getattr_static(owner, name, None), property):
        yield "is not a property"


def _check_value(entry: Entry, owner: Any, name: str) -> Iterator[str]:
    fields = _fields(owner)
    if name in fields:
        yield from _field_differences(entry, fields[name])
        return
    if not hasattr(owner, name):
        yield "is missing"
        return
    value, wanted = getattr(owner, name), entry.options.get("value")
    if wanted == "'join(...)'":
        if not isinstance(value, (str, PurePath)):
            yield f"is {value!r}, not a path"
    elif wanted not in _UNSAID | _COMPUTED and value != _literal(wanted):
        yield f"is {value!r}, documented as {wanted}"


_CHECKS = {
    "class": _check_class,
    "method": _check_callable,
    "function": _check_callable,
    "property": _check_property,
    "attribute": _check_value,
    "data": _check_value,
}


def _fields(owner: Any) -> dict[str, dataclasses.Field[Any]]:
    if inspect.isclass(owner) and dataclasses.is_dataclass(owner):
        return {field.name: field for field in dataclasses.fields(owner)}
    return {}


def _field_differences(entry: Entry, field: dataclasses.Field[Any]) -> Iterator[str]:
    wanted, annotation = entry.options.get("value"), entry.options.get("type")
    if wanted == "'field(...)'":
        if field.default_factory is dataclasses.MISSING:
            yield "has no default factory"
    elif wanted not in _UNSAID:
        if field.default != _literal(wanted):
            yield f"defaults to {field.default!r}, documented as {wanted}"
    elif annotation is not None and "Optional" in annotation and field.default is not None:
        yield f"defaults to {field.default!r}, documented as None"
    if annotation is not None and _words(field.type) != _words(annotation):
        yield f"is of type {field.type}, documented as {annotation}"


def _signature_differences(heading: str, target: Any) -> Iterator[str]:
    """Compare a documented signature with that of ``target``.

    ``target`` may take more than is documented, as long as a call written against the documentation
    still works: extra parameters need a default.
    """
    head, _, returns = heading.partition(" -> ")
    wanted = _parse(head)
    # A heading shows neither self nor cls.
    actual = inspect.signature(target)
    parameters = {
        name: parameter
        for name, parameter in actual.parameters.items()
        if name not in ("self", "cls")
    }
    documented = list(wanted)
    present = [name for name in parameters if name in wanted]
    if present != documented:
        yield f"takes {', '.join(parameters) or 'nothing'}, documented as {heading}"
    for name, parameter in parameters.items():
        optional = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if name not in wanted and not optional:
            yield f"needs {name}, which is not documented"
        if name in wanted:
            yield from _parameter_differences(parameter, wanted[name])
    if returns and _words(actual.return_annotation) != _words(returns):
        yield f"returns {actual.return_annotation}, documented as {returns}"


def _parameter_differences(
    parameter: inspect.Parameter, wanted: inspect.Parameter
) -> Iterator[str]:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if parameter.kind is not wanted.kind and {parameter.kind, wanted.kind} & set(variable):
        yield f"takes {parameter}, documented as {wanted}"
        return
    if wanted.kind not in variable and parameter.default != wanted.default:
        yield f"{parameter.name} defaults to {parameter.default!r}, documented as {wanted}"
    if wanted.annotation is not wanted.empty and _words(parameter.annotation) != _words(
        wanted.annotation
    ):
        yield f"{parameter.name} is {parameter.annotation}, documented as {wanted.annotation}"


def _parse(head: str) -> dict[str, inspect.Parameter]:
    """The parameters of ``name(a: int, b: str = 'x', **rest)``, annotations as text."""
    definition = ast.parse(f"def {head}: ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    unset: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [
        *zip(positional, [*unset, *arguments.defaults], strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [_parameter(argument, kind, default) for argument, default in pairs]
    # The variable positional one stands before the keyword-only ones, as in a signature.
    if arguments.vararg is not None:
        star = _parameter(arguments.vararg, inspect.Parameter.VAR_POSITIONAL)
        parameters.insert(len(positional), star)
    if arguments.kwarg is not None:
        parameters.append(_parameter(arguments.kwarg, inspect.Parameter.VAR_KEYWORD))
    return {parameter.name: parameter for parameter in parameters}


def _parameter(argument: ast.arg, kind: Any, default: ast.expr | None = None) -> inspect.Parameter:
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        argument.arg,
        kind,
        default=empty if default is None else _literal(ast.unparse(default)),
        annotation=empty if argument.annotation is None else ast.unparse(argument.annotation),
    )


def _literal(text: str | None) -> Any:
    try:
        return ast.literal_eval(text or "")
    except (ValueError, SyntaxError):
        return text


def _words(annotation: Any) -> set[str]:
    """The names in an annotation, however it is spelled.

    ``Optional[List[a.B]]``, ``list[B] | None`` and ``"B"`` within a list are told apart from other
    types but not from each other: a listing shows the spelling of its own sources.
    """
    if annotation is inspect.Signature.empty or annotation is None:
        return set()
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\bForwardRef\b", "", text)
    unqualified = re.sub(r"\w+\.(?=\w)", "", text)
    spelled = {"Dict": "dict", "List": "list", "Tuple": "tuple", "Set": "set"}
    words = {spelled.get(word, word) for word in re.findall(r"\w+", unqualified)}
    return words - {"Optional", "Union", "None", "NoneType"}


def main(arguments: list[str]) -> int:
    """Check all listings of a directory; print what differs. For use outside the test suite."""
    checked, failed = 0, 0
    for listing in sorted(Path(arguments[0]).glob("*.txt")):
        for entry in entries(listing.read_text(encoding="utf-8")):
            checked += 1
            found = mismatches(entry)
            failed += bool(found)
            for sentence in found:
                print(f"{PACKAGE}.{entry.name} {sentence}")
    print(f"{checked - failed} of {checked} entries hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
