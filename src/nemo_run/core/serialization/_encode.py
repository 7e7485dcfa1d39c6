"""Turn a config into the JSON document it is stored as."""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import types
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from re import compile as regex
from typing import Any

from nemo_run import config
from nemo_run._config import later
from nemo_run._config.buildables import PLAIN_KINDS, is_dataclass_instance
from nemo_run._config.fiddle import BuildableTraverserMetadata, fiddle_json, ordered_arguments
from nemo_run._values import literal
from nemo_run.core.serialization import _format, _references
from nemo_run.core.serialization._advice import TOP_LEVEL, advice, short_repr
from nemo_run.core.serialization._format import pyref
from nemo_run.exceptions import UnserializableError

Node = Any
"""A JSON value: a primitive, or an object with a ``type``."""

_Item = tuple[tuple[str, Node], tuple[str, Node]]
"""What is stored of a child, and the link that its paths are computed from."""

_CAMEL_BOUNDARY = regex(r"(?<=[^_A-Z])(?=[A-Z])")


class CannotTravelError(UnserializableError, fiddle_json.UnserializableValueError):
    """Ours, and Fiddle's for scripts that catch that."""


class NamelessError(CannotTravelError, AttributeError):
    """For a lambda, or what a function has defined: what Python says of such names, too."""


def encode(value: Any, policy: fiddle_json.PyrefPolicy | None = None) -> dict[str, Any]:
    """Return the document for ``value``.

    Raises:
        UnserializableError: something inside cannot travel; says where and what to do.
        PyrefPolicyError: the policy refuses something that ``value`` names.
    """
    return _Encoder(policy).document(value)


class _Encoder:
    def __init__(self, policy: fiddle_json.PyrefPolicy | None) -> None:
        self._policy = policy
        self._objects: dict[str, dict[str, Any]] = {}
        self._refcounts: defaultdict[str, int] = defaultdict(int)
        self._names: dict[int, str] = {}
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._references: dict[int, dict[str, str]] = {}
        self._metadata: dict[tuple[int, tuple[str | int, ...]], str] = {}
        # Ids stay unique only while their objects live.
        self._alive: list[Any] = []
        self._open: set[int] = set()
        self._trail: list[str] = []
        # For each data object what is in it: a path step, and a node or an object's name.
        self._links: dict[str, list[tuple[str, Node]]] = {}

    def document(self, value: Any) -> dict[str, Any]:
        root = self._node(value, data=True)
        self._add_paths(root)
        return {
            "root": root,
            "objects": self._objects,
            "refcounts": dict(self._refcounts),
            "version": _format.VERSION,
        }

    def _node(self, value: Any, *, data: bool, hashed: bool = False) -> Node:
        """Return the node of ``value``; ``hashed`` where a set or a dict's keys need its hash."""
        kind = type(value)
        if kind in _format.LEAF_TYPES:
            return {"type": _format.LEAF, "value": value} if data else value
        if id(value) in self._names:
            return self._ref(self._names[id(value)])
        if isinstance(value, _references.REFERABLE) and not _is_unnamed_flag(value):
            return dict(self._reference(value))
        if id(value) in self._open:
            raise self._refuse(value, "it contains itself", "Take the cycle out.")
        self._open.add(id(value))
        try:
            return self._object(value, data=data, hashed=hashed)
        finally:
            self._open.discard(id(value))

    def _object(self, value: Any, *, data: bool, hashed: bool) -> Node:
        kind = type(value)
        hint = kind.__name__
        metadata: Node = None
        encoded_type = None
        if kind is list or kind is tuple:
            items = self._items(_indexed(value), data, hashed=hashed)
        elif kind is dict:
            items = self._items(
                ((f"Key(key={k!r})", f"[{k!r}]", v) for k, v in value.items()), data
            )
            metadata = self._node(tuple(value), data=False, hashed=True)
        elif kind in PLAIN_KINDS:
            hint = getattr(value.__fn_or_cls__, "__name__", hint)
            arguments = ordered_arguments(value)
            items = self._items(_arguments(arguments), data)
            metadata = self._buildable_metadata(
                value.__fn_or_cls__, tuple(arguments), value.__argument_tags__
            )
        elif kind is set or kind is frozenset:
            elements = (("SetElement()", "[<set element>]", v) for v in value)
            items = self._items(elements, data, hashed=True)
        elif kind is bytes:
            # Every byte as one character; the reader's raw_unicode_escape gives them back.
            items = self._items([("IdentityElement()", "", value.decode("latin-1"))], data)
        elif kind is slice:
            parts = (("start", value.start), ("stop", value.stop), ("step", value.step))
            items = self._items(((f"Attr(name={n!r})", f".{n}", v) for n, v in parts), data)
        elif (call := _as_call(value)) is not None:
            (module, name), arguments_ = call
            encoded_type = pyref(*_format.CALL)
            items = self._items(_indexed(arguments_), data)
            metadata = pyref(module, name)
        elif (traverser := fiddle_json.find_node_traverser(kind)) is not None:
            items, raw = self._traversed(value, traverser, data)
            if isinstance(raw, BuildableTraverserMetadata):
                hint = getattr(raw.fn_or_cls, "__name__", hint)
                metadata = self._buildable_metadata(*raw[:3])
            else:
                metadata = self._node(raw, data=False)
        elif isinstance(value, config.ConfigurableMixin) or is_dataclass_instance(value):
            return self._dataclass(value, data, hashed)
        elif (constant := _constant(value)) is not None:
            return constant
        else:
            raise self._refuse(value, *advice(value))

        node = {
            "type": encoded_type or dict(self._reference(kind)),
            "items": [item for item, _ in items],
            "metadata": metadata,
        }
        if kind is tuple and not value:
            return node
        return self._store(value, hint, node, [link for _, link in items] if data else None)

    def _traversed(self, value: Any, traverser: Any, data: bool) -> tuple[list[_Item], Any]:
        """Return what is in a value of a kind that Fiddle knows, and Fiddle's metadata for it."""
        values, raw = traverser.flatten(value)
        steps = traverser.path_elements(value)
        children = zip(map(repr, steps), (step.code for step in steps), values, strict=True)
        return self._items(children, data), raw

    def _dataclass(self, value: Any, data: bool, hashed: bool) -> Node:
        """Store an instance as a config of its class, made again where the task runs."""
        if hashed:
            raise self._refuse(
                value,
                "it travels as a config, which cannot be in a set or be a key",
                "Put it into a list, or use a key of another kind.",
            )
        as_config = value.to_config() if isinstance(value, config.ConfigurableMixin) else None
        if as_config is value:  # a list, tuple or dict of a class of its own
            raise self._refuse(value, *advice(value))
        if as_config is None:
            fields = [f.name for f in dataclasses.fields(value) if f.init]
            as_config = config.Config(
                type(value), bind_args=False, **{name: getattr(value, name) for name in fields}
            )
        node = self._node(as_config, data=data)
        # The same instance met again is the same config.
        name = self._names[id(value)] = self._names[id(as_config)]
        self._alive.append(value)
        if isinstance(value, config.ConfigurableMixin) and value._keeps_what_is_set_later:
            # Beside what Fiddle knows of an object, which therefore does not look at it.
            self._objects[name][_format.SET_LATER] = self._set_later(value)
        return node

    def _set_later(self, value: Any) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        for name, item in later.set_later(value).items():
            try:
                _Encoder(self._policy).document(item)  # so that half of it is never stored
            except CannotTravelError as err:
                later.left_out(value, name, err)
            else:
                nodes[name] = self._node(item, data=False)
        return nodes

    def _items(
        self, children: Iterable[tuple[str, str, Any]], data: bool, *, hashed: bool = False
    ) -> list[_Item]:
        """Return, for each child, the item to store and the link to compute paths from."""
        items = []
        for label, step, child in children:
            self._trail.append(step)
            node = self._node(child, data=data, hashed=hashed)
            self._trail.pop()
            items.append(((label, node), (step, node)))
        return items

    def _buildable_metadata(
        self, target: Any, names: Sequence[str | int], tags: dict[Any, Any]
    ) -> Node:
        tags = {name: frozenset(of) for name, of in tags.items() if of}
        key = (id(target), tuple(names))
        if not tags and key in self._metadata:
            # Configs of one callable with the same arguments set differ in nothing here.
            return self._ref(self._metadata[key])
        self._trail.append(".<metadata>")
        parts = (
            ("fn_or_cls", dict(self._reference(target))),
            ("argument_names", self._node(names, data=False)),
            ("argument_tags", self._node(tags, data=False)),
            ("argument_history", self._node({}, data=False)),
        )
        self._trail.pop()
        node = {
            "type": pyref(*_format.METADATA),
            "items": [(f"Attr(name={name!r})", part) for name, part in parts],
            "metadata": pyref(*_format.METADATA),
        }
        stored = self._store(object(), _format.METADATA[1], node, None)
        if not tags:
            self._metadata[key] = stored["key"]
        return stored

    def _store(
        self, value: Any, hint: str, node: dict[str, Any], links: list[tuple[str, Node]] | None
    ) -> Node:
        hint = _snake_case(hint)
        self._counts[hint] += 1
        name = f"{hint}_{self._counts[hint]}"
        self._objects[name] = node
        self._names[id(value)] = name
        self._alive.append(value)
        if links is not None:
            self._links[name] = links
        return self._ref(name)

    def _ref(self, name: str) -> Node:
        self._refcounts[name] += 1
        return {"type": _format.REF, "key": name}

    def _reference(self, value: Any) -> dict[str, str]:
        known = self._references.get(id(value))
        if known is None:
            known = pyref(*self._importable_name(value))
            self._references[id(value)] = known
            self._alive.append(value)
        return known

    def _importable_name(self, value: Any) -> tuple[str, str]:
        try:
            module, name = _references.name_of(value)
        except AttributeError:
            raise self._refuse(value, *advice(value), NamelessError) from None
        # <lambda> and <locals> are not names that can be imported.
        if "<" in name or _references.is_interpreters_own(value):
            raise self._refuse(value, *advice(value), NamelessError)
        try:
            found = _references.load(module, name, self._policy)
        except (ImportError, AttributeError) as err:
            why = f"it cannot be imported as {module}:{name} ({err})"
            raise self._refuse(value, why, TOP_LEVEL) from err
        if module == "__main__" and not _main_can_be_saved():
            why = "it is defined where there is no script, as in python -c or a notebook"
            raise self._refuse(value, why, "Put it into a module that can be imported.")
        # Bound methods are made anew by each access.
        if found is not value and not (isinstance(value, types.MethodType) and found == value):
            why = f"importing {module}:{name} gives something else"
            raise self._refuse(value, why, TOP_LEVEL)
        return _as_main(module), name

    def _refuse(
        self,
        value: Any,
        why: str,
        what_to_do: str,
        kind: type[CannotTravelError] = CannotTravelError,
    ) -> CannotTravelError:
        path = "<root>" + "".join(self._trail)
        return kind(
            f"Unserializable value {short_repr(value)} of type {type(value)} at {path}: {why}. "
            f"{what_to_do}",
            path=path,
            value=value,
        )

    def _add_paths(self, root: Node) -> None:
        """Write into each data node the paths that lead to it, parents before children."""
        paths: defaultdict[str, list[str]] = defaultdict(list)
        self._extend_paths(root, ["<root>"], paths)
        for name in reversed(self._objects):
            if name in self._links:
                own = self._objects[name]["paths"] = paths[name]
                for step, node in self._links[name]:
                    self._extend_paths(node, [path + step for path in own], paths)

    def _extend_paths(self, node: Node, new: list[str], paths: defaultdict[str, list[str]]) -> None:
        if node["type"] == _format.REF:
            known = paths[node["key"]]
            known += new[: _format.MAX_PATHS - len(known)]
        else:
            node["paths"] = new


def _main_can_be_saved() -> bool:
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return True
    # There is also <stdin>.
    return Path(getattr(main, "__file__", None) or "").is_file()


def _as_main(module: str) -> str:
    """Return the name that a module has where the task runs."""
    if module.startswith(_format.EXTERNAL_MAIN):
        return "__main__"
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if module == "__main__" and spec is not None and spec.name != _format.RUNNER:
        # Run with -m, the script has a name of its own, and relative imports that need it.
        return str(spec.name)
    return module


def _indexed(values: Iterable[Any]) -> Iterable[tuple[str, str, Any]]:
    return ((f"Index(index={i})", f"[{i}]", value) for i, value in enumerate(values))


def _arguments(arguments: dict[str | int, Any]) -> Iterable[tuple[str, str, Any]]:
    for name, value in arguments.items():
        if isinstance(name, int):
            yield f"Index(index={name})", f"[{name}]", value
        else:
            yield f"Attr(name={name!r})", f".{name}", value


def _as_call(value: Any) -> tuple[tuple[str, str], tuple[Any, ...]] | None:
    """Return a callable's name and arguments that give ``value``, for kinds that have them."""
    if isinstance(value, PurePath) and type(value).__module__.partition(".")[0] == "pathlib":
        # Newer Pythons define the classes in a private module of the package.
        return ("pathlib", type(value).__name__), (str(value),)
    if type(value) is literal:
        return _references.name_of(literal), (str(value),)
    if type(value) is complex:
        return ("builtins", "complex"), (value.real, value.imag)
    if type(value) is range:
        return ("builtins", "range"), (value.start, value.stop, value.step)
    if _is_unnamed_flag(value):
        return _references.name_of(type(value)), (value.value,)
    return None


def _is_unnamed_flag(value: Any) -> bool:
    """Tell a combination of flags, which no attribute of its class names."""
    return isinstance(value, enum.Flag) and (value.name is None or "|" in value.name)


def _constant(value: Any) -> Node:
    """Return the reference of a constant registered with Fiddle, or of a torch.dtype."""
    known = fiddle_json._serialization_constants_by_id.get(id(value))
    if known is None:
        try:
            known = fiddle_json._serialization_constants_by_value.get(value)
        except TypeError:  # unhashable
            known = None
    if known is not None:
        return known.to_pyref()
    if (type(value).__module__, type(value).__qualname__) == ("torch", "dtype"):
        return pyref("torch", str(value).rpartition(".")[2])
    return None


@functools.cache
def _snake_case(name: str) -> str:
    return _CAMEL_BOUNDARY.sub("_", name).lower()
