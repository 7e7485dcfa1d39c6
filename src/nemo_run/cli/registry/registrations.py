"""What `factory` and `entrypoint` have registered, by namespace and name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from nemo_run.cli.registry.entrypoints import Entrypoint

T = TypeVar("T")


class Registry(Generic[T]):
    """Things by namespace, such as ``package.module.Class``, and by name within it.

    Registering a name again replaces what it meant, so that a module can be loaded twice.
    """

    def __init__(self) -> None:
        self._spaces: dict[str, dict[str, T]] = {}

    def add(self, namespace: str, name: str, value: T) -> None:
        """Register ``value``."""
        self._spaces.setdefault(namespace, {})[name] = value

    def find(self, namespace: str, name: str) -> T | None:
        """Return what is registered under both, or None."""
        return self._spaces.get(namespace, {}).get(name)

    def names(self, namespace: str) -> dict[str, T]:
        """Return everything in a namespace by name, in order of registration."""
        return dict(self._spaces.get(namespace, {}))

    def __iter__(self) -> Iterator[tuple[str, str, T]]:
        for namespace, values in self._spaces.items():
            for name, value in values.items():
                yield namespace, name, value


factories: Registry[Callable[..., Any]] = Registry()
entrypoints: Registry[Entrypoint] = Registry()
