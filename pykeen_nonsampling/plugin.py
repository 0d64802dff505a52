"""What PyKEEN's entry point loads: makes the training loops and losses known, whatever part of PyKEEN comes first.

PyKEEN looks for plugins in one place only, the entry points of :mod:`pykeen.datasets`, and it does so in the middle of its
own imports. The loss can be registered right then. The rest has to wait until the part of PyKEEN that it extends is
complete, which :func:`when_imported` arranges.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import losses  # noqa: F401
from .datasets import AllEntities, SyntheticGraph

__all__ = [
    "AllEntities",
    "SyntheticGraph",
]


def when_imported(name: str, action: Callable[[ModuleType], object]) -> None:
    """Call an action with a module as soon as it is completely imported.

    :param name: the name of the module
    :param action: the action
    """
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _BeforeImport(name, action))
    elif module.__spec__ is not None and getattr(module.__spec__, "_initializing", False):
        _on_first_use(module, action)
    else:
        action(module)


class _BeforeImport(MetaPathFinder):
    """Finds one module, once, like all other finders together, and has an action follow its execution."""

    def __init__(self, name: str, action: Callable[[ModuleType], object]):
        self.name = name
        self.action = action

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self.action(module)

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


def _on_first_use(module: ModuleType, action: Callable[[ModuleType], object]) -> None:
    """Have an action precede the first use from outside of a module whose import is under way."""
    cls = type(module)

    class Awaited(cls):  # type: ignore[misc,valid-type]
        def __getattribute__(self, name: str) -> Any:
            # the import system itself looks at names such as __spec__ in the meantime
            if not name.startswith("__") and not self.__spec__._initializing:
                self.__class__ = cls  # type: ignore[assignment]
                action(self)
            return cls.__getattribute__(self, name)

    module.__class__ = Awaited


when_imported("pykeen.evaluation", lambda _: import_module("pykeen_nonsampling.evaluation"))
when_imported("pykeen.training", lambda _: import_module("pykeen_nonsampling.training"))
for _name in ("pykeen.pipeline.api", "pykeen.hpo.hpo"):
    when_imported(_name, lambda module: import_module("pykeen_nonsampling.defaults").provide_defaults(module))
