"""Lets PyKEEN be imported before the modules of this package that extend it, but not before the command line.

PyKEEN loads :mod:`pykeen_nonsampling._plugin` in the middle of its own imports, as an entry point of :mod:`pykeen.datasets`.
If a module of this package is imported first, PyKEEN has to be imported completely before it, or each would see the other's
modules half-initialized. The command line does without PyKEEN until a command is called, so that ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from typing_extensions import override

#: What PyKEEN's plugin does not need
INDEPENDENT = "__main__", "cli"


class PyKEENFirst(MetaPathFinder):
    """Imports PyKEEN before the first module of this package that extends it, once."""

    @override
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = fullname.partition(".")
        if package != __package__ or module.partition(".")[0] in INDEPENDENT:
            return None
        sys.meta_path.remove(self)
        if "pykeen.datasets" not in sys.modules:
            import pykeen.pipeline  # noqa: F401
        imported = sys.modules.get(fullname)
        if imported is None or imported.__spec__ is None:
            return None
        # the plugin was the first to import it
        imported.__spec__.loader = _Imported(imported, imported.__spec__.loader)
        return imported.__spec__


class _Imported(Loader):
    """Loads a module that is there already, instead of executing it once more."""

    def __init__(self, module: ModuleType, loader: Loader | None):
        self.module = module
        self.loader = loader

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    @override
    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
