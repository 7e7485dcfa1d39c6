"""Imports that are put off until something imported is called."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any

from nemo_run.cli.values.importing import locate


class LazyModule(ModuleType):
    """The dotted path of something that is imported when it is called, and not before.

    ``name`` is the path; attributes extend it.
    """

    def __init__(self, name: str):
        super().__init__(name, doc=None)
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        real = locate(self.name)
        return real(*args, **kwargs)

    def __getattr__(self, part: str) -> LazyModule:
        if part[:2] == "__":
            # Asked for by Python and its tools to find out what this is; it is nothing yet.
            raise AttributeError(part)
        return LazyModule(".".join((self.name, part)))

    def __repr__(self) -> str:
        return f"<lazy module {self.name!r}>"


class lazy_imports:
    """Within this block, ``import`` gives `LazyModule` placeholders.

    Only the import statements of the module that contains the block are changed. Relative
    imports, and ``import *``, raise ``ImportError``.

    Args:
        fallback_to_lazy: import for real where that works, and use placeholders otherwise.
    """

    def __init__(self, fallback_to_lazy: bool = False):
        self._fallback_to_lazy = fallback_to_lazy
        self._space = sys._getframe(1).f_globals
        self._active: _Hook | None = None

    def __enter__(self) -> None:
        with _lock:
            self._active = _Hook(self._space, self._fallback_to_lazy)
            builtins.__import__ = self._active

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _lock:
            if self._active is not None:
                self._active.remove()
                self._active = None


_lock = threading.RLock()


class _Hook:
    """Stands in for ``__import__`` for the import statements of one module."""

    def __init__(self, space: dict[str, Any], fallback_to_lazy: bool):
        self._space = space
        self._fallback_to_lazy = fallback_to_lazy
        self._real: Callable[..., Any] = builtins.__import__
        self._is_removed = False

    def remove(self) -> None:
        self._is_removed = True
        # Blocks may end in another order than they began; what is on top is taken off then.
        while isinstance(builtins.__import__, _Hook) and builtins.__import__._is_removed:
            builtins.__import__ = builtins.__import__._real

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if self._is_removed or globals is not self._space:
            return self._real(name, globals, locals, fromlist or (), level)
        if level:
            raise ImportError(f"Relative imports cannot be lazy: {'.' * level}{name}")
        if fromlist and "*" in fromlist:
            raise ImportError(f"from {name} import * cannot be lazy: its names are not known")
        if self._fallback_to_lazy:
            try:
                return self._real(name, globals, locals, fromlist or (), level)
            except ImportError:
                pass
        return LazyModule(name if fromlist else name.partition(".")[0])
